"""Trains a language model of up to a billion parameters on texts or token ids, on one device or many.

python examples/train_language_model.py book.txt --size 1m
torchrun --standalone --nproc-per-node=8 examples/train_language_model.py 'shards/*.bin' --tokens uint16 \
    --vocabulary 50257 --cell mingru --size 1b --sharding fsdp --device cuda --steps 20000 --checkpoint run

It prints tokens a second of all devices, the memory of the first GPU, and the share of the GPUs' peak in bfloat16.
"""

import argparse
import os

import torch

import penstock
import penstock.torch

#: Parameters of all blocks together, and the width of the model, by the name of a size.
SIZES = {"1m": (1e6, 128), "10m": (1e7, 384), "100m": (1e8, 1024), "1b": (1e9, 2048)}
#: Parameters of a block of width w, in w^2: those of the layer and 6 of the feed-forward part. Heads of a layer.
CELLS = {"mingru": (8, 1), "minlstm": (9, 1), "lstm": (14, 1), "slstm": (11, 4)}
#: Multiplications and additions a second in bfloat16, without sparsity.
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}


def make_model(data, cell, size):
    """Returns a model with about the number of parameters of SIZES."""
    parameters, width = SIZES[size]
    per_block, heads = CELLS[cell]
    blocks = max(1, round(parameters / (per_block * width**2)))
    return penstock.Model(data, cell=cell, width=width, blocks=blocks, heads=heads, feed_forward=2.0, dropout=0.0)


class Meter:
    """Prints the speed of a run. A callback of penstock.torch.fit, which calls it on rank 0.

    Attributes:
        tokens_per_second: Of all devices together, in the last interval.
        memory: Largest number of bytes that tensors took on this GPU.
        share_of_peak: Of all GPUs; None if their peak is not known.
    """

    def __init__(self, model):
        # The embedding is looked up. All other weights are used once for a token: 2 operations forward, 4 backward.
        self._operations = 6 * (model.parameter_count - model.data["vocabulary"] * model.spec["width"])
        self._devices = int(os.environ.get("WORLD_SIZE", "1"))
        self.memory, self.share_of_peak, self.tokens_per_second = 0, None, 0.0

    def peak(self):
        """Returns the operations a second of all GPUs; None if they are unknown, or the run has not touched a GPU."""
        name = torch.cuda.get_device_name() if torch.cuda.is_initialized() else ""
        return next((self._devices * peak for chip, peak in PEAKS.items() if chip in name), None)

    def __call__(self, progress):
        self.tokens_per_second = progress.positions_per_second
        line = f"step {progress.step:6}  {progress.loss / 0.6931:.3f} bits  {self.tokens_per_second / 1e3:.1f} k tokens/s"
        if torch.cuda.is_initialized():
            self.memory = torch.cuda.max_memory_allocated()
            line += f"  {self.memory / 1e9:.1f} GB"
        peak = self.peak()
        if peak:
            self.share_of_peak = self._operations * self.tokens_per_second / peak
            line += f"  {100 * self.share_of_peak:.1f} % of peak"
        print(line + (f"  {progress.warning}" if progress.warning else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="texts or token ids: files, folders, patterns")
    parser.add_argument("--tokens", choices=("uint8", "uint16", "uint32"), help="type of token ids without a header")
    parser.add_argument("--vocabulary", type=int, default=0)
    parser.add_argument("--cell", choices=CELLS, default="mingru")
    parser.add_argument("--size", choices=SIZES, default="10m")
    parser.add_argument("--sharding", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int, default=32, help="sequences of all devices together")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--checkpoint")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("-o", "--output", default="model.safetensors")
    given = parser.parse_args()
    data = penstock.open_text(given.data, tokens=given.tokens, vocabulary=given.vocabulary)
    model = make_model(data, given.cell, given.size)
    first = os.environ.get("RANK", "0") == "0"
    if first:
        print(f"{model.parameter_count:,} parameters, {model.spec['blocks']} blocks of width {model.spec['width']}")
    names = ("sharding", "compile", "device", "batch", "length", "accumulate", "steps", "checkpoint", "resume")
    options = {name: getattr(given, name) for name in names}
    result = penstock.torch.fit(model, data, callback=Meter(model), log_every=5.0, progress=False, **options)
    if first:
        model.save(given.output)
        scored = f", {result.validation.bits_per_step:.3f} bits a token in validation" if result.validation else ""
        print(f"{result.last.step} steps in {result.last.seconds:.0f} s{scored}; saved {given.output}")


if __name__ == "__main__":
    main()
