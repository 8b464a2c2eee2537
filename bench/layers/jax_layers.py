"""Times penstock.jax against jax.lax.scan on this machine's CPU, in turns in one run, and prints a table in Markdown.

    python bench/layers/jax_layers.py            # needs the packages penstock and jax
    OMP_NUM_THREADS=1 taskset -c 0 python bench/layers/jax_layers.py --clock processor

The second command measures one thread where other programs run as well.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp

import penstock.jax as pj

#: cell, B, T, I, H, dtype
CASES = (
    ("gru", 1, 64, 64, 128, "float32"),
    ("gru", 16, 64, 64, 128, "float32"),
    ("lstm", 1, 64, 64, 128, "float32"),
    ("lstm", 16, 64, 64, 128, "float32"),
    ("lstm", 16, 64, 64, 128, "bfloat16"),
    ("mingru", 4, 1024, 64, 128, "float32"),
)


def by_scan(cell, x, weights):
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
    return jax.lax.scan(step, zeros, wx.swapaxes(0, 1))[1].swapaxes(0, 1)


def by_penstock(cell, x, weights):
    return pj.recurrent(x, weights, cell=cell)[0]


def passes(layer, cell):
    """Returns the forward pass and the training pass (gradients of x and of the weights), compiled."""

    def loss(x, weights):
        return (layer(cell, x, weights) ** 2).sum()

    return jax.jit(lambda x, weights: layer(cell, x, weights)), jax.jit(jax.grad(loss, (0, 1)))


def times(functions, arguments, seconds, clock):
    """Returns for each function its times in ms. The functions take turns."""
    found = [[] for _ in functions]
    for function in functions:
        jax.block_until_ready(function(*arguments))
    end = clock() + seconds
    while clock() < end:
        for each, function in zip(found, functions):
            begin = clock()
            jax.block_until_ready(function(*arguments))
            each.append(1e3 * (clock() - begin))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="time for each case and pass")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    options = parser.parse_args()
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    print("| cell B, T, I, H, dtype | pass | `jax.lax.scan`, ms | `penstock.jax`, ms | ratio |\n|---|---|---|---|---|")
    for cell, rows, steps, inputs, hidden, dtype in CASES:
        key = jax.random.key(0)
        weights = pj.initial_weights(key, cell, inputs, hidden, dtype=dtype)
        x = jax.random.normal(key, (rows, steps, inputs), dtype)
        both = list(zip(passes(by_scan, cell), passes(by_penstock, cell)))
        for name, functions in zip(("forward", "training"), both):
            difference = max(
                float(abs(a - b).max() / (1e-30 + abs(a).max()))
                for a, b in zip(*(jax.tree.leaves(function(x, weights)) for function in functions))
            )
            assert difference < (1e-4 if dtype == "float32" else 0.1), f"{cell}: the results differ by {difference}"
            found = times(functions, (x, weights), options.seconds, clock)
            cells = []
            for each in found:
                low, middle, high = statistics.quantiles(each, n=4)
                cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
            ratio = statistics.median(found[0]) / statistics.median(found[1])
            sizes = f"{cell} {rows}, {steps}, {inputs}, {hidden}, {dtype}"
            print(f"| {sizes} | {name} | {' | '.join(cells)} | {ratio:.1f} |", flush=True)


if __name__ == "__main__":
    main()
