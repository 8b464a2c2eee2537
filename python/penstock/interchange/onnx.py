"""Weights and files of ONNX's operators RNN, GRU and LSTM.

``W`` is ``[directions, G H, I]``, ``R`` ``[directions, G H, H]``, ``B`` ``[directions, 2 G H]`` (the biases of W, then
those of R), ``P`` ``[directions, 3 H]`` (peepholes of i, o, f). The gate order is i, o, f, c for the LSTM and z, r, h
for the GRU. Nodes with other activations, limits, peepholes or coupled gates become cells of
:mod:`penstock.variants`. Files need the package onnx.
"""

from __future__ import annotations

import collections
import math
import os
import pathlib
import re

import numpy as np

from .. import variants
from ..errors import BadInput, InvalidArgument, IoFailure, Unsupported
from ._limits import Limits, reading
from ._weights import (
    RecurrentWeights,
    base_of,
    inverse,
    of_custom_cell,
    refuse_others,
    reordered,
    take,
    unique_names,
)

# Index of our gate for each gate of the operator.
_ORDER = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2], "gru-before": [1, 0, 2], "elman": [0], "elman-relu": [0]}
_OPERATOR = {"lstm": "LSTM", "gru": "GRU", "gru-before": "GRU", "elman": "RNN", "elman-relu": "RNN"}
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_PEEPHOLES = {"i": 0, "o": 1, "f": 2}  # their places in P
_SUFFIXES = {"forward": ("",), "reverse": ("_reverse",), "bidirectional": ("", "_reverse")}


def from_onnx(tensors, *, cell, direction="forward", source="onnx"):
    """Returns one layer from the arrays of a node.

    Args:
        tensors: {name: array} with the names ``W``, ``R`` and optionally ``B`` and ``P``.
        cell: ``"lstm"``, ``"gru"`` (``linear_before_reset=1``), ``"gru-before"`` (0), ``"elman"``, ``"elman-relu"``, or
            a cell of :mod:`penstock.variants`.
        direction: ``"forward"``, ``"reverse"`` or ``"bidirectional"``.
        source: Name of the source in error messages.
    """
    base, gates = base_of(cell, _ORDER)
    if direction not in _SUFFIXES:
        raise InvalidArgument(f"direction must be one of {', '.join(_SUFFIXES)}, not '{direction}'")
    seen = getattr(cell, "learnt", {})
    if set(seen) - set(_PEEPHOLES):
        raise InvalidArgument(f"cell must have no learnt vectors but the peepholes i, f and o, not {', '.join(seen)}")
    refuse_others(tensors, ["W", "R", "B", "P"] if seen else ["W", "R", "B"], source)
    order, suffixes = inverse(_ORDER[base]), _SUFFIXES[direction]
    recurrent = take(tensors, "R", source, len(suffixes), None, None)
    rows, hidden = recurrent.shape[1:]
    if rows != len(order) * hidden:
        raise BadInput(f"{source}: tensor 'R' has {rows} rows and {hidden} columns, expected [directions, {len(order)} H, H]")
    inputs = take(tensors, "W", source, len(suffixes), rows, None)
    bias = take(tensors, "B", source, len(suffixes), 2 * rows) if tensors.get("B") is not None else None
    named = {}
    for i, suffix in enumerate(suffixes):
        named[f"weight_ih_l0{suffix}"] = reordered(inputs[i], order, axis=0)
        named[f"weight_hh_l0{suffix}"] = reordered(recurrent[i], order, axis=0)
        if bias is not None:
            named[f"bias_ih_l0{suffix}"] = reordered(bias[i][:rows], order)
            named[f"bias_hh_l0{suffix}"] = reordered(bias[i][rows:], order)
    weights = RecurrentWeights(base, named)
    if gates is None:
        return weights
    peepholes = []
    if seen:
        vectors = take(tensors, "P", source, len(suffixes), 3 * hidden).reshape(len(suffixes), 3, hidden)
        peepholes = [[each[_PEEPHOLES[name]] for name in seen] for each in vectors]
    return of_custom_cell(weights, cell, gates, peepholes)


def to_onnx(weights):
    """Returns the arrays ``W``, ``R`` and ``B`` of one layer for a node, and the attributes of the node.

    The result is ``(tensors, {"op_type": "LSTM", "direction": "forward", ...})``. To write a whole file, also of cells
    that ONNX does not have, use :func:`penstock.interchange.save` or :meth:`penstock.Recurrent.save_onnx`. Raises
    InvalidArgument for a cell without an operator or a stack of several layers.
    """
    if weights.cell not in _ORDER or weights.heads != 1:
        raise InvalidArgument(f"ONNX has no operator of the cell '{weights.cell}' with {weights.heads} heads")
    if weights.layers != 1:
        raise InvalidArgument(f"a node of ONNX is one layer, not {weights.layers}; split() them")
    order = _ORDER[weights.cell]
    parts = [[reordered(array, order, axis=0) for array in weights.layer(0, suffix)] for suffix in weights.suffixes]
    inputs, recurrent, bias_ih, bias_hh = (np.stack(each) for each in zip(*parts))
    attributes = {"op_type": _OPERATOR[weights.cell], "direction": weights.direction, "hidden_size": weights.hidden_size}
    if weights.cell == "elman-relu":
        attributes["activations"] = ["Relu"] * len(parts)
    if attributes["op_type"] == "GRU":
        attributes["linear_before_reset"] = int(weights.cell == "gru")
    return {"W": inputs, "R": recurrent, "B": np.concatenate([bias_ih, bias_hh], axis=1)}, attributes


# Older versions read files outside the model's folder. pyproject.toml requires the same version.
_OLDEST = (1, 17)


def _package():
    try:
        import onnx
    except ImportError as error:
        raise Unsupported("files of ONNX need the package onnx: pip install 'onnx>=1.17'") from error
    version = tuple(int(number) for number in re.findall(r"\d+", onnx.__version__)[:2])
    if version < _OLDEST:
        raise Unsupported(
            f"files of ONNX need onnx {'.'.join(map(str, _OLDEST))} or newer, and this is {onnx.__version__}, which reads "
            "files outside the model's folder: pip install -U onnx"
        )
    return onnx


class _Graph:
    """Looks up the sources of the values of a graph."""

    def __init__(self, graph, onnx, limits, opsets, outer=None, formals=()):
        self.onnx, self.limits, self.opsets, self.outer = onnx, limits, opsets, outer
        self.formals = dict(formals)  # {input of a body: the value of the outer graph that it starts from}
        self.nodes, self.outputs = graph.node, [each.name for each in graph.output]
        self.stored = {tensor.name: tensor for tensor in graph.initializer}
        self.makers = {name: node for node in graph.node for name in node.output if name}
        self.bodies = {id(node): self._bodies_of(node) for node in graph.node}
        self._arrays = {}

    def _bodies_of(self, node):
        """Returns the graphs of the branches or the loop body of a node, which see the values of this graph, too."""
        found = []
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                self.limits.step()
                formals = zip([each.name for each in body.input], node.input)
                found.append(_Graph(body, self.onnx, self.limits, self.opsets, self, formals))
        return found

    def array(self, name):
        """Returns the array that the file stores for a value, also rearranged by operators of _MOVING; otherwise None."""
        if name not in self._arrays:
            self.limits.step()
            self._arrays[name] = None  # while it is looked for: a cycle ends here
            self._arrays[name] = self._found(name)
        return self._arrays[name]

    def _found(self, name):
        if name in self.stored:
            return self._read(self.stored[name])
        node = self.makers.get(name)
        if node is None:
            return self.outer.array(name) if self.outer and name not in self.formals else None
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            return self._read(node.attribute[0].t)
        if node.domain not in _OWN or node.op_type not in _MOVING:
            return None
        inputs = {each: self.array(each) for each in node.input if each}
        if not inputs or any(array is None for array in inputs.values()):
            return None
        if node.op_type == "Identity":
            return inputs[node.input[0]]
        from onnx.reference import ReferenceEvaluator

        self.limits.take(sum(inputs[each].nbytes for each in node.input if each), f"'{name}'")
        results = ReferenceEvaluator(node, opsets=self.opsets).run(None, inputs)
        return results[list(node.output).index(name)]

    def _read(self, tensor):
        dtype = self.onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        size = math.prod(tensor.dims) * dtype.itemsize
        if any(extent < 0 for extent in tensor.dims):
            raise BadInput(f"{self.limits.path}: tensor '{tensor.name}' has the shape {list(tensor.dims)}")
        external = tensor.data_location == self.onnx.TensorProto.EXTERNAL
        place = _place(tensor, size, self.limits) if external else None
        self.limits.take(size, f"tensor '{tensor.name}'")
        array = self.onnx.numpy_helper.to_array(tensor) if place is None else _external(tensor, dtype, *place)
        return array.astype(np.float32) if array.dtype.name == "bfloat16" else array

    def held(self, name):
        """Returns the source of a value: "zero", "stored" (in the file), or "given" (depends on inputs of the graph).

        A dependence on the shape of an input does not count.
        """
        seen, todo, states = set(), [(self, name)], set()
        while todo:
            place = todo.pop()
            self.limits.step()
            if place not in seen:
                seen.add(place)
                sources = place[0]._sources(place[1])
                states |= {sources} if isinstance(sources, str) else set()
                todo += [] if isinstance(sources, str) else sources
        return next((state for state in ("given", "stored", "zero") if state in states), "given")

    def _sources(self, name):
        """Returns the source of a value, or the values that it is computed from, each as (its graph, its name)."""
        array = self.array(name)
        if array is not None:
            return "stored" if np.any(array) else "zero"
        if name in self.formals:
            return [(self.outer, self.formals[name])]
        node = self.makers.get(name)
        if node is None:
            return [(self.outer, name)] if self.outer else "given"
        if self.bodies[id(node)]:
            return self._sources_in_bodies(node, list(node.output).index(name))
        if node.op_type in ("Shape", "Size"):
            return "zero"
        if node.op_type == "ConstantOfShape":
            values = [self._read(each.t) for each in node.attribute if each.name == "value"]
            return "stored" if any(np.any(value) for value in values) else "zero"
        first = node.op_type in ("Expand", "Tile", "Reshape", "Unsqueeze", "Squeeze", "Slice", "Gather", "Split", "Cast")
        return [(self, each) for each in node.input[: 1 if first else None] if each] or "stored"

    def _sources_in_bodies(self, node, index):
        """Returns what an output comes from: outputs of the bodies, and for a state of a loop its value before the loop."""
        bodies = self.bodies[id(node)]
        if node.domain not in _OWN or node.op_type not in ("If", "Loop", "Scan"):
            return [(body, each) for body in bodies for each in body.outputs]
        first = node.op_type == "Loop"  # the body returns its condition before the states
        scanned = next((each.i for each in node.attribute if each.name == "num_scan_inputs"), 0)
        before = [] if node.op_type == "If" else node.input[2 * first : len(node.input) - scanned]
        return [(body, body.outputs[first + index]) for body in bodies] + [(self, each) for each in before[index : index + 1]]


# Operators that rearrange elements: their results are never larger than their inputs together.
_MOVING = ("Identity", "Concat", "Flatten", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")
_OWN = ("", "ai.onnx")
_KNOWN = {
    "LSTM": {"input_forget"},
    "GRU": {"linear_before_reset"},
    "RNN": set(),
}
_COMMON = {"activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "layout", "output_sequence"}
_LARGEST = float(np.finfo(np.float32).max)


# By name of ONNX, as ONNX Runtime compares it: the activation of penstock.variants and the parameters it takes there,
# with their defaults. None: ONNX and ONNX Runtime differ in what is the default.
_FUNCTIONS = {
    "affine": ("affine", {"alpha": None, "beta": None}),
    "elu": ("elu", {"alpha": 1.0}),
    "hardsigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "leakyrelu": ("leaky_relu", {"alpha": 0.01}),
    "relu": ("relu", {}),
    "scaledtanh": ("scaled_tanh", {"alpha": None, "beta": None}),
    "sigmoid": ("sigmoid", {}),
    "softplus": ("softplus", {}),
    "softsign": ("softsign", {}),
    "tanh": ("tanh", {}),
    "thresholdedrelu": ("thresholded_relu", {"alpha": None}),
}


def _activations(names, attributes, source):
    """Returns activations of penstock.variants. Each takes its parameters from the lists in the order of names."""
    given = {name: [str(np.float32(each)) for each in attributes.get(f"activation_{name}", [])] for name in ("alpha", "beta")}
    rest, found = {name: list(values) for name, values in given.items()}, []
    for name in names:
        if name.lower() not in _FUNCTIONS:
            raise Unsupported(f"{source} has the activation {name}, expected one of {', '.join(_FUNCTIONS)}")
        ours, parameters = _FUNCTIONS[name.lower()]
        values = [float(rest[each].pop(0)) if rest[each] else usual for each, usual in parameters.items()]
        if None in values:
            missing = " and ".join(f"activation_{each}" for each in parameters)
            raise Unsupported(f"{source} has the activation {name} without {missing}, whose default is not settled")
        found.append((ours, *values) if values else ours)
    for name, values in rest.items():
        if values:
            takers = len(given[name]) - len(values)
            raise Unsupported(
                f"{source} has activation_{name} {[float(each) for each in given[name]]}, and {takers or 'none'} of its "
                f"activations {', '.join(names)} take{'s' if takers == 1 else ''} one: give as many"
            )
    return found


def _variant(node, options, coupled, peepholes, attributes, source):
    """Returns the cell of an operator with these activations of one direction."""
    if node.op_type == "LSTM":
        kinds = dict(zip(("gates", "candidate", "output"), options))
        return variants.lstm(**kinds, coupled=coupled, peepholes=peepholes, **_clip(attributes, source))
    if node.op_type == "RNN":
        return variants.elman(activation=options[0], **_clip(attributes, source))
    kinds, after = dict(zip(("gates", "candidate"), options)), bool(attributes.get("linear_before_reset"))
    try:
        return variants.gru(**kinds, reset_after=after, **_clip(attributes, source))
    except InvalidArgument as error:
        raise Unsupported(
            f"{source} has linear_before_reset=0 and other activations or a clip, which no cell here has together: {error}; "
            "train or export it with linear_before_reset=1"
        ) from None


def _clip(attributes, source):
    clip = attributes.get("clip", _LARGEST)
    if not clip > 0:
        raise Unsupported(f"{source} limits its gates to clip={clip:g}, expected a positive number")
    return {} if clip >= _LARGEST else {"clip": float(str(np.float32(clip)))}


def _cell_of(node, attributes, peepholes, source):
    """Returns the cell of a node. Raises Unsupported if there is no equivalent here."""
    others = sorted(set(attributes) - _COMMON - _KNOWN[node.op_type])
    if others:
        raise Unsupported(f"{source} has the attribute '{others[0]}', which the operator {node.op_type} does not have")
    directions = 2 if attributes.get("direction", b"forward") == b"bidirectional" else 1
    usual = _ACTIVATIONS[node.op_type] * directions
    activations = [name.decode() for name in attributes.get("activations", [])] or usual
    if len(activations) != len(usual):
        raise Unsupported(f"{source} has {len(activations)} activations, expected {len(usual)}, as {', '.join(usual)}")
    if attributes.get("layout", 0) not in (0, 1):
        raise BadInput(f"{source} has the layout {attributes['layout']}, expected 0 or 1")
    found = _activations(activations, attributes, source)
    half = len(found) // directions
    if found[:half] != found[-half:]:
        raise Unsupported(f"{source} has the activations {', '.join(activations)}, which differ between its directions")
    return _variant(node, found[:half], bool(attributes.get("input_forget")), peepholes, attributes, source)


def _refuse_inputs(inputs, graph, source):
    """Raises Unsupported for further inputs that are stored in the file. Those given to the graph are the caller's."""
    for name in ("initial_h", "initial_c"):
        if inputs.get(name) and graph.held(inputs[name]) == "stored":
            raise Unsupported(
                f"{source} starts from {name} '{inputs[name]}', which the file holds, and weights here have no state: make "
                "it an input of the graph, and pass it to forward"
            )
    lens = inputs.get("sequence_lens")
    if lens and graph.held(lens) == "stored":
        raise Unsupported(
            f"{source} has sequence_lens '{lens}', which the file holds: make it an input of the graph, and pass lengths= to "
            "forward"
        )


_INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")


def _layer(node, graph, onnx, source):
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    inputs = dict(zip(_INPUTS, node.input))
    peepholes = bool(inputs.get("P")) and graph.held(inputs["P"]) != "zero"
    cell = _cell_of(node, attributes, peepholes, source)
    _refuse_inputs(inputs, graph, source)
    tensors = {}
    for name in ("W", "R", "B", "P"):
        given = inputs.get(name, "")
        if (not given and name == "B") or (name == "P" and not peepholes):
            continue
        tensors[name] = graph.array(given)
        if tensors[name] is None:
            raise Unsupported(f"{source}: {name} is '{given}', which is computed and not stored in the file")
    direction = attributes.get("direction", b"forward").decode()
    if direction not in _SUFFIXES:
        raise BadInput(f"{source} has the direction '{direction}', expected {', '.join(_SUFFIXES)}")
    weights = from_onnx(tensors, cell=cell, direction=direction, source=source)
    if attributes.get("hidden_size", weights.hidden_size) != weights.hidden_size:
        raise BadInput(f"{source} has hidden_size {attributes['hidden_size']}, and its weights are of {weights.hidden_size}")
    return weights


def _nodes(graph):
    """Yields (node, its graph) of every node, including those in the bodies of loops and branches."""
    for node in graph.nodes:
        graph.limits.step()
        yield node, graph
        for body in graph.bodies[id(node)]:
            yield from _nodes(body)


def _place(tensor, size, limits):
    """Returns (file, offset) of an external tensor, which must be in the model's folder or below, not behind a link."""

    def refuse(problem):
        raise BadInput(f"{limits.path}: tensor '{tensor.name}' {problem}")

    said = {entry.key: entry.value for entry in tensor.external_data}
    location = said.get("location", "")
    place = pathlib.Path(limits.path).parent.resolve() / location
    if not location or os.path.isabs(location) or ".." in pathlib.PurePath(location).parts or place.resolve() != place:
        refuse(f"lies in {location!r}, expected the name of a file in the model's folder, and no link")
    if not place.is_file():
        refuse(f"lies in {location!r}, and there is no such file in the model's folder: put it there")
    offset, length = said.get("offset", "0"), said.get("length", str(size))
    stored = place.stat().st_size
    whole = re.fullmatch("[0-9]{1,18}", offset) and length == str(size)
    if not whole or int(offset) + size > stored:
        refuse(f"takes {size} bytes, and the file says {length} at {offset} of the {stored} of {location!r}")
    limits.add_file(str(place), stored)
    return place, int(offset)


def _external(tensor, dtype, place, offset):
    with open(place, "rb") as file:
        return np.fromfile(file, dtype, math.prod(tensor.dims), offset=offset).reshape(tensor.dims)


def _check_functions(model, limits):
    """Counts the size of a model after inlining its functions, and limits it.

    The size can grow exponentially: functions with two calls each, nested thirty deep.
    """
    functions = {(each.domain, each.name): each for each in model.functions}
    sizes, open_ = {}, set()

    def of_nodes(nodes, depth):
        total = 0
        for node in nodes:
            limits.step()
            total += of_function((node.domain, node.op_type), depth) if (node.domain, node.op_type) in functions else 0
            total += node.ByteSize()
            for attribute in node.attribute:
                for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    total += of_nodes(body.node, depth)
        return total

    def of_function(key, depth):
        if key in open_ or depth > _DEEPEST:
            raise BadInput(f"{limits.path}: its function '{key[1]}' calls itself, or calls nest beyond {_DEEPEST}")
        if key not in sizes:
            open_.add(key)
            sizes[key] = of_nodes(functions[key].node, depth + 1)
            open_.remove(key)
        return sizes[key]

    limits.take(of_nodes(model.graph.node, 0), "its graph with the functions that it calls")


_DEEPEST = 32  # largest depth of nested function calls


def _opened(path, limits):
    onnx = _package()
    model = onnx.load(path, load_external_data=False)
    if model.functions:
        import onnx.inliner

        _check_functions(model, limits)
        model = onnx.inliner.inline_local_functions(model)
    opsets = {each.domain: each.version for each in model.opset_import}
    return onnx, _Graph(model.graph, onnx, limits, opsets)


def read_onnx(path, *, name=None):
    """Reads the RNN, GRU and LSTM nodes of a file whose weights are stored in it, and returns {name: weights}.

    A layer has the name of its node. If a node has no name, or shares it, the layer has the name of its first output.

    Args:
        path: The file.
        name: Reads only this layer.

    Raises:
        BadInput: The file is damaged, or has no such layer.
        Unsupported: A layer has no equivalent here, or the package onnx is missing or too old.
        IoFailure: The file cannot be read.
    """
    path = os.fspath(path)
    limits = Limits(path)
    with reading(path, "file of ONNX"):
        return _read_layers(path, name, *_opened(path, limits))


def _read_layers(path, name, onnx, graph):
    nodes = list(_nodes(graph))
    found = [(node, own) for node, own in nodes if node.op_type in _ACTIVATIONS and node.domain in _OWN]
    names = [node.name for node, _ in found]
    counts = collections.Counter(names)
    names = [n if n and counts[n] == 1 else next(filter(None, node.output), "") for n, (node, _) in zip(names, found)]
    names = unique_names([(n,) for n in names])
    other = next((node for node, _ in nodes if node.domain not in _OWN and node.op_type.endswith(tuple(_ACTIVATIONS))), None)
    if name is None and other is not None:
        raise Unsupported(
            f"{path}: {other.op_type} '{other.name}' is of {other.domain}, expected RNN, GRU or LSTM of ONNX itself; prefix= "
            "reads one of the other layers"
        )
    if not found:
        kinds = ", ".join(sorted({node.op_type for node, _ in nodes})[:5]) or "none"
        raise BadInput(f"{path}: there is no RNN, GRU or LSTM in it; its operators are {kinds}")
    if name is not None and name not in names:
        raise BadInput(f"{path}: there is no layer '{name}', but {', '.join(names)}")
    return {
        title: _layer(node, own, onnx, f"{path}: {node.op_type} '{title}'")
        for title, (node, own) in zip(names, found)
        if name in (None, title)
    }
