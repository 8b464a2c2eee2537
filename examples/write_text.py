"""Trains a model on a text for some seconds and generates text with it.

python examples/write_text.py [TEXT [SECONDS]]
"""

import pathlib
import sys

import penstock

HERE = pathlib.Path(__file__).parent


def main(path=HERE.parent / "README.md", seconds=5.0):
    data = penstock.open_text(path)
    model = penstock.Model(data, cell="mingru", width=64, blocks=2)
    result = penstock.train(model, data, seconds=seconds, batch=16, length=64)
    held_out = penstock.evaluate(model, data)
    print(f"{result.last.step} steps, {held_out.bits_per_step:.2f} bits a byte of what was held out")
    text = model.generate("The ", 200, seed=1)
    print("The " + text.decode(errors="replace"))
    return result


if __name__ == "__main__":
    main(*sys.argv[1:2], *(float(seconds) for seconds in sys.argv[2:3]))
