"""The two kinds of calls, layers and scans: shapes of their arrays, the handlers' arguments, and the axes of rows."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from .._cell_forms import CELLS
from . import _plain
from ._library import tape_bytes

#: Dtypes of sequences and weights, and their numbers in the library.
TYPES = {"float32": 0, "float64": 1, "bfloat16": 2}

#: The "axis of rows" of a tape: it holds all rows of a call and cannot be divided.
WHOLE = -1


def state_type(dtype):
    """Returns the dtype of states and sums."""
    return jnp.dtype("float64" if dtype == "float64" else "float32")


@dataclasses.dataclass(frozen=True)
class LayersForm:
    """A call of a stack of layers. Inputs are x, the weights, the state [S, layers * directions, B, H], lengths (int64
    as int32 [B, 2]) and resets [B, T], as far as the call has them."""

    cell: str
    layers: int
    bidirectional: bool
    heads: int
    each: int  # weights of one direction of a layer
    time_major: bool
    every_state: bool
    state: bool
    lengths: bool
    reset: bool

    target = "penstock_recurrent"
    taped = True

    @property
    def slots(self):
        return self.layers * (2 if self.bidirectional else 1)

    @property
    def weights(self):
        return range(1, 1 + self.slots * self.each)

    @property
    def floats(self):
        """The number of inputs that have gradients; they come first."""
        return 1 + self.slots * self.each + self.state

    @property
    def input_axes(self):
        """The axis of rows of every input, None for weights."""
        rows = [0] * (self.lengths + self.reset)
        return [int(self.time_major), *[None] * len(self.weights), *[2] * self.state, *rows]

    @property
    def saved_axes(self):
        return [int(self.time_major), WHOLE]

    @property
    def output_axes(self):
        return [int(self.time_major), 2, *[int(self.time_major)] * self.every_state]

    def saved(self, outputs):
        """Returns what a backward pass needs of the outputs of a forward pass in training."""
        return [outputs[0], outputs[-1]]

    def numbers(self, inputs):
        """Returns the numbers of the call for the library."""
        x, w = inputs[:2]
        rows, steps = (x.shape[1], x.shape[0]) if self.time_major else x.shape[:2]
        gates, _, scans = CELLS[self.cell]
        biases = self.each - (1 if scans else 2)
        numbers = (
            x.shape[2], w.shape[0] // gates, self.heads, self.layers, self.bidirectional, biases,
            TYPES[x.dtype.name], TYPES[w.dtype.name], rows, steps, self.lengths, self.reset, not self.time_major,
            self.every_state, -1,
        )  # fmt: skip
        return tuple(map(int, numbers))

    def results(self, inputs, training):
        """Returns (shape, dtype) of every output."""
        numbers = self.numbers(inputs)
        x, hidden, rows = inputs[0], numbers[1], numbers[8]
        states, kind = CELLS[self.cell][1], state_type(x.dtype)
        wide = hidden * self.slots // self.layers
        found = [((*x.shape[:2], wide), x.dtype), ((states, self.slots, rows, hidden), kind)]
        if self.every_state:
            found.append(((*x.shape[:2], (states - 1) * wide), kind))
        if training:
            found.append(((tape_bytes(self.cell, numbers),), jnp.dtype("uint8")))
        return found

    def attributes(self, inputs, extra):
        return {"cell": self.cell, "numbers": np.array([*self.numbers(inputs), self.state, extra], np.int64)}

    def forward(self, inputs, training):
        return call(self.target, self.results(inputs, training), inputs, self.attributes(inputs, training))

    def backward(self, inputs, saved, cotangents, wanted):
        """Returns the gradients of the inputs `wanted`. An empty tape: the forward pass runs again."""
        y, tape = saved
        if tape.size == 0:
            tape = self.forward(inputs, True)[-1]
        kind = state_type(inputs[0].dtype)
        inputs_wanted = [0] * (0 in wanted) + [*self.weights] + [self.weights[-1] + 1] * self.state
        results = [(inputs[i].shape, inputs[i].dtype if i == 0 else kind) for i in inputs_wanted]
        attributes = self.attributes(inputs, 0 in wanted)
        found = call(f"{self.target}_backward", results, [*inputs, y, tape, *cotangents], attributes)
        gradients = dict(zip(inputs_wanted, found))
        return [gradients[i].astype(inputs[i].dtype) for i in wanted]

    def plain(self, *inputs):
        """Computes the outputs in JAX's own operations, step by step."""
        return _plain.layers(self, *inputs)


@dataclasses.dataclass(frozen=True)
class ScanForm:
    """A scan. Inputs are a and b [B, T, C], h0 [B, C], lengths and resets as for layers."""

    logarithmic: bool
    reverse: bool
    state: bool
    lengths: bool
    reset: bool

    target = "penstock_scan"
    taped = False
    weights = range(0)

    @property
    def floats(self):
        return 2 + self.state

    @property
    def input_axes(self):
        return [0] * (self.floats + self.lengths + self.reset)

    saved_axes = (0,)
    output_axes = (0, 0)

    def saved(self, outputs):
        return [outputs[0]]

    def results(self, inputs, training):
        rows, _, channels = inputs[0].shape
        return [(inputs[0].shape, inputs[0].dtype), ((rows, channels), inputs[0].dtype)]

    def attributes(self):
        return {"numbers": np.array([*dataclasses.astuple(self)], np.int64)}

    def forward(self, inputs, training):
        return call(self.target, self.results(inputs, training), inputs, self.attributes())

    def backward(self, inputs, saved, cotangents, wanted):
        results = [(value.shape, value.dtype) for value in inputs[: self.floats]]
        found = call(f"{self.target}_backward", results, [*inputs, *saved, *cotangents], self.attributes())
        return [found[i] for i in wanted]

    def plain(self, *inputs):
        return _plain.scan(self, *inputs)


def call(target, results, arrays, attributes):
    shapes = [jax.ShapeDtypeStruct(*each) for each in results]
    return jax.ffi.ffi_call(target, shapes, vmap_method=None)(*arrays, **attributes)
