"""Frameworks for which the package has a part of the same name."""

import importlib


def require_framework(module, title, least):
    """Imports a framework. Raises ImportError, which says what to install, without one of `least`, such as (2, 10)."""
    number = ".".join(map(str, least))
    needs, remedy = f"penstock.{module} needs {title} {number} or later", f"pip install '{module}>={number}'"
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:  # the framework is installed, but one of its own dependencies is missing
            raise
        raise ModuleNotFoundError(f"{needs}: {remedy}", name=module) from None
    if tuple(map(int, found.__version__.split(".")[:2])) < least:
        raise ImportError(f"{needs}, not {found.__version__}: {remedy}")
