"""Checkpoints of a run in a folder, by torch.distributed.checkpoint: written beside the training, bounded in number."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.distributed import checkpoint as dcp

from ...errors import BadInput, Incompatible, InvalidArgument, IoFailure
from .group import RankFailure

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from concurrent.futures import Future
    from typing import Any

    from .group import Group

_FORMAT = 1
_NOTES = "run.json"
_COMPLETE = ".metadata"  # which torch.distributed.checkpoint writes last


def _alike(copy, tensor):
    return copy is not None and copy.shape == tensor.shape and copy.dtype == tensor.dtype


class Checkpoints:
    """The checkpoints in ``folder``: one subfolder ``step-N`` each, with the tensors of all ranks and ``run.json``.

    Args:
        folder: The folder, on a file system that all ranks share.
        keep: How many complete checkpoints stay; older ones are removed once a newer one is complete.
        group: The ranks.
    """

    def __init__(self, folder: str, keep: int, group: Group) -> None:
        self.folder, self._keep, self._group = folder, keep, group
        self._writer = ThreadPoolExecutor(1, "penstock-checkpoint")
        self._running: Future[str] | None = None
        self._copies: dict[str, torch.Tensor] = {}  # written over by the next checkpoint: new memory takes longer
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise InvalidArgument(
                f"checkpoint {folder} is a file, such as penstock train writes: give a folder, or a name that is free"
            )

    def check_shared(self) -> None:
        """Raises unless every rank sees what rank 0 writes into the folder. Collective.

        Raises:
            RankFailure: A rank does not.
            IoFailure: Rank 0 cannot write there.
        """
        if self._group.size == 1:
            return
        marker = os.path.join(self.folder, self._group.from_first(f".rank-0-{os.getpid()}"))
        try:
            self._group.together(lambda: self._mark(marker))
            self._group.together(lambda: self._find(marker))
        finally:
            if self._group.rank == 0 and os.path.exists(marker):
                os.remove(marker)

    def _mark(self, marker):
        if self._group.rank == 0:
            try:
                os.makedirs(self.folder, exist_ok=True)
                with open(marker, "w"):
                    pass
            except OSError as failure:
                raise IoFailure(f"checkpoint {self.folder}: {failure.strerror}; give a folder that can be written") from failure

    def _find(self, marker):
        if not os.path.exists(marker):
            raise RankFailure(
                f"checkpoint {self.folder} is not the folder that rank 0 sees: give one on a file system that all hosts share"
            )

    def save(self, step: int, tensors: dict[str, torch.Tensor], notes: dict[str, Any], wait: bool) -> str:
        """Begins to write a checkpoint, once an earlier one is complete. Collective.

        Args:
            step: Number of the step.
            tensors: Of this rank: parts of whole ones (DTensors), equal copies, or tensors with names of their own.
            notes: What is not a tensor; those of rank 0 are written.
            wait: True: returns when the checkpoint is complete.

        Returns:
            Why an earlier checkpoint, or with ``wait`` this one, could not be written. Empty if it was.
        """
        error = self.finish()
        path = os.path.join(self.folder, f"step-{step:09d}")
        begun = self._begin(path, notes)
        if begun:
            return begun
        self._running = self._writer.submit(self._write, path, self._owned(tensors))
        return self.finish() if wait else error

    def _write(self, path, tensors):
        """Writes a checkpoint and removes old ones, on a thread. Returns why it could not."""
        alone, error = self._group.size == 1, ""
        if alone:  # PyTorch warns that there is only one rank
            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        try:
            with _beside(self._group.device):
                dcp.save(tensors, checkpoint_id=path, process_group=self._group.files, no_dist=alone)
        except (Exception, dcp.CheckpointException) as failure:  # which is no Exception
            error = self._text(path, _first_failure(failure, self._group))
        if self._group.rank == 0 and error:
            shutil.rmtree(path, ignore_errors=True)
        elif self._group.rank == 0:
            self._remove_old()
        return error

    def _owned(self, tensors):
        """Returns copies of the tensors, which the next step changes."""
        if self._group.device.type == "cuda":
            copies = {name: t.detach().clone() for name, t in tensors.items()}
            torch.cuda.current_stream().synchronize()  # the thread's stream does not wait for them
            return copies
        before = self._copies
        self._copies = {
            name: before[name].copy_(t.detach()) if _alike(before.get(name), t) else t.detach().clone()
            for name, t in tensors.items()
        }
        return self._copies

    def _begin(self, path, notes):
        """Writes the notes on rank 0. Returns why it could not, on every rank."""
        error = ""
        if self._group.rank == 0:
            try:
                shutil.rmtree(path, ignore_errors=True)  # of an earlier run that did not complete it
                os.makedirs(path)
                with open(os.path.join(path, _NOTES), "w") as file:
                    json.dump({"format": _FORMAT, **notes}, file)
            except OSError as failure:
                error = self._text(path, f"{self._group}: {failure}")
        return self._group.from_first(error)

    def finish(self) -> str:
        """Waits for the checkpoint that is being written. Returns why it could not be; empty if it was. Collective."""
        running, self._running = self._running, None
        return "" if running is None else running.result()

    def close(self) -> None:
        """Waits for the checkpoint that is being written if this is the only rank: others may have ended before theirs."""
        self._writer.shutdown(wait=self._group.size == 1)

    def _text(self, path, why):
        return f"no checkpoint {path}: {why}; make room or give another folder; earlier checkpoints are unharmed"

    def _remove_old(self):
        for path in complete(self.folder)[: -self._keep]:
            shutil.rmtree(path, ignore_errors=True)

    def notes(self, identity: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Returns the path and the notes of the latest checkpoint. Collective.

        Raises:
            IoFailure: There is none.
            BadInput: It lacks files.
            Incompatible: It is of a run with another ``identity``.
        """
        path = self._group.from_first(complete(self.folder)[-1:])
        if not path:
            raise IoFailure(f"resume: there is no complete checkpoint in {self.folder}")
        notes = self._group.together(lambda: _read(path[0]))
        for name, value in identity.items():
            if notes["identity"].get(name) != value:
                raise Incompatible(
                    f"checkpoint {path[0]} is of a run with {name} = {notes['identity'].get(name)!r}, not {value!r}: "
                    "give the options of that run"
                )
        return path[0], notes

    def load(self, path: str, tensors: dict[str, torch.Tensor]) -> None:
        """Reads tensors in place, for any number of ranks. Collective.

        Raises:
            Incompatible: The checkpoint has no such tensor, or one of another shape.
        """
        known = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
        for name, tensor in tensors.items():
            found = tuple(getattr(known.get(name), "size", ()))
            if name not in known or found != tuple(tensor.shape):
                raise Incompatible(
                    f"checkpoint {path} has no {name} of shape {list(tensor.shape)}: give the same model"
                )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                dcp.load(tensors, checkpoint_id=path, process_group=self._group.files, no_dist=self._group.size == 1)
            except dcp.CheckpointException as failure:
                why = _first_failure(failure, self._group)
                raise BadInput(
                    f"checkpoint {path} cannot be read: {why}; remove it to go on from an earlier one"
                ) from failure

    def names(self, path: str) -> set[str]:
        """Returns the names of the tensors of a checkpoint."""
        return set(dcp.FileSystemReader(path).read_metadata().state_dict_metadata)


def _beside(device):
    """Returns a context in which copies from a GPU do not wait for its training, nor training for them."""
    return torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else contextlib.nullcontext()


def complete(folder: str) -> list[str]:
    """Returns the paths of the complete checkpoints of a folder, oldest first."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = [os.path.join(folder, name) for name in names if name.startswith("step-")]
    return [path for path in paths if os.path.exists(os.path.join(path, _COMPLETE))]


def remove(folder: str) -> None:
    """Removes all checkpoints of a folder, and the folder if nothing else is in it."""
    for path in complete(folder):
        shutil.rmtree(path, ignore_errors=True)
    try:
        os.rmdir(folder)
    except OSError:
        pass  # something else is in it, or it was never made


def _read(path):
    """Returns the notes of a checkpoint, all of whose files have to be there."""
    missing = []
    try:
        with open(os.path.join(path, _NOTES)) as file:
            notes = json.load(file)
        stored = dcp.FileSystemReader(path).read_metadata().storage_data or {}
        files = {place.relative_path for place in stored.values()}
        missing = sorted(name for name in files if not os.path.exists(os.path.join(path, name)))
    except FileNotFoundError as error:
        missing = [os.path.basename(error.filename or path)]
    except (ValueError, OSError, EOFError) as error:
        raise BadInput(
            f"checkpoint {path} cannot be read: {error}; remove its folder to go on from an earlier one"
        ) from error
    if missing:
        raise BadInput(
            f"checkpoint {path} lacks {', '.join(missing[:3])}: put the files of all ranks into one folder that every "
            "host sees, or remove it to go on from an earlier one"
        )
    if notes.get("format") != _FORMAT:
        raise Incompatible(f"checkpoint {path} has format {notes.get('format')}, this version reads {_FORMAT}")
    return notes


def _first_failure(failure, group):
    """Returns the rank that could not write, and why."""
    failures = getattr(failure, "failures", None)
    if not failures:
        return f"{group}: {failure}"
    rank, (error, _) = next(iter(failures.items()))
    return f"rank {rank} of {group.size}: {error}"
