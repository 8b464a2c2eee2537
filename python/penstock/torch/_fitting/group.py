"""The processes (ranks) of a run: how they meet, agree, and say which of them failed."""

from __future__ import annotations

import datetime
import os
import platform
import socket
import threading
import time

import torch
from torch import distributed

from ...errors import Error

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_JOIN_SECONDS = 50.0  # in which all ranks have to meet
_SLACK_SECONDS = 8.0  # that PyTorch may take longer to say that they have not
_COLLECTIVE_SECONDS = 1800.0  # a validation of rank 0 alone may take long; the watch sees who is gone much sooner


class RankFailure(Error, RuntimeError):
    """A rank of a run with several processes has failed, ended or differs. The message names it and the remedy."""


def rank_name(rank, size, host="", process=0):
    """Returns "rank 1 of 2 (host, process 123)"."""
    place = f" ({host}, process {process})" if host else ""
    return f"rank {rank} of {size}{place}"


class Group:
    """The ranks of a run. Without torchrun or another launcher there is one, and nothing is exchanged.

    Attributes:
        rank: The number of this process.
        size: The number of processes.
        device: The device of this rank, a ``torch.device``.
    """

    def __init__(self, device: str) -> None:
        if not distributed.is_available():
            raise RankFailure("this PyTorch has no torch.distributed: install one that has")
        if not distributed.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            _join(device)
        self.joined = distributed.is_initialized()
        self.rank = distributed.get_rank() if self.joined else 0
        self.size = distributed.get_world_size() if self.joined else 1
        self.objects = distributed.new_group(backend="gloo") if self.size > 1 else None
        self.device = torch.device("cpu")  # until the ranks agree
        self.device = self.together(lambda: _device_of_rank(device, self.rank))
        self.files = distributed.new_group(backend="gloo") if self.size > 1 else None  # of a thread that saves

    def __str__(self) -> str:
        return rank_name(self.rank, self.size, platform.node(), os.getpid())

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Adds up a tensor over the ranks, in place."""
        if self.size > 1:
            distributed.all_reduce(values)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Returns what each rank gave."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        distributed.all_gather_object(values, value, self.objects)
        return values

    def from_first(self, value: Any) -> Any:
        """Returns what rank 0 gave."""
        if self.size == 1:
            return value
        values = [value]
        distributed.broadcast_object_list(values, 0, self.objects)
        return values[0]

    def together(self, work: Callable[[], Any]) -> Any:
        """Returns the result of work(). If it fails on one rank, all raise, and the others name that rank."""
        error, result = None, None
        try:
            result = work()
        except Exception as raised:  # raised again below, once the other ranks know
            error = raised
        failures = self.gather(None if error is None else f"{self}: {error}")
        if error is not None:
            raise error
        first = next((text for text in failures if text is not None), None)
        if first is not None:
            raise RankFailure(first)
        return result

    def agree(self, facts: Mapping[str, tuple[Any, str]]) -> None:
        """Raises RankFailure on every rank unless all give the same. ``facts`` has {name: (value, remedy)}."""
        everyone = self.gather((str(self), {name: value for name, (value, _) in facts.items()}))
        _, expected = everyone[0]
        for name, (_, remedy) in facts.items():
            for who, found in everyone:
                if found[name] != expected[name]:
                    raise RankFailure(f"{who} has {name} {found[name]}, rank 0 has {expected[name]}: {remedy}")


def _device_of_rank(device, rank):
    if device != "cuda":
        return torch.device(device)
    local = int(os.environ.get("LOCAL_RANK", rank % max(1, torch.cuda.device_count())))
    if torch.cuda.device_count() == 0:
        raise RankFailure(f"PyTorch {torch.__version__} sees no GPU on {platform.node()}: take the device 'cpu'")
    if local >= torch.cuda.device_count():
        raise RankFailure(
            f"rank {rank} is process {local} of its host, which has {torch.cuda.device_count()} GPUs: start as many "
            "processes as there are GPUs (--nproc-per-node)"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _join(device):
    """Makes the process group of a launcher, whose environment variables name rank 0's address."""
    rank, size = os.environ.get("RANK", "0"), os.environ["WORLD_SIZE"]
    device = device if torch.cuda.is_available() else "cpu"  # _device_of_rank refuses a GPU that is not there, on all ranks
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    try:
        store, number, count = _meet()
        wait = datetime.timedelta(seconds=_COLLECTIVE_SECONDS)
        distributed.init_process_group(backend, store=store, rank=number, world_size=count, timeout=wait)
    except (RuntimeError, ValueError) as error:
        why = _why_alone(error, rank, size)
        raise RankFailure(f"{rank_name(rank, size, platform.node(), os.getpid())}: {why}") from error


def _meet():
    """Returns the store of rank 0, this rank and the number of ranks. A thread waits, because PyTorch waits without an
    end for a program that takes the connection and says nothing."""
    results: list[Any] = []

    def meet():
        try:
            results.append(next(distributed.rendezvous("env://", timeout=datetime.timedelta(seconds=_JOIN_SECONDS))))
        except Exception as error:  # raised below
            results.append(error)

    thread = threading.Thread(target=meet, name="penstock-meet", daemon=True)
    thread.start()
    thread.join(_JOIN_SECONDS + _SLACK_SECONDS)
    if not results:
        raise RuntimeError("the port is already in use" if _is_open_port() else "no connection")
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def _is_open_port():
    """Returns whether some program takes connections where rank 0 should be."""
    try:
        socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 1.0).close()
    except (OSError, KeyError, ValueError):
        return False
    return True


def _why_alone(error, rank, size):
    address, port = os.environ.get("MASTER_ADDR", "?"), os.environ.get("MASTER_PORT", "?")
    text = str(error)
    if "EADDRINUSE" in text or "already in use" in text:
        return (
            f"port {port} of {address} is in use: end the program that has it, or give every rank another one "
            "(--master-port of torchrun, MASTER_PORT)"
        )
    if isinstance(error, ValueError):
        return f"{text.rstrip('.')}: start by torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    if rank == "0":
        return (
            f"not all of {size} ranks came to {address}:{port} within {_JOIN_SECONDS:.0f} s ({text.splitlines()[0][:200]}): "
            "see what the others say, start all of them, and give each the address of rank 0 (MASTER_ADDR, MASTER_PORT)"
        )
    return (
        f"rank 0 does not answer at {address}:{port} ({text.splitlines()[0][:200]}): start all ranks within "
        f"{_JOIN_SECONDS:.0f} s, and give each the address of rank 0 (MASTER_ADDR, MASTER_PORT)"
    )


def is_of_a_peer(error: BaseException) -> bool:
    """Returns True for an error of a collective, which another rank has caused."""
    if isinstance(error, (distributed.DistError, RankFailure)):
        return True
    text = str(error)
    words = (
        "gloo",
        "NCCL",
        "Connection closed by peer",
        "Connection reset by peer",
        "Broken pipe",
        "Timed out waiting",
    )
    return isinstance(error, RuntimeError) and any(word in text for word in words)


def wait_until(found: Callable[[], Any], seconds: float) -> Any:
    """Returns the first true result of found(), asked again and again, or None after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = found()
        if result:
            return result
        time.sleep(0.1)
    return None
