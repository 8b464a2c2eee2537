"""``python -m penstock.serve MODEL``: starts Ray Serve, or writes a repository of NVIDIA Triton."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import penstock

from . import Options, build


def parser() -> argparse.ArgumentParser:
    """Returns the options: those of :class:`penstock.serve.Options`, and those below."""
    made = argparse.ArgumentParser("python -m penstock.serve", description=__doc__.replace("``", ""))
    made.add_argument("model", help="file of the model")
    ray = made.add_argument_group("Ray Serve")
    ray.add_argument("--host", default="127.0.0.1", help="address to listen at; 0.0.0.0: all (default %(default)s)")
    ray.add_argument("--port", type=int, default=8000, help="port to listen at (default %(default)s)")
    for field in dataclasses.fields(Options):
        if field.name != "model":
            ray.add_argument(
                "--" + field.name.replace("_", "-"), type=type(field.default), default=field.default,
                help=field.metadata["help"] + " (default %(default)s)",
            )  # fmt: skip
    triton = made.add_argument_group("Triton")
    text = "write a model repository here and end; --streams and --keep-s apply"
    triton.add_argument("--triton", metavar="FOLDER", help=text)
    triton.add_argument("--name", help="name of the model there (default: that of the file)")
    triton.add_argument("--max-batch", type=int, default=64, help="sequences of a batch (default %(default)s)")
    text = "inputs and outputs are normalised, not in the units of the data"
    triton.add_argument("--normalised", action="store_true", help=text)
    triton.add_argument("--group", default="", help="the series that gives the units, in a model of many series")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    options = parser().parse_args(arguments)
    try:
        if options.triton is not None:
            from ._triton import write_repository

            place = write_repository(
                penstock.Model.load(options.model), options.triton, options.name or Path(options.model).stem,
                normalised=options.normalised, group=options.group, max_batch=options.max_batch,
                streams=options.streams, idle_s=options.keep_s,
            )  # fmt: skip
            print(f"{place}: tritonserver --model-repository={options.triton}")
            return 0
        application = build({each.name: getattr(options, each.name) for each in dataclasses.fields(Options)})
        penstock.Model.load(options.model)  # a file that cannot be read is an error here, not in a replica
        from ray import serve

        serve.start(http_options={"host": options.host, "port": options.port})
        serve.run(application, blocking=True)
    except (penstock.Error, ModuleNotFoundError) as error:
        print(f"penstock.serve: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
