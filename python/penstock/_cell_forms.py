"""Numbers, shapes and equations of cells, for the bindings of array libraries: PyTorch and JAX."""

import ctypes
import functools
import json

from . import _core, reference
from .errors import InvalidArgument


class _Cells(dict):
    """Penstock's cells, and custom cells, which are looked up when they are first asked for."""

    def __contains__(self, name):
        try:
            self[name]
        except InvalidArgument:
            return False
        return True

    def __missing__(self, name):
        found = _core.find_cell(name)
        self[name] = found["gates"], found["states"], found["scan"]
        return self[name]


#: By cell: number of gates G, number of states S (state 0 is the output h), and True if it has no recurrent matrix.
CELLS = _Cells({name: (gates, states, name in reference.TERMS) for name, (_, gates, states) in reference.CELLS.items()})


def parameter_shapes(cell, inputs, hidden, heads, bias):
    """Returns {name: shape} of the parameters of one direction of a layer. `bias` is "none", "single" or "both"."""
    gates, _, scans = CELLS[cell]
    shapes = {"weight_ih": (gates * hidden, inputs)}
    if not scans:
        whole = (gates * hidden, hidden)
        shapes["weight_hh"] = whole if heads == 1 else (heads, gates * hidden // heads, hidden // heads)
    if bias != "none":
        shapes["bias_ih"] = ((gates + learnt_vectors(cell)) * hidden,)
    if bias == "both" and not scans:
        shapes["bias_hh"] = (gates * hidden,)
    return shapes


def starts_again_on_gpu(cell, head, major):
    """Returns whether kernels of a GPU start rows again at given states: those of scan cells, of clusters and of a chip.
    `head` is the number of units, `major` the first number of the GPU's compute capability."""
    # A Hopper holds the matrix of such a head in float32, whichever of these cells it is.
    dense = major == 9 and head <= 1024 and cell in ("elman", "elman-relu", "gru", "lstm", "slstm")
    return dense or CELLS[cell][2]


class CallNumbers(ctypes.Structure):
    """The numbers that determine the form of a call, as python/src/frameworks/call_numbers.h has them."""

    NUMBERS = ("input", "hidden", "heads", "layers", "bidirectional", "biases", "type", "weight_type", "rows", "steps",
               "positions", "lengths", "reset", "batch_first", "every_state", "restarts", "cuda")  # fmt: skip
    _fields_ = [("cell", ctypes.c_char_p), *((name, ctypes.c_int64) for name in NUMBERS)]


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


def split_bias(cell, bias, gates):
    """Returns the part of `bias` that is the gates', and the learnt vectors behind it [K, H]."""
    vectors = 0 if cell in reference.CELLS else learnt_vectors(cell)
    if not vectors:
        return bias, ()
    hidden = len(bias) // (gates + vectors)
    return bias[: gates * hidden], bias[gates * hidden :].reshape(vectors, hidden)


@functools.cache
def _read(cell):
    return json.loads(_core.cell_json(cell))


def _mean(of, x, heads):
    parts = x.reshape(*x.shape[:-1], heads, -1)
    return of.broadcast_to(parts.mean(-1, keepdims=True), parts.shape).reshape(x.shape)


#: The operations of custom cells that are no function of `of`.
_OPERATIONS = {
    "add": lambda of, a, b: a + b,
    "subtract": lambda of, a, b: a - b,
    "multiply": lambda of, a, b: a * b,
    "divide": lambda of, a, b: a / b,
    "multiply_add": lambda of, a, b, c: a * b + c,
    "subtract_product": lambda of, a, b, c: c - a * b,
    "exp": lambda of, x: of.exp(of.clip(x, -87.33, 87.3)),
    # The frameworks' own minimum and maximum halve the gradient in a tie.
    "min": lambda of, a, b: of.where((b < a) | of.isnan(b), b, a),
    "max": lambda of, a, b: of.where((a < b) | of.isnan(b), b, a),
    "clamp": lambda of, x, low, high: of.where(x < low, low, of.where(x > high, high, x)),
    "less": lambda of, a, b: of.cast(a < b, a),
    "less_equal": lambda of, a, b: of.cast(a <= b, a),
    "equal": lambda of, a, b: of.cast(a == b, a),
    "where": lambda of, condition, a, b: of.where(condition != 0, a, b),
}


def _evaluate(of, given, leaves, heads=1):
    """Returns the outputs of a cell's graph, as _read() does; `leaves` has a list of arrays by operation.

    `of` has the functions of cells for a framework's arrays, as penstock.reference, and those that custom cells use.
    """
    like = leaves["input"][0]
    values = []
    for node in given["nodes"]:
        name = node["op"]
        if name == "constant":
            values.append(of.constant(node["value"], like))
        elif "index" in node:
            values.append(leaves[name][node["index"]])
        elif name == "mean":
            values.append(_mean(of, of.broadcast_to(values[node["of"][0]], like.shape), heads))
        else:
            operands = [values[i] for i in node["of"]]
            values.append(_OPERATIONS[name](of, *operands) if name in _OPERATIONS else getattr(of, name)(*operands))
    return tuple(of.broadcast_to(values[i], like.shape) for i in given["outputs"])


def custom_terms(of, cell, wx, learnt):
    """Returns a and b of a scan cell for its gates and learnt vectors."""
    return _evaluate(of, _read(cell), {"input": wx, "learnt": learnt})


def custom_step(cell, learnt, heads):
    """Returns the step of a cell as penstock.reference has steps."""

    given = _read(cell)  # not within a step, which an exporter traces

    def step(of, wx, recurrent, *states):
        leaves = {"input": wx, "recurrent": recurrent(states[0]), "state": states, "learnt": learnt}
        return _evaluate(of, given, leaves, heads)

    def terms(of, wx):
        return _evaluate(of, given, {"input": wx, "learnt": learnt})

    return reference._step_of(terms) if given["kind"] == "scan" else step
