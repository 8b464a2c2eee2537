#!/usr/bin/env python3
"""Trains a model of a text with Ray Train, on so many workers of a Ray cluster.

usage: ray_train.py TEXT OUTPUT [--workers N] [--steps N] [--device cpu]

TEXT and OUTPUT lie on a file system that all workers share. A worker that Ray starts again goes on from the last
checkpoint.
"""

import argparse
import os
import pathlib

import penstock
import penstock.torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


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
    parser = argparse.ArgumentParser(description="Trains a model of a text with Ray Train.")
    parser.add_argument("text")
    parser.add_argument("output")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", default="10000")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given = parser.parse_args()
    paths = {"text": os.path.abspath(given.text), "output": os.path.abspath(given.output)}
    trainer = TorchTrainer(
        train_worker,
        train_loop_config={**paths, "steps": given.steps, "device": given.device},
        scaling_config=ScalingConfig(num_workers=given.workers, use_gpu=given.device == "cuda"),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=3)),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
