"""Weights of recurrent layers with Penstock's names and shapes. All formats convert to and from them."""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from .. import _core
from ..equations import with_equations
from ..errors import BadInput, InvalidArgument

#: By built-in cell: number of gates, and True if it has a recurrent matrix.
GATES = {cell["name"]: (cell["gates"], not cell["scan"]) for cell in _core.cells()}
#: The built-in cell, and its gates, in whose order the formats of other libraries store a cell with so many gates and
#: states: an LSTM with coupled gates has no forget gate.
_BASES = {(4, 2): ("lstm", [0, 1, 2, 3]), (3, 2): ("lstm", [0, 2, 3]), (3, 1): ("gru", [0, 1, 2]), (1, 1): ("elman", [0])}
_NAME = re.compile(r"(weight_ih|weight_hh|bias_ih|bias_hh)_l(0|[1-9][0-9]{0,3})(_reverse)?")


def is_cell(cell):
    """Returns True for the name of a built-in cell or a cell of your own."""
    try:
        return bool(_core.find_cell(cell))
    except InvalidArgument:
        return False


def base_of(cell, known):
    """Returns the built-in cell whose layout the weights of a cell have in other formats, and which gates there are.

    Raises InvalidArgument unless that cell is one of `known`.
    """
    if cell in known:
        return cell, None
    own = _core.find_cell(cell) if cell not in GATES and is_cell(cell) else None
    base = None if own is None or own["scan"] else _BASES.get((own["gates"], own["states"]))
    if base is None or base[0] not in known:
        raise InvalidArgument(
            f"cell must be one of {', '.join(known)}, or a cell of your own with the gates and states of one of them, not "
            f"'{cell}'"
        )
    return base


def of_custom_cell(weights, cell, gates, learnt=()):
    """Returns weights of a built-in cell as those of a variant of it with these gates and learnt vectors [H]."""
    order, hidden, tensors = weights.gates, weights.hidden_size, {}
    for name, array in weights.tensors.items():
        parts = np.split(array, order)
        tensors[name] = np.ascontiguousarray(np.concatenate([parts[gate] for gate in gates]))
    for suffix, vectors in zip(weights.suffixes, learnt):
        bias = tensors.setdefault(f"bias_ih_l0{suffix}", np.zeros(len(gates) * hidden, np.float32))
        tensors[f"bias_ih_l0{suffix}"] = np.concatenate([bias, *vectors])
    return RecurrentWeights(cell, tensors)


def floats(name, array, source="weights"):
    """Returns an array of float32 or float64; float16 becomes float32. Raises BadInput for other types."""
    array = np.asarray(array)
    if array.dtype.kind != "f":
        raise BadInput(f"{source}: tensor '{name}' is of type {array.dtype}, expected floats")
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)


def shape_text(shape):
    return "[" + ", ".join(map(str, shape)) + "]"


def take(tensors, name, source, *shape):
    """Returns an array of floats by its name. `shape` has one number per axis, or None for any.

    Raises BadInput if the tensor is missing or does not fit.
    """
    if name not in tensors:
        raise BadInput(f"{source}: there is no tensor '{name}'")
    array = floats(name, tensors[name], source)
    fits = len(array.shape) == len(shape) and all(e is None or e == a for e, a in zip(shape, array.shape))
    if not fits:
        expected = "[" + ", ".join("any" if extent is None else str(extent) for extent in shape) + "]"
        raise BadInput(f"{source}: tensor '{name}' is {shape_text(array.shape)}, expected {expected}")
    return array


def refuse_others(tensors, known, source):
    """Raises BadInput for unknown tensors, which may change what the layer computes."""
    others = sorted(set(tensors) - set(known))
    if others:
        raise BadInput(
            f"{source}: tensor '{others[0]}' is not known" + (f", nor {len(others) - 1} more" if others[1:] else "")
        )


def whole_number_of(count, unit, name, source, what):
    """Returns count / unit. Raises BadInput with the tensor's name unless both are positive and unit divides count."""
    if unit <= 0 or count <= 0 or count % unit != 0:
        raise BadInput(f"{source}: tensor '{name}' has {count} {what}, expected a multiple of {unit}")
    return count // unit


def reordered(array, order, axis=-1):
    """Reorders the gates along an axis: gate i of the result is gate order[i] of the array."""
    parts = np.split(array, len(order), axis=axis)
    return np.ascontiguousarray(np.concatenate([parts[gate] for gate in order], axis=axis))


def inverse(order):
    return [list(order).index(i) for i in range(len(order))]


def check_said(cell, said, source):
    """Raises InvalidArgument if the cell differs from the one that the file or the caller named."""
    for each in said:
        if each is not None and each != cell:
            raise InvalidArgument(f"{source} is of the cell '{cell}', not '{each}'; leave cell= out")


def unique_names(paths):
    """Returns a unique name for each path of names.

    It is the last part of the path, or the whole path if several paths end in the same part. A number is appended if
    that is not unique.
    """
    names, taken = [], set()
    for path in paths:
        alone = sum(other[-1:] == path[-1:] for other in paths) == 1
        name = start = path[-1] if alone else ".".join(path)
        number = 1
        while name in taken:
            number += 1
            name = f"{start}#{number}"
        taken.add(name)
        names.append(name)
    return names


@dataclasses.dataclass
class RecurrentWeights:
    """The cell and the weights of a stack of recurrent layers.

    Attributes:
        cell: A name of :func:`penstock.cells`, or a cell of your own.
        tensors: {name: array} with PyTorch's names, shapes and gate order, as in
            :attr:`penstock.Recurrent.parameters`: ``weight_ih_l0`` ``[G H, I]``, ``weight_hh_l0`` ``[G H, H]`` (several
            heads: ``[heads, G D, D]``), ``bias_ih_l0`` and ``bias_hh_l0`` ``[G H]``, and so on. K learnt vectors of a
            cell of your own stand behind the gates of ``bias_ih_l0`` ``[(G + K) H]``. The suffix ``_reverse`` marks the
            reverse direction.
        extra: Further tensors of the source format around the recurrence, with that format's names.

    Raises:
        InvalidArgument: The cell or the name of a tensor is unknown.
        BadInput: A tensor is missing, has the wrong shape or is not of floats.
    """

    cell: str
    tensors: dict[str, np.ndarray]
    extra: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if not is_cell(self.cell):
            raise InvalidArgument(f"cell must be one of {', '.join(GATES)}, or a cell of your own, not '{self.cell}'")
        self.cell = with_equations(self.cell)  # another process knows it once it is unpickled
        self.tensors = {name: floats(name, array) for name, array in self.tensors.items()}
        self._check()

    def _check(self):
        for name in self.tensors:
            if _NAME.fullmatch(name) is None:
                raise InvalidArgument(f"'{name}' is not a name of a weight, such as weight_ih_l0")
        source, facts = f"weights of {self.cell}", _core.find_cell(self.cell)
        gates, recurrent, learnt = facts["gates"], not facts["scan"], facts["learnt"]
        first = take(self.tensors, f"weight_ih_l0{self.suffixes[0]}", source, None, None)
        hidden = whole_number_of(first.shape[0], gates, f"weight_ih_l0{self.suffixes[0]}", source, "rows")
        known, inputs = [], first.shape[1]
        for layer in range(self.layers):
            for suffix in self.suffixes:
                end = f"_l{layer}{suffix}"
                take(self.tensors, "weight_ih" + end, source, gates * hidden, inputs)
                known.append("weight_ih" + end)
                if recurrent:
                    shape = (gates * hidden, hidden)
                    if self.heads > 1:
                        shape = (self.heads, gates * hidden // self.heads, hidden // self.heads)
                    take(self.tensors, "weight_hh" + end, source, *shape)
                    known.append("weight_hh" + end)
                for bias in self._biases or (["bias_ih"] if learnt else []):
                    rows = gates + (learnt if bias == "bias_ih" else 0)
                    take(self.tensors, bias + end, source, rows * hidden)
                    known.append(bias + end)
            inputs = hidden * len(self.suffixes)
        refuse_others(self.tensors, known, source)

    @property
    def gates(self):
        return _core.find_cell(self.cell)["gates"]

    @property
    def suffixes(self):
        """Suffixes of the names, one per direction: "" for forward, "_reverse"."""
        return [s for s in ("", "_reverse") if f"weight_ih_l0{s}" in self.tensors] or [""]

    @property
    def direction(self):
        return {1: "reverse" if self.suffixes == ["_reverse"] else "forward", 2: "bidirectional"}[len(self.suffixes)]

    @property
    def layers(self):
        numbers = [int(_NAME.fullmatch(name)[2]) for name in self.tensors if name.startswith("weight_ih")]
        return 1 + max(numbers, default=0)

    @property
    def heads(self):
        matrix = self.tensors.get(f"weight_hh_l0{self.suffixes[0]}")
        return matrix.shape[0] if matrix is not None and matrix.ndim == 3 else 1

    @property
    def hidden_size(self):
        return self.tensors[f"weight_ih_l0{self.suffixes[0]}"].shape[0] // self.gates

    @property
    def input_size(self):
        return self.tensors[f"weight_ih_l0{self.suffixes[0]}"].shape[1]

    @property
    def bias(self):
        """ "both", "single" (``bias_ih`` only) or "none", as for :class:`penstock.Recurrent`."""
        return {(): "none", ("bias_ih",): "single", ("bias_ih", "bias_hh"): "both"}[tuple(self._biases)]

    @property
    def _biases(self):
        return [b for b in ("bias_ih", "bias_hh") if f"{b}_l0{self.suffixes[0]}" in self.tensors]

    def layer(self, layer=0, suffix=""):
        """Returns (weight_ih, weight_hh or None, bias_ih, bias_hh) of one layer. Missing biases are zeros."""
        end = f"_l{layer}{suffix}"
        zeros = np.zeros(self.gates * self.hidden_size, self.tensors["weight_ih" + end].dtype)
        biases = [self.tensors.get(name + end, zeros) for name in ("bias_ih", "bias_hh")]
        return self.tensors["weight_ih" + end], self.tensors.get("weight_hh" + end), *biases

    def single_layer(self, target):
        """Returns :meth:`layer` of a single forward layer. Raises InvalidArgument for a larger stack."""
        if self.layers != 1 or self.direction != "forward":
            raise InvalidArgument(
                f"{target} has one layer that runs forward, not {self.layers} that run {self.direction}; split() them"
            )
        return self.layer()

    def split(self):
        """Returns a list with each layer in each direction as its own stack, in PyTorch's order."""
        parts = []
        for layer in range(self.layers):
            for suffix in self.suffixes:
                end = f"_l{layer}{suffix}"
                own = {name: array for name, array in self.tensors.items() if name.endswith(end)}
                parts.append(RecurrentWeights(self.cell, {n.removesuffix(end) + "_l0": a for n, a in own.items()}))
        return parts

    def to_numpy(self, dtype=None):
        """Returns the stack as a :class:`penstock.Recurrent`. ``dtype`` None: float32, or float64 if any weight is."""
        from ..layers import Recurrent

        dtype = dtype or np.result_type(*self.tensors.values()).name
        network = Recurrent(
            self.cell,
            self.input_size,
            self.hidden_size,
            layers=self.layers,
            direction=self.direction,
            heads=self.heads,
            bias=self.bias,
            dtype=dtype,
        )
        network.load_state_dict({n: np.ascontiguousarray(a, dtype) for n, a in self.tensors.items()})
        return network

    @classmethod
    def from_numpy(cls, network):
        """Copies the weights of a :class:`penstock.Recurrent` or of a cell."""
        parameters = {name: np.array(array) for name, array in network.parameters.items()}
        named = {name if "_l" in name else name + "_l0": array for name, array in parameters.items()}
        return cls(network.cell, named)

    def to_torch(self, batch_first=True):
        """Returns the stack as a module of :mod:`penstock.torch`, batch-first by default."""
        from ._modules import module_of

        return module_of(self, batch_first)

    @classmethod
    def from_torch(cls, module):
        """Copies the weights of a module of ``torch.nn`` or :mod:`penstock.torch` to the CPU.

        A layer with zoneout (:func:`penstock.torch.regularise`) becomes a cell of :mod:`penstock.variants` that computes
        what the layer evaluates.

        Raises:
            InvalidArgument: The module is no recurrent layer, or has projections, or zoneout that no cell computes.
        """
        from ._modules import weights_of

        return weights_of(module)
