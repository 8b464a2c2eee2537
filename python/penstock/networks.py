"""Published models: networks of any structure, read from files of other programs, with their state inside.

>>> import numpy as np, penstock
>>> vad = penstock.import_onnx("silero_vad.onnx", fixed={"sr": 16000})     # doctest: +SKIP
>>> session = penstock.NetworkSession(vad)                                 # doctest: +SKIP
>>> session.run(np.zeros((1, 576), np.float32))["output"]                  # doctest: +SKIP
array([[0.0005]], dtype=float32)
"""

from __future__ import annotations

import os
from typing import NamedTuple

from . import _core
from ._keywords import explain_keywords
from ._pickling import refuse_pickle
from .errors import InvalidArgument

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Union

    from numpy.typing import ArrayLike, NDArray

    Inputs = Union[ArrayLike, Mapping[str, ArrayLike]]

__all__ = ["Network", "NetworkSession", "NetworkTensor", "import_audio", "import_onnx"]

_TYPES = {"f32": "float32", "f64": "float64", "i8": "int8", "u8": "uint8", "i32": "int32", "i64": "int64", "bool": "bool"}


class NetworkTensor(NamedTuple):
    """An input of a network."""

    name: str
    type: str  #: "float32", "int64", ...
    shape: list[int]  #: -1: an extent that the caller chooses.
    axes: list[str]  #: Names of extents; equal names have equal extents. Empty: no name.


def _tensors(tuples: Sequence[tuple[str, str, list[int], list[str]]]) -> list[NetworkTensor]:
    return [NetworkTensor(name, _TYPES.get(type_, type_), shape, axes) for name, type_, shape, axes in tuples]


class Network:
    """A network of any structure. Immutable; sessions share its weights.

    :func:`import_onnx` makes one of an ONNX file, :func:`import_audio` one of a model of an amplifier or effect.

    Args:
        path: A file of :meth:`save` or of ``penstock import``.

    Raises:
        Incompatible: The file holds no network.
        BadInput: The file is damaged.
        IoFailure: The file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._network = _core.Network.load(os.fspath(path))

    @classmethod
    def _of(cls, network: _core.Network) -> Network:
        made = cls.__new__(cls)
        made._network = network
        return made

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Network:
        """Reads a file of :meth:`save`, as ``Network(path)`` does."""
        return cls(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file with a checksum, which C++, the program and Python read.

        Raises:
            IoFailure: The file cannot be written.
        """
        self._network.save(os.fspath(path))

    @property
    def inputs(self) -> list[NetworkTensor]:
        """Inputs without states: name, type, shape (-1: the caller chooses) and names of extents."""
        return _tensors(self._network.inputs())

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs without those that are the next values of states."""
        return [each[0] for each in self._network.outputs()]

    @property
    def delays(self) -> dict[str, int]:
        """{output: frames} of a stream: so many frames come before the first frame of the whole sequence."""
        return {name: delay for name, delay in self._network.delays().items() if delay}

    @property
    def states(self) -> dict[str, str]:
        """States: {name of the input: name of the output that is its next value}."""
        return {tensor[0]: output for tensor, output in self._network.states()}

    @property
    def operators(self) -> dict[str, int]:
        """Operators, and how many nodes have each."""
        return self._network.operators()

    @property
    def sample_rate(self) -> float:
        """Samples per second of a stream of sound; 0: the imported file did not say."""
        return self._network.sample_rate()

    @property
    def parameters(self) -> int:
        """Number of values in all constants."""
        return self._network.parameters()

    def run(self, inputs: Inputs) -> dict[str, NDArray]:
        """Runs the network once from zero states and returns {output: array}.

        Args:
            inputs: {input: array}, or the array of the only input. Shapes are those of the network; extents that are -1
                there may have any size.

        Raises:
            InvalidArgument: An input is missing, unknown, or has another shape or type.
            Unsupported: An operator cannot run with these shapes; the message names node and operator.
        """
        return NetworkSession(self).run(inputs)

    def __repr__(self) -> str:
        names = ", ".join(f"{each.name} {each.type} {each.shape}" for each in self.inputs)
        return f"<penstock.Network: {names} -> {', '.join(self.outputs)}; states: {', '.join(self.states) or 'none'}>"

    __reduce_ex__ = refuse_pickle("save() writes a file, and Network.load() reads it")


def import_onnx(
    file: str | os.PathLike[str] | bytes,
    *,
    fixed: Mapping[str, float | Sequence[float]] | None = None,
    states: Mapping[str, str] | None = None,
    find_states: bool = True,
    stream: bool | str = False,
) -> Network:
    """Makes a network of an ONNX model with operators of version 7 to 24.

    What depends on constants alone is computed, half precision becomes float32, and inputs that return as outputs
    become states, which a :class:`NetworkSession` keeps.

    Args:
        file: Path of the file, or its content. External data has to lie in the folder of the file.
        fixed: Inputs that become constants: ``{"sr": 16000}``. A list has a number for each element.
        states: Inputs and the outputs that are their next values, in addition to those that are found.
        find_states: False: ``states`` are all states.
        stream: True: sequences become chunks of any length. Convolutions keep the frames before a chunk, recurrences
            their states; a session's outputs are those of the whole sequence. A text names the extent that is time, or
            ``"axis 1"``; True: the one along which frames depend on each other.

    Raises:
        BadInput: The file is damaged.
        Unsupported: The network has what Penstock has not; the message names node, operator and reason. Or it is not
            clear which inputs are states; the message has the candidates. Or a stream would need later frames; the
            message names the node.
        InvalidArgument: ``fixed``, ``states`` or ``stream`` do not match the file.
        IoFailure: The file cannot be read.
    """
    numbers = {}
    for name, value in (fixed or {}).items():
        try:
            numbers[name] = [float(value)]  # type: ignore[arg-type]
        except TypeError:
            numbers[name] = [float(each) for each in value]  # type: ignore[union-attr]
    pairs = list((states or {}).items())
    time = None if stream is False else "" if stream is True else stream
    if isinstance(file, bytes):
        return Network._of(_core.Network.import_bytes(file, numbers, pairs, find_states, time))
    return Network._of(_core.Network.import_path(os.fspath(file), numbers, pairs, find_states, time))


def import_audio(file: str | os.PathLike[str] | bytes) -> Network:
    """Makes a stream of samples of a model of an amplifier or effect.

    It reads JSON of RTNeural, with the extensions of AIDA-X; JSON of GuitarML (``SimpleRNN`` of
    Automated-GuitarAmpModelling, as Proteus reads it); and LSTMs of Neural Amp Modeler (``.nam``). The input is
    ``input`` ``[batch, time, channels]``, the output ``output``. A ``.nam`` with initial states has a batch of 1.

    Args:
        file: Path of the file, or its content.

    Raises:
        BadInput: The file is damaged.
        Unsupported: The model has what Penstock has not; the message names layer and reason.
        Incompatible: The file holds something else.
        IoFailure: The file cannot be read.
    """
    return Network._of(_core.Network.import_audio(file if isinstance(file, bytes) else os.fspath(file)))


class NetworkSession:
    """Runs a network on a stream: each run continues from the state that the run before left.

    Args:
        network: A :class:`Network`.
        shapes: {input: shape} for inputs with extents of -1; states by the names of their inputs. None: the first run
            chooses them. Extents of states that no input names are 1.

    Raises:
        InvalidArgument: A shape is missing, unknown or wrong.
        Unsupported: An operator cannot run with these shapes; the message names node and operator.
    """

    def __init__(self, network: Network, shapes: Mapping[str, Sequence[int]] | None = None) -> None:
        self.network = network
        self._shapes = None if shapes is None else {name: list(shape) for name, shape in shapes.items()}
        self._session: _core.NetworkSession | None = None
        self._others: dict[tuple[tuple[int, ...], ...], _core.NetworkSession] = {}  # by shapes of their inputs
        if shapes is not None or all(min(each.shape, default=0) >= 0 for each in network.inputs):
            self._open({})

    def _open(self, arrays: dict[str, NDArray]) -> _core.NetworkSession:
        shapes = {name: list(array.shape) for name, array in arrays.items()}
        session = _core.NetworkSession(self.network._network, shapes if self._shapes is None else self._shapes)
        self._inputs, self._outputs = _tensors(session.inputs()), _tensors(session.outputs())
        self._session = session
        return session

    def run(self, inputs: Inputs) -> dict[str, NDArray]:
        """Computes outputs and the next state, and returns {output: array}.

        Args:
            inputs: {input: array}, or the array of the only input. Chunks may have other lengths than those before: the
                first of a new shape prepares the network for it.

        Raises:
            InvalidArgument: An input is missing, unknown, or has a wrong type; or a shape with which the state would
                have another size.
        """
        import numpy as np

        expected = self.network.inputs
        given: Mapping[str, Any] = inputs if hasattr(inputs, "keys") else {expected[0].name: inputs} if expected else {}  # type: ignore[assignment]
        names = [each.name for each in expected]
        if set(given) != set(names) or (len(names) != 1 and not hasattr(inputs, "keys")):
            raise InvalidArgument(f"inputs must be {', '.join(names) or 'none'}, not {', '.join(map(str, given)) or 'none'}")
        arrays = {}
        for tensor in expected:
            array = np.asarray(given[tensor.name])
            if array.dtype != tensor.type and not (array.dtype.kind == "f" and tensor.type == "float32" and array.ndim == 0):
                raise InvalidArgument(f"input {tensor.name} must be of type {tensor.type}, not {array.dtype}")
            arrays[tensor.name] = np.ascontiguousarray(array, tensor.type).reshape(array.shape)
        session = self._for_shapes(arrays)
        results = session.run([arrays[tensor.name] for tensor in self._inputs])
        return {
            tensor.name: np.frombuffer(data, tensor.type).reshape(tensor.shape).copy()
            for tensor, data in zip(self._outputs, results)
        }

    __call__ = run

    def _for_shapes(self, arrays: dict[str, NDArray]) -> _core.NetworkSession:
        """The session with the state so far for these shapes."""
        session = self._session or self._open(arrays)
        shapes = {name: list(array.shape) for name, array in arrays.items()}
        if shapes == {tensor.name: tensor.shape for tensor in self._inputs}:
            return session
        key = tuple(map(tuple, shapes.values()))
        self._others[tuple(tuple(tensor.shape) for tensor in self._inputs)] = session
        if key in self._others:
            state = session.state()
            session = self._others[key]
            session.set_state(state)
        else:
            session = session.clone_for({**(self._shapes or {}), **shapes})
        self._session, self._inputs, self._outputs = session, _tensors(session.inputs()), _tensors(session.outputs())
        return session

    def reset(self) -> None:
        """Sets the state to zero."""
        if self._session is not None:
            self._session.reset()

    @property
    def state(self) -> bytes:
        """A copy of the state. Set it to continue from there, also in another session with the same shapes."""
        return self._opened().state()

    @state.setter
    def state(self, state: bytes) -> None:
        self._opened().set_state(state)

    def clone(self) -> NetworkSession:
        """Returns a session with the same shapes and state."""
        other = NetworkSession.__new__(NetworkSession)
        other.__dict__.update(self.__dict__)
        other._session, other._others = self._opened().clone(), {}
        return other

    def _opened(self) -> _core.NetworkSession:
        if self._session is None:
            raise InvalidArgument("the session has no shapes yet: give shapes=, or run it once")
        return self._session

    __reduce_ex__ = refuse_pickle("save its state, and make another one of its network")


explain_keywords(globals())
