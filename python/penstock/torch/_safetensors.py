"""Tensors of PyTorch in safetensors files, read and written without another package."""

import ctypes

import torch

from .._safetensors import read_entries, write_entries

_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def read_safetensors(path):
    """The tensors of a file by their names, and its metadata. Raises BadInput, a ValueError, where the file is not
    sound."""
    entries, metadata = read_entries(path)
    tensors = {}
    for name, (kind, shape, data) in entries.items():
        flat = (
            torch.frombuffer(bytearray(data), dtype=_TYPES[kind]) if len(data) else torch.empty(0, dtype=_TYPES[kind])
        )
        tensors[name] = flat.view(shape)
    return tensors, metadata


def write_safetensors(path, tensors, metadata):
    """Writes a file whole or not at all: under another name first."""
    entries = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        content = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
        entries[name] = (_NAMES[tensor.dtype], tensor.shape, content)
    write_entries(path, entries, metadata)
