"""The two kinds of calls, layers and scans: shapes of their arrays, the handlers' arguments, and the axes of rows.

Where kernels of a GPU do not start rows again at given states, each part of a row between two restarts is a packed row.
XLA needs the number of parts when it compiles, so there are as many packed rows as positions, and those behind the parts
have no steps.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from .._cell_forms import CELLS, starts_again_on_gpu
from ..errors import Unsupported
from . import _plain
from ._library import generations, gpus, recurrent_bytes, scan_bytes

#: Dtypes of sequences and weights, and their numbers in the library.
TYPES = {"float32": 0, "float64": 1, "bfloat16": 2, "float16": 3}

#: The "axis of rows" of a tape: it holds all rows of a call and cannot be divided.
WHOLE = -1


def state_type(dtype):
    """Returns the dtype of states and sums."""
    return jnp.dtype("float64" if dtype == "float64" else "float32")


def default_platform():
    """Returns where calls run unless they are told otherwise."""
    chosen = jax.config.jax_default_device
    name = jax.default_backend() if chosen is None else getattr(chosen, "platform", chosen)
    return "cuda" if name in ("cuda", "gpu") else "cpu"


def stored(arrays, platform, kept=("float16", "bfloat16")):
    """Returns arrays in types that the handlers of a platform take: on a CPU, 16-bit types but those `kept` become
    float32."""
    if platform == "cuda":
        if any(array.dtype == "float64" for array in arrays):
            raise Unsupported("float64 runs on CPUs only: convert to float32, or run on jax.devices('cpu')")
        return list(arrays)
    wide = {"float16", "bfloat16"}.difference(kept)
    return [array.astype(jnp.float32) if array.dtype.name in wide else array for array in arrays]


def clipped(form, inputs, platform):
    """Returns inputs whose lengths a GPU can use, and which rows had impossible lengths [B], or None. A handler on a
    CPU reads the lengths itself, and refuses them."""
    inputs = list(inputs)
    if platform != "cuda" or not form.lengths:
        return inputs, None
    lengths, steps = inputs[form.floats][:, 0], inputs[0].shape[1 - form.input_axes[0]]
    valid = jnp.clip(lengths, 0, steps)
    inputs[form.floats] = jnp.stack([valid, jnp.zeros_like(valid)], -1)
    return inputs, lengths != valid


def marked(outputs, axes, impossible):
    """Sets the outputs of rows with impossible lengths to NaN."""
    if impossible is None:
        return outputs

    def mark(array, axis):
        rows = jnp.expand_dims(impossible, [i for i in range(array.ndim) if i != axis])
        return jnp.where(rows, jnp.nan, array)

    return [*map(mark, outputs, axes), *outputs[len(axes) :]]


def call(target, results, arrays, attributes, workspace):
    """Calls a handler. `workspace`: bytes of its last result on a GPU, memory for the call; None on a CPU."""
    shapes = [jax.ShapeDtypeStruct(*each) for each in results]
    if workspace is not None:
        shapes.append(jax.ShapeDtypeStruct((workspace,), jnp.uint8))
    return list(jax.ffi.ffi_call(target, shapes, vmap_method=None)(*arrays, **attributes))[: len(results)]


def _flat(states):
    """Returns [S, layers, B, n, H] as [S, layers, B * n, H]."""
    return states.reshape(*states.shape[:2], -1, states.shape[-1])


def _behind(states):
    """Returns states [S, layers, B, 1 + n, H] as the library has them: those of resets behind those of step 0."""
    return jnp.concatenate([states[:, :, :, 0], _flat(states[:, :, :, 1:])], 2)


class Parts:
    """The parts of rows between restarts as packed rows. `resets` [B, T]: the steps at which one begins. The first step
    of a row always begins one."""

    def __init__(self, resets, time_major):
        self.resets, self.time_major = resets, time_major
        starts = resets.at[:, 0].set(True)
        positions = starts.size
        found = jnp.nonzero(starts.ravel(), size=positions + 1, fill_value=positions)[0].astype(jnp.int32)
        self.offsets = jnp.stack([found, jnp.zeros_like(found)], -1)
        self.first = jnp.minimum(found[:-1], positions - 1)  # parts without steps may begin anywhere
        self.last = starts.sum(1).cumsum() - 1  # of each row

    def positions(self, sequence):
        """Returns a sequence as packed rows [B * T, C]."""
        sequence = sequence.swapaxes(0, 1) if self.time_major else sequence
        return sequence.reshape(-1, sequence.shape[-1])

    def sequence(self, positions):
        """Returns packed rows [B * T, C] as a sequence."""
        sequence = positions.reshape(*self.resets.shape, -1)
        return sequence.swapaxes(0, 1) if self.time_major else sequence

    def states_before(self, states):
        """Returns the states [S, L, N, H] before the parts, of [S, L, B, 1 + n, H]."""
        each = jnp.broadcast_to(states[:, :, :, 1:], (*states.shape[:3], self.resets.shape[1], states.shape[4]))
        first = jnp.where(self.resets[:, :1], each[:, :, :, 0], states[:, :, :, 0])
        return _flat(each.at[:, :, :, 0].set(first))[:, :, self.first]

    def gradients_after(self, gradients):
        """Returns the gradients of the states [S, L, N, H] after the parts, of those after the rows [S, L, B, H]."""
        states, layers, _, hidden = gradients.shape
        whole = jnp.zeros((states, layers, len(self.first), hidden), gradients.dtype)
        return whole.at[:, :, self.last].set(gradients)


@dataclasses.dataclass(frozen=True)
class LayersForm:
    """A call of a stack of layers. Inputs are x, the weights, the state [S, layers * directions, B, H], lengths (int64
    as int32 [B, 2]) and resets [B, T], as far as the call has them.

    A call that `restarts` has one direction, no lengths, and states [S, layers, B, 1 + n, H]: those before step 0, then
    one with which the row starts again, or one for each step."""

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
    restarts: bool

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

    def cuts(self, inputs):
        """Returns whether a GPU runs Parts."""
        head = inputs[1].shape[0] // CELLS[self.cell][0] // self.heads
        return self.restarts and not all(starts_again_on_gpu(self.cell, head, major) for major in generations())

    def numbers(self, inputs, gpu=-1):
        """Returns the numbers of the call for the library; on a GPU, those of a call of Parts if it has them."""
        x, w = inputs[:2]
        rows, steps = (x.shape[1], x.shape[0]) if self.time_major else x.shape[:2]
        gates, _, scans = CELLS[self.cell]
        biases = self.each - (1 if scans else 2)
        cut = gpu >= 0 and self.cuts(inputs)
        positions = rows * steps if cut else 0
        restarts = 0 if cut or not self.restarts else 2 if inputs[self.floats - 1].shape[3] == 2 else 3
        numbers = (
            x.shape[2], w.shape[0] // gates, self.heads, self.layers, self.bidirectional, biases,
            TYPES[x.dtype.name], TYPES[w.dtype.name], positions or rows, steps, positions, self.lengths,
            self.reset and not cut, cut or not self.time_major, self.every_state, restarts, gpu,
        )  # fmt: skip
        return tuple(map(int, numbers))

    def outputs(self, inputs):
        """Returns (shape, dtype) of every output but the tape."""
        x, hidden = inputs[0], self.numbers(inputs)[1]
        rows, states, kind = x.shape[int(self.time_major)], CELLS[self.cell][1], state_type(x.dtype)
        wide = hidden * self.slots // self.layers
        found = [((*x.shape[:2], wide), x.dtype), ((states, self.slots, rows, hidden), kind)]
        if self.every_state:
            found.append(((*x.shape[:2], (states - 1) * wide), kind))
        return found

    def bytes(self, inputs, platform, backward=False, extra=True):
        """Returns the bytes of a tape, and those of the workspace of a pass, None on a CPU."""
        if platform == "cpu":
            return recurrent_bytes(self.cell, self.numbers(inputs), False, True)[0], None
        each = [recurrent_bytes(self.cell, self.numbers(inputs, gpu), backward, extra) for gpu in gpus()]
        return tuple(map(max, zip(*each)))

    def results(self, inputs, training):
        """Returns (shape, dtype) of every output. A tape has the size for the default platform: on another one that
        needs a larger tape, a backward pass repeats the forward pass."""
        found = self.outputs(inputs)
        if training:
            try:
                size = self.bytes(inputs, default_platform())[0]
            except Unsupported:  # the call may run on a CPU; on the GPU, compiling it raises the same
                size = self.bytes(inputs, "cpu")[0]
            found.append(((size,), jnp.dtype("uint8")))
        return found

    def handled(self, inputs, extra, platform):
        """Returns the arguments and the attributes of a handler, the parts that a GPU runs if it cuts rows, and the
        function that maps gradients of the handler's states to those of the call's."""
        parts, arguments, gradients = None, list(inputs), None
        if self.restarts:
            parts = Parts(inputs[-1], self.time_major) if platform == "cuda" and self.cuts(inputs) else None
            entering, pull = jax.vjp(parts.states_before if parts else _behind, inputs[-2])
            arguments[-2], gradients = entering, lambda found: pull(found)[0]
        if parts:
            arguments[0], arguments[-1] = parts.positions(inputs[0]), parts.offsets
        numbers = [*self.numbers(inputs, 0 if parts else -1), self.state, extra]
        return arguments, {"cell": self.cell, "numbers": np.array(numbers, np.int64)}, parts, gradients

    def run(self, inputs, tape, platform):
        """Calls the handler of the forward pass. `tape`: bytes of the tape, if there shall be one."""
        training = tape is not None
        workspace = self.bytes(inputs, platform, False, training)[1]
        arguments, attributes, parts, _ = self.handled(inputs, training, platform)
        outputs = self.outputs(inputs)
        results = list(outputs)
        if parts:
            results = [((shape[0] * shape[1], shape[2]), dtype) for shape, dtype in outputs]
            (states, layers, _, hidden), kind = outputs[1]
            results[1] = (states, layers, len(parts.first), hidden), kind
        results += [((tape,), jnp.uint8)] * training
        found = call(self.target, results, arguments, attributes, workspace)
        if parts:
            found[1] = found[1][:, :, parts.last]
            for i in (0, *range(2, len(outputs))):
                found[i] = parts.sequence(found[i])
        return found

    def forward(self, inputs, training, platform):
        promised = self.results(inputs, training)
        inputs, impossible = clipped(self, stored(inputs, platform, ("bfloat16",)), platform)
        tape = promised[-1][0][0] if training and promised[-1][0][0] >= self.bytes(inputs, platform)[0] else None
        found = marked(self.run(inputs, tape, platform), self.output_axes, impossible)
        if training and tape is None:
            found.append(jnp.zeros(*promised[-1]))
        return [array.astype(dtype) for array, (_, dtype) in zip(found, promised)]

    def backward(self, inputs, saved, cotangents, wanted, platform):
        """Returns the gradients of the inputs `wanted`. Without a tape of this platform, the forward pass runs again."""
        given = inputs
        inputs, _ = clipped(self, stored(inputs, platform, ("bfloat16",)), platform)
        y, tape = saved
        y, *cotangents = stored([y, *cotangents], platform, ("bfloat16",))
        needed = self.bytes(inputs, platform)[0]
        if tape.size < needed:
            tape = self.run(inputs, needed, platform)[-1]
        kind = state_type(inputs[0].dtype)
        state = self.weights[-1] + 1
        inputs_wanted = [0] * (0 in wanted) + [*self.weights] + [state] * self.state
        workspace = self.bytes(inputs, platform, True, 0 in wanted)[1]
        arguments, attributes, parts, of_states = self.handled(inputs, 0 in wanted, platform)
        if parts:
            dy, dlast, *every = cotangents
            cotangents = parts.positions(dy), parts.gradients_after(dlast), *map(parts.positions, every)
            y = parts.positions(y)
        results = [(arguments[i].shape, arguments[i].dtype if i == 0 else kind) for i in inputs_wanted]
        found = call(f"{self.target}_backward", results, [*arguments, y, tape, *cotangents], attributes, workspace)
        gradients = dict(zip(inputs_wanted, found))
        if of_states:
            gradients[state] = of_states(gradients[state])
        if parts and 0 in wanted:
            gradients[0] = parts.sequence(gradients[0])
        return [gradients[i].astype(given[i].dtype) for i in wanted]

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
        return [(inputs[0].shape, inputs[0].dtype), ((rows, channels), state_type(inputs[0].dtype))]

    def run(self, target, results, arrays, backward, platform):
        """Calls a handler. Returns its outputs, and which rows have impossible lengths, as clipped()."""
        arrays, impossible = clipped(self, stored(arrays, platform, ()), platform)
        a = arrays[0]
        numbers = np.array([*dataclasses.astuple(self), *a.shape, TYPES[a.dtype.name]], np.int64)
        workspace = None if platform == "cpu" else max(scan_bytes(numbers, backward, gpu) for gpu in gpus())
        wide = [(shape, a.dtype if dtype == "bfloat16" or dtype == "float16" else dtype) for shape, dtype in results]
        found = call(target, wide, arrays, {"numbers": numbers}, workspace)
        return [array.astype(dtype) for array, (_, dtype) in zip(found, results)], impossible

    def forward(self, inputs, training, platform):
        found, impossible = self.run(self.target, self.results(inputs, training), inputs, False, platform)
        return marked(found, self.output_axes, impossible)

    def backward(self, inputs, saved, cotangents, wanted, platform):
        results = [(value.shape, value.dtype) for value in inputs[: self.floats]]
        found, _ = self.run(f"{self.target}_backward", results, [*inputs, *saved, *cotangents], True, platform)
        return [found[i] for i in wanted]

    def plain(self, *inputs):
        return _plain.scan(self, *inputs)
