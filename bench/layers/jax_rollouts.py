"""Times rollouts in JAX: PureJaxRL's ScannedRNN, lax.scan over Flax's GRU cell with resets, and penstock.jax.gru with
reset_mask. Prints medians and quartiles of one call in milliseconds, and the largest error of the outputs.

    python bench/layers/jax_rollouts.py [--shapes 128x64x128 128x1024x256] [--queued 8]

Shapes are steps x environments x units. The error is that from ScannedRNN at JAX's highest precision; times are those
of its default precision. An episode starts before 3 % of the steps.
"""

import argparse
import functools
import statistics
import time

import flax.linen as nn
import jax
import jax.numpy as jnp

import penstock.jax as pj


class ScannedRNN(nn.Module):
    @functools.partial(nn.scan, variable_broadcast="params", in_axes=0, out_axes=0, split_rngs={"params": False})
    @nn.compact
    def __call__(self, carry, x):
        ins, resets = x
        carry = jnp.where(resets[:, None], jnp.zeros_like(carry), carry)
        return nn.GRUCell(features=carry.shape[-1])(carry, ins)


def weights_of(params):
    """Returns the weights of Flax's cell, which are one matrix for each gate, in PyTorch's layout."""
    (cell,) = params["params"].values()
    hidden = len(cell["hn"]["bias"])
    return {
        "weight_ih_l0": jnp.concatenate([cell[f"i{gate}"]["kernel"].T for gate in "rzn"]),
        "weight_hh_l0": jnp.concatenate([cell[f"h{gate}"]["kernel"].T for gate in "rzn"]),
        "bias_ih_l0": jnp.concatenate([cell[f"i{gate}"]["bias"] for gate in "rzn"]),
        "bias_hh_l0": jnp.concatenate([jnp.zeros(2 * hidden), cell["hn"]["bias"]]),
    }


def passes(forward, weights, x):
    """Returns the forward pass and the training pass, compiled and with their arguments."""

    def loss(weights, x):
        return (forward(weights, x) ** 2).sum()

    compiled = {"forward": jax.jit(forward), "training": jax.jit(jax.grad(loss, (0, 1)))}
    return {name: functools.partial(function, weights, x) for name, function in compiled.items()}


def compare(shape, queued):
    steps, rows, hidden = shape
    key = jax.random.key(0)
    x, resets = jax.random.normal(key, shape), jax.random.uniform(key, (steps, rows)) < 0.03
    h, module = jnp.zeros((rows, hidden)), ScannedRNN()
    params = module.init(key, h, (x, resets))

    def scanned(weights, x):
        return module.apply(weights, h, (x, resets))[1]

    def ours(weights, x):
        return pj.gru(x, weights, h[None], reset_mask=resets, time_major=True)[0]

    with jax.default_matmul_precision("highest"):
        exact = jax.jit(lambda weights, x: scanned(weights, x))(params, x)
    layers = {"ScannedRNN": passes(scanned, params, x), "penstock.jax": passes(ours, weights_of(params), x)}
    errors = {name: float(abs(of["forward"]() - exact).max()) for name, of in layers.items()}
    if not errors["penstock.jax"] < 1e-4:
        raise SystemExit(f"{shape}: the results differ by {errors['penstock.jax']}")
    for name in ("forward", "training"):
        found = {layer: [] for layer in layers}
        for _ in range(14):
            for layer, of in layers.items():
                start = time.perf_counter()
                jax.block_until_ready([of[name]() for _ in range(queued)][-1])
                found[layer].append(1e3 * (time.perf_counter() - start) / queued)
        cells, medians = [], []
        for times in found.values():
            low, middle, high = statistics.quantiles(times[2:], n=4)
            medians.append(middle)
            cells.append(f"{middle:.3g} ({low:.3g} to {high:.3g})")
        row = ["x".join(map(str, shape)), name, *cells, f"{medians[0] / medians[1]:.1f}"]
        print(f"| {' | '.join([*row, ', '.join(f'{error:.0e}' for error in errors.values())])} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["128x64x128", "128x1024x256"], help="steps x environments x units")
    parser.add_argument("--queued", type=int, default=8, help="calls that are waited for at once")
    options = parser.parse_args()
    print(f"JAX {jax.__version__}, {jax.devices()[0].device_kind}\n")
    print("| steps x environments x units | pass | `ScannedRNN` | `penstock.jax.gru` | ratio | errors |")
    print("|---" * 6 + "|")
    for shape in options.shapes:
        compare(tuple(map(int, shape.split("x"))), options.queued)


if __name__ == "__main__":
    main()
