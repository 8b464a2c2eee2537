"""Reads and writes safetensors files: named arrays and metadata, as one file or as shards with an index."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import re
import struct

import numpy as np

from . import _core
from .errors import BadInput, InvalidArgument, IoFailure

_ARRAYS = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
_CHECKSUM = "penstock.checksum"  # checksum of files that the library wrote; it verifies them
_CHECKED = "penstock.checked"  # marks files that must have a checksum, as in src/core/io/safetensors.h
_CHECKED_TEXT = "a checksum of all bytes"
_NAMES = {np.dtype(code): name for name, code in _ARRAYS.items()}
_MOST_AXES = 32  # limit of NumPy before version 2
# First bytes of other kinds of files, and hints about them.
_OTHERS = {
    b"PK\x03\x04": "a zip archive, as torch.save and Keras write them",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file, as Keras writes them (.h5)",
    b"\x80\x02": "a pickle, as torch.save wrote them before 2020",
    b"\x93NUMPY": "an array of NumPy: read it by numpy.load",
    b"\x1f\x8b": "compressed by gzip: decompress it first",
    b"version https://git-lfs": "a pointer of Git LFS and not the file itself: git lfs pull fetches that",
}
_INDEX = ".safetensors.index.json"


def other_kind(content):
    """Returns a description of a file that begins with these bytes; None if its kind is unknown."""
    return next((text for start, text in _OTHERS.items() if content.startswith(start)), None)


def read_entries(path):
    """Returns {name: (type, shape, bytes)} of one file, and its metadata.

    Raises:
        BadInput: The file is damaged or of another kind.
        IoFailure: The file cannot be read.
    """
    try:
        entries, metadata = _core.read_tensors(os.fspath(path))
    except BadInput as error:
        with open(path, "rb") as file:
            other = other_kind(file.read(64))
        if other is None:
            raise
        raise BadInput(f"{path}: no safetensors file: {other}") from error
    for name, (_, shape, _) in entries.items():
        if len(shape) > _MOST_AXES:
            raise BadInput(f"{path}: tensor '{name}' has {len(shape)} axes, and arrays have at most {_MOST_AXES}")
    return entries, metadata


def _array(kind, shape, data):
    if kind == "BF16":  # NumPy has no bfloat16; float32 represents all its values
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, _ARRAYS[kind]).reshape(shape).copy()


def read_file(path):
    """Returns {name: array} of one file, and its metadata."""
    entries, metadata = read_entries(path)
    return {name: _array(*entry) for name, entry in entries.items()}, metadata


def _shards(path):
    """Returns {file: [names of tensors]} of an index."""
    try:
        places = json.loads(pathlib.Path(path).read_bytes())["weight_map"].items()
    except OSError as error:
        raise IoFailure(f"{path}: cannot read: {error.strerror}") from error
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise BadInput(f"{path}: no index of shards: it has no object 'weight_map'") from error
    shards = {}
    for name, file in places:
        if not isinstance(file, str) or file != os.path.basename(file) or not file.endswith(".safetensors"):
            raise BadInput(f"{path}: tensor '{name}' lies in {file!r}, which is not a file beside the index")
        shards.setdefault(file, []).append(name)
    return shards


def read(path):
    """Returns {name: array} and the metadata of a file, of the shards of an index, or of a folder with either."""
    path = pathlib.Path(path)
    if path.is_dir():
        found = sorted(path.glob("*" + _INDEX)) or sorted(path.glob("*.safetensors"))
        if len(found) != 1:
            raise BadInput(f"{path}: a folder must hold one .safetensors file or one index, not {len(found)}")
        path = found[0]
    if not path.name.endswith(_INDEX):
        return read_file(path)
    tensors, metadata = {}, {}
    for file, names in _shards(path).items():
        place = path.parent / file
        if place.exists() and not place.is_file():
            raise BadInput(f"{path}: {file} is not a regular file")
        part, own = read_file(place)
        metadata |= own
        for name in names:
            if name not in part:
                raise BadInput(f"{path}: {file} has no tensor '{name}'")
            tensors[name] = part[name]
    return tensors, metadata


def write_entries(path, entries, metadata=None):
    """Writes {name: (type, shape, bytes)} as one file with a checksum in its metadata, atomically."""
    zeros = "0" * 16
    header = {"__metadata__": {_CHECKSUM: zeros, _CHECKED: _CHECKED_TEXT, **(metadata or {})}}
    offset = 0
    for name in sorted(entries):
        kind, shape, data = entries[name]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    pieces = [struct.pack("<Q", len(text)) + text, *(bytes(entries[name][2]) for name in sorted(entries))]
    digits = _core.checksum_of(pieces)
    pieces[0] = pieces[0].replace(f'"{_CHECKSUM}":"{zeros}"'.encode(), f'"{_CHECKSUM}":"{digits}"'.encode(), 1)
    _core.write_file(os.fspath(path), pieces, _core.FileKind.tensors)


def write_file(path, tensors, metadata=None):
    """Writes arrays as one file, atomically. Raises InvalidArgument for dtypes that the format does not have."""
    entries = {}
    for name, array in tensors.items():
        array = np.asarray(array)
        dtype = array.dtype.newbyteorder("<")
        if dtype not in _NAMES:
            raise InvalidArgument(f"tensor '{name}' is of type {array.dtype}, which safetensors files do not have")
        entries[name] = (_NAMES[dtype], array.shape, array.astype(dtype, copy=False).tobytes())
    write_entries(path, entries, metadata)


def _shards_before(index):
    """Returns the files of an existing index; an empty set if it is damaged or missing."""
    try:
        return set(_shards(index)) if index.is_file() else set()
    except (BadInput, IoFailure):
        return set()


def _shard_names(stem, count, taken):
    """Returns unused names of shards: NAME-00001-of-00003.safetensors, or NAME-2-00001-of-00003.safetensors."""
    for mark in itertools.chain([""], (f"{number}-" for number in itertools.count(2))):
        names = [f"{stem}-{mark}{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
        if taken.isdisjoint(names):
            return names


def _remove_older(files):
    """Removes what an older save under the same name has left, so that nobody reads it in place of the new file."""
    for file in files:
        try:
            if file.is_file():
                file.unlink()
        except OSError as error:
            raise IoFailure(f"{file}: a part of the older file cannot be removed: {error.strerror}") from error


def write(path, tensors, metadata=None, max_shard_bytes=None):
    """Writes one file, or shards with an index if it would be larger than max_shard_bytes.

    Files that an older call wrote under the same name in the other form are removed afterwards.
    """
    if max_shard_bytes is not None and max_shard_bytes <= 0:
        raise InvalidArgument(f"max_shard_bytes must be positive, not {max_shard_bytes}")
    path = pathlib.Path(path)
    sizes = {name: np.asarray(array).nbytes for name, array in tensors.items()}
    index = path.with_name(path.stem + _INDEX)
    before = _shards_before(index)
    ours = re.compile(re.escape(path.stem) + r"-(\d+-)?\d{5}-of-\d{5}\.safetensors")
    older = {name for name in before if ours.fullmatch(name)}
    if max_shard_bytes is None or sum(sizes.values()) <= max_shard_bytes:
        write_file(path, tensors, metadata)
        if path.suffix == ".safetensors" and older and older == before:
            _remove_older([index, *(path.parent / name for name in sorted(older))])
        return
    if path.suffix != ".safetensors":
        raise InvalidArgument(f"the name of a file in shards must end in .safetensors, not '{path.name}'")
    shards, room = [], 0
    for name in sorted(tensors):
        if not shards or sizes[name] > room:
            shards.append({})
            room = max_shard_bytes
        shards[-1][name] = tensors[name]
        room -= sizes[name]
    _core.check_output(os.fspath(path), _core.FileKind.tensors)
    _core.check_output(os.fspath(index), _core.FileKind.shards)
    # Older files stay until the new index is in place: at any time one of both versions is complete.
    places = {}
    names = _shard_names(path.stem, len(shards), before)
    for name, shard in zip(names, shards):
        write_file(path.parent / name, shard, metadata)
        places |= dict.fromkeys(shard, name)
    content = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": places}
    _core.write_file(os.fspath(index), [json.dumps(content, indent=2).encode()], _core.FileKind.shards)
    _remove_older([path, *(path.parent / name for name in sorted(older.difference(names)))])
