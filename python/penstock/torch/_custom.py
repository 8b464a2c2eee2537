"""Custom cells in PyTorch: their description, and their equations in operations of PyTorch."""

import functools
import json

import torch
from torch.nn import functional

from penstock import _core, reference

_FUNCTIONS = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
    "multiply_add": lambda a, b, c: a * b + c,
    "subtract_product": lambda a, b, c: c - a * b,
    "exp": lambda x: torch.exp(torch.clamp(x, -87.33, 87.3)),
    "log": torch.log,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
    "relu": torch.relu,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    # torch.minimum halves the gradient in a tie.
    "min": lambda a, b: torch.where((b < a) | b.isnan(), b, a),
    "max": lambda a, b: torch.where((a < b) | b.isnan(), b, a),
    "clamp": lambda x, low, high: torch.where(x < low, low, torch.where(x > high, high, x)),
    "less": lambda a, b: (a < b).to(a.dtype),
    "less_equal": lambda a, b: (a <= b).to(a.dtype),
    "equal": lambda a, b: (a == b).to(a.dtype),
    "where": lambda condition, a, b: torch.where(condition != 0, a, b),
}


def describe_cell(cell, text=None):
    """Returns the name of a cell and its JSON text, None for Penstock's own. `text` makes it known first."""
    if text is not None:
        _core.define_cell(text, "cell")
    name = str(cell)
    return name, _core.cell_json(name) if name not in {each["name"] for each in _core.cells()} else None


def learnt_vectors(cell):
    """Returns the number of learnt vectors of a cell."""
    return _core.find_cell(cell)["learnt"]


def initial_values(text):
    """Returns the initial values of the learnt vectors of a cell's JSON text."""
    return [each["initial"] for each in json.loads(text)["learnt"]] if text else []


@functools.cache
def _read(cell):
    return json.loads(_core.cell_json(cell))


def _mean(x, heads):
    parts = x.unflatten(-1, (heads, -1))
    return parts.mean(-1, keepdim=True).expand_as(parts).flatten(-2)


def _evaluate(given, leaves, heads=1):
    """Returns the outputs of a cell's graph, as _read() does; `leaves` has a list of tensors by operation."""
    like = leaves["input"][0]
    values = []
    for node in given["nodes"]:
        if node["op"] == "constant":
            values.append(like.new_full((), node["value"]))  # a tensor of a number could not be exported
        elif "index" in node:
            values.append(leaves[node["op"]][node["index"]])
        elif node["op"] == "mean":
            values.append(_mean(values[node["of"][0]].expand_as(like), heads))
        else:
            values.append(_FUNCTIONS[node["op"]](*(values[i] for i in node["of"])))
    return tuple(values[i].expand_as(like) for i in given["outputs"])


def split_bias(cell, bias, gates):
    """Returns the part of `bias` that is the gates', and the learnt vectors behind it [K, H]."""
    vectors = 0 if cell in reference.CELLS else learnt_vectors(cell)
    if not vectors:
        return bias, ()
    hidden = len(bias) // (gates + vectors)
    return bias[: gates * hidden], bias[gates * hidden :].view(vectors, hidden)


def custom_terms(cell, wx, learnt):
    """Returns a and b of a scan cell for its gates and learnt vectors."""
    return _evaluate(_read(cell), {"input": wx, "learnt": learnt})


def custom_step(cell, learnt, heads):
    """Returns the step of a cell as penstock.reference has steps."""

    given = _read(cell)  # not within a step, which an exporter traces

    def step(_, wx, recurrent, *states):
        leaves = {"input": wx, "recurrent": recurrent(states[0]), "state": states, "learnt": learnt}
        return _evaluate(given, leaves, heads)

    def terms(_, wx):
        return _evaluate(given, {"input": wx, "learnt": learnt})

    return reference._step_of(terms) if given["kind"] == "scan" else step
