"""HDF5 files: opens them with checks that the HDF5 library lacks, and finds the groups of Keras' cells."""

from __future__ import annotations

import io
import mmap
import os
import struct

from ..errors import BadInput, IoFailure, Unsupported

DEEPEST = 32  # largest depth of nested groups and nested layers; files of Keras need about eight


def h5py_package():
    try:
        import h5py
    except ImportError as error:
        raise Unsupported("files of Keras need the package h5py: pip install h5py") from error
    return h5py


def _check_heaps(content, source):
    """Refuses global heap collections with an object of size 0, on which the HDF5 library loops forever."""
    place = -1
    while (place := content.find(b"GCOL\1\0\0\0", place + 1)) >= 0:
        (size,) = struct.unpack("<Q", content[place + 8 : place + 16].ljust(8, b"\0"))
        at, end = place + 16, place + size
        while at + 16 <= min(end, len(content)):
            index, length = struct.unpack("<H6xQ", content[at : at + 16])
            taken = length if index == 0 else 16 + (length + 7) // 8 * 8  # object 0 is free space, including its header
            if taken < 16 or at + taken > end:
                raise BadInput(f"{source}: damaged: object {index} of the heap at byte {place} has {length} bytes")
            at += taken


def opened(file, source):
    """Opens an HDF5 file, given by its path or by bytes in memory."""
    if isinstance(file, io.BytesIO):
        _check_heaps(file.getvalue(), source)
    elif os.path.getsize(file) > 0:
        with open(file, "rb") as own, mmap.mmap(own.fileno(), 0, access=mmap.ACCESS_READ) as content:
            _check_heaps(content, source)
    try:
        return h5py_package().File(file, "r")
    except FileNotFoundError as error:
        raise IoFailure(f"{source}: cannot read: there is no such file") from error
    except OSError as error:
        raise BadInput(f"{source}: no HDF5 file") from error


def cell_groups(group, found, limits, seen, depth=0):
    """Appends the groups with the variables of a cell to `found`, and returns it.

    These are "cell/vars" of Keras 3, and groups with a recurrent kernel in the older format. A group with several links
    counts once, at the first.
    """
    h5py = h5py_package()
    place = h5py.h5o.get_info(group.id)
    if (place.fileno, place.addr) in seen:
        return found
    seen.add((place.fileno, place.addr))
    if depth > DEEPEST:
        raise BadInput(f"{limits.path}: its groups lie more than {DEEPEST} deep in each other")
    for name in group:
        limits.step()
        # Links into other files are not followed.
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        if not isinstance(item, h5py.Group):
            continue
        inside = "cell" in group.name.split("/") and name == "vars" and len(item) > 1
        if "recurrent_kernel:0" in item or "recurrent_kernel" in item or inside:
            found.append(item)
        else:
            cell_groups(item, found, limits, seen, depth + 1)
    return found
