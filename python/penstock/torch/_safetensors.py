"""Files of named tensors with text beside them (safetensors), read and written without another package."""

import ctypes
import json
import os
import pathlib
import struct
import tempfile

import torch

_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def read_safetensors(path):
    """The tensors of a file by their names, and its metadata. Raises ValueError where the file is not sound."""
    content = pathlib.Path(path).read_bytes()

    def require(condition, problem):
        if not condition:
            raise ValueError(f"{path}: {problem}")

    require(len(content) >= 8, "too short for a safetensors file")
    (size,) = struct.unpack_from("<Q", content)
    require(size <= len(content) - 8, "its header is longer than the file")
    try:
        header = json.loads(content[8 : 8 + size])
    except ValueError as error:
        raise ValueError(f"{path}: its header is no JSON") from error
    require(isinstance(header, dict), "its header is no object")
    metadata = header.pop("__metadata__", {})
    data = bytearray(content[8 + size :])
    tensors = {}
    for name, entry in header.items():
        try:
            dtype, shape, (begin, end) = _TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
            count = 1
            for extent in shape:
                require(isinstance(extent, int) and extent >= 0, f"tensor {name} has an impossible shape")
                count *= extent
            require(0 <= begin <= end <= len(data), f"tensor {name} lies outside the file")
            require(end - begin == count * dtype.itemsize, f"tensor {name} has another size than its shape")
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: tensor {name} is described wrongly") from error
        flat = torch.frombuffer(data, dtype=dtype, count=count, offset=begin) if count else torch.empty(0, dtype=dtype)
        tensors[name] = flat.clone().view(shape)
    return tensors, metadata


def write_safetensors(path, tensors, metadata):
    """Writes a file whole or not at all: under another name first."""
    header, offset, parts = {"__metadata__": metadata}, 0, []
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        part = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(part)],
        }
        offset += len(part)
        parts.append(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = pathlib.Path(path)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(struct.pack("<Q", len(text)) + text)
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise

