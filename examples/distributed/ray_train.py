#!/usr/bin/env python3
"""Trains a model of a text with Ray Train, on so many workers of a Ray cluster.

usage: ray_train.py TEXT OUTPUT [WORKERS] [cpu]

TEXT and OUTPUT lie on a file system that all workers share. A worker that Ray starts again goes on from the last
checkpoint.
"""

import os
import pathlib
import sys

import penstock
import penstock.torch


def train_worker(config: dict[str, str]) -> None:
    """Trains on one worker; Ray has made the process group."""
    data = penstock.open_text(config["text"])
    model = penstock.Model(data, device=config["device"])
    checkpoint = config["output"] + ".checkpoint"
    resume = any(pathlib.Path(checkpoint).glob("step-*/.metadata"))
    penstock.torch.fit(model, data, steps=int(config["steps"]), checkpoint=checkpoint, resume=resume, progress=False)
    if int(os.environ.get("RANK", "0")) == 0:
        model.save(config["output"])


def main() -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    text, output, *more = sys.argv[1:]
    device = "cpu" if "cpu" in more else "cuda"
    workers = int(more[0]) if more and more[0].isdigit() else 2
    config = {"text": os.path.abspath(text), "output": os.path.abspath(output), "device": device, "steps": "10000"}
    trainer = TorchTrainer(
        train_worker,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=device == "cuda"),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=3)),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
