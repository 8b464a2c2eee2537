"""Times penstock.jax, jax.lax.scan and on a GPU JAX's cuDNN LSTM in turns in one run. Prints a table in Markdown.

    python bench/layers/jax_layers.py            # needs the packages penstock and jax
    python bench/layers/jax_layers.py --device cuda
    OMP_NUM_THREADS=1 taskset -c 0 python bench/layers/jax_layers.py --clock processor

The last command measures one thread where other programs run as well. Each layer by lax.scan is timed with the fastest
`unroll` of UNROLLS. A GPU gets 8 calls at a time, unless --queued says otherwise. Differences are those from lax.scan
in float32 at JAX's highest precision, as parts of the largest value; times are those of JAX's default precision.
On a CPU, a column has the products' rates at the medians; a line above the table has the rate of XLA's own large product.
"""

import argparse
import functools
import statistics
import time

import jax
import jax.numpy as jnp

import penstock.jax as pj

#: cell, B, T, I, H, dtype
CASES = {
    "cpu": (
        ("gru", 1, 64, 64, 128, "float32"),
        ("gru", 16, 64, 64, 128, "float32"),
        ("lstm", 1, 64, 64, 128, "float32"),
        ("lstm", 16, 64, 64, 128, "float32"),
        ("lstm", 16, 64, 64, 128, "bfloat16"),
        ("mingru", 4, 1024, 64, 128, "float32"),
    ),
    "cuda": (
        ("gru", 16, 1024, 512, 512, "bfloat16"),
        ("lstm", 16, 1024, 512, 512, "float32"),
        ("lstm", 16, 1024, 512, 512, "bfloat16"),
        ("gru", 16, 1024, 512, 512, "float32"),
        ("lstm", 64, 256, 256, 256, "float32"),
        ("gru", 128, 64, 128, 256, "bfloat16"),
        ("mingru", 16, 4096, 512, 512, "bfloat16"),
    ),
}
UNROLLS = (1, 4, 16)
#: Largest difference, as a part of the largest value.
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.1}


def by_scan(cell, x, weights, unroll=1):
    """A layer as JAX's users write it: one product for all inputs, then jax.lax.scan()."""
    wx = x @ weights["weight_ih_l0"].T + weights["bias_ih_l0"]
    gates = {"gru": 3, "lstm": 4, "mingru": 2}[cell]

    def step(state, wx):
        w = jnp.split(wx, gates, -1)
        if cell == "mingru":
            update = jax.nn.sigmoid(w[0])
            state = ((1 - update) * state[0] + update * w[1],)
            return state, state[0]
        r = jnp.split(state[0] @ weights["weight_hh_l0"].T + weights["bias_hh_l0"], gates, -1)
        if cell == "gru":
            reset, update = jax.nn.sigmoid(w[0] + r[0]), jax.nn.sigmoid(w[1] + r[1])
            state = ((1 - update) * jnp.tanh(w[2] + reset * r[2]) + update * state[0],)
        else:
            i, f, o = (jax.nn.sigmoid(w[k] + r[k]) for k in (0, 1, 3))
            c = f * state[1] + i * jnp.tanh(w[2] + r[2])
            state = (o * jnp.tanh(c), c)
        return state, state[0]

    zeros = (jnp.zeros((x.shape[0], wx.shape[-1] // gates), x.dtype),) * (2 if cell == "lstm" else 1)
    return jax.lax.scan(step, zeros, wx.swapaxes(0, 1), unroll=unroll)[1].swapaxes(0, 1)


def by_penstock(cell, x, weights):
    return pj.recurrent(x, weights, cell=cell)[0]


def by_cudnn(cell, x, weights, *precision):
    """JAX's LSTM by cuDNN, which takes its weights as one array. `precision`: of jax.experimental.rnn.lstm()."""
    from jax.experimental import rnn

    rows, steps, inputs = x.shape
    hidden = weights["weight_hh_l0"].shape[1]
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    flat = jnp.concatenate([weights[name].ravel() for name in names])
    zeros, lengths = jnp.zeros((1, rows, hidden)), jnp.full(rows, steps)
    return rnn.lstm(x, zeros, zeros, flat, lengths, inputs, hidden, 1, 0.0, False, *precision)[0]


def passes(layer, cell):
    """Returns the forward pass and the training pass (gradients of x and of the weights), compiled."""

    def loss(x, weights):
        return (layer(cell, x, weights) ** 2).sum()

    return jax.jit(lambda x, weights: layer(cell, x, weights)), jax.jit(jax.grad(loss, (0, 1)))


def times(functions, arguments, seconds, clock, queued):
    """Returns for each function its times in ms for one of `queued` calls. The functions take turns."""
    found = [[] for _ in functions]
    for function in functions:
        jax.block_until_ready(function(*arguments))
    end = clock() + seconds
    while clock() < end:
        for each, function in zip(found, functions):
            begin = clock()
            jax.block_until_ready([function(*arguments) for _ in range(queued)][-1])
            each.append(1e3 * (clock() - begin) / queued)
    return found


def products(cell, rows, steps, inputs, hidden, training):
    """Returns the additions and multiplications of a layer's products."""
    gates, factors = {"gru": (3, inputs + hidden), "lstm": (4, inputs + hidden), "mingru": (2, inputs)}[cell]
    return (3 if training else 1) * 2 * rows * steps * gates * hidden * factors


def rate_of_large_product(clock, size=1024):
    """Returns the GFLOP/s of XLA's product of square matrices, the best of 20."""
    matrix = jax.random.normal(jax.random.key(0), (size, size))
    return 2e-6 * size**3 / min(times([jax.jit(jnp.matmul)], (matrix, matrix), 20 * 0.03, clock, 1)[0])


def best_unroll(cell, number, x, weights, clock, queued):
    """Returns the fastest of UNROLLS for a pass."""

    def quickest(unroll):
        function = passes(functools.partial(by_scan, unroll=unroll), cell)[number]
        return min(times([function], (x, weights), 0.3, clock, queued)[0])

    return min(UNROLLS, key=quickest)


def differences(functions, exact, arguments):
    """Returns the largest differences of the functions' results from those of `exact`, which computes in float32."""
    wide = jax.tree.map(lambda a: a.astype("float32"), arguments)
    with jax.default_matmul_precision("highest"):
        expected = jax.tree.leaves(exact(*wide))

    def apart(results):
        pairs = zip(expected, jax.tree.leaves(results))
        return max(float(abs(a - b.astype("float32")).max() / (1e-30 + abs(a).max())) for a, b in pairs)

    return [apart(function(*arguments)) for function in functions]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="time for each case and pass")
    parser.add_argument("--cases", type=int, help="number of cases, from the first one; all without")
    parser.add_argument("--queued", type=int, help="calls that the host waits for at once; 8 on a GPU, else 1")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    options = parser.parse_args()
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    queued = options.queued or (8 if options.device == "cuda" else 1)
    jax.config.update("jax_default_device", jax.devices(options.device)[0])
    print(f"JAX {jax.__version__}, {jax.devices(options.device)[0].device_kind}")
    on_cpu = options.device == "cpu"
    print(f"XLA's product of [1024, 1024]: {rate_of_large_product(clock):.0f} GFLOP/s\n" if on_cpu else "")
    columns = ("`jax.lax.scan`", "`jax.experimental.rnn`", "`penstock.jax`")[:: 1 if options.device == "cuda" else 2]
    titles = ["cell B, T, I, H, dtype", "pass", *(f"{column}, ms" for column in columns), "ratios", *["GFLOP/s"] * on_cpu, "differences"]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for cell, rows, steps, inputs, hidden, dtype in CASES[options.device][: options.cases]:
        key = jax.random.key(0)
        weights = pj.initial_weights(key, cell, inputs, hidden, dtype=dtype)
        x = jax.random.normal(key, (rows, steps, inputs), dtype)
        with_cudnn = options.device == "cuda" and cell == "lstm" and dtype == "float32"
        for number, name in enumerate(("forward", "training")):
            unroll = best_unroll(cell, number, x, weights, clock, queued)
            layers = [functools.partial(by_scan, unroll=unroll), *[by_cudnn] * with_cudnn, by_penstock]
            functions = [passes(layer, cell)[number] for layer in layers]
            exact = passes(functools.partial(by_scan, unroll=unroll), cell)[number]  # compiled at another precision
            apart = differences(functions, exact, (x, weights))
            assert apart[-1] < TOLERANCES[dtype], f"{cell}: the results differ by {apart}"
            found = times(functions, (x, weights), options.seconds, clock, queued)
            cells = []
            for each in found:
                low, middle, high = statistics.quantiles(each, n=4)
                cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
            cells[0] += f", unroll {unroll}"
            if len(cells) < len(columns):
                cells.insert(1, "")
            medians = [statistics.median(each) for each in found]
            ratios = ", ".join(f"{other / medians[-1]:.1f}" for other in medians[:-1])
            sizes = f"{cell} {rows}, {steps}, {inputs}, {hidden}, {dtype}"
            work = products(cell, rows, steps, inputs, hidden, name == "training")
            rates = [", ".join(f"{1e-6 * work / each:.0f}" for each in medians)] * on_cpu
            row = [sizes, name, *cells, ratios, *rates, ", ".join(f"{each:.0e}" for each in apart)]
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
