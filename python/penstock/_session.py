"""Models on streams, step by step."""

from __future__ import annotations

from . import _core
from ._execution import execution
from ._given import model_of
from ._pickling import refuse_pickle

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import ArrayLike, NDArray

    from ._types import Buffer
    from .models import Model


class Session:
    """Runs a model step by step on a stream.

    A step allocates nothing and takes no lock in the library. In Python it allocates only the array of the answer, and
    nothing with ``out``.

    Args:
        model: A :class:`Model`. The session keeps its current weights; later training affects only new sessions.
        device: As for :class:`Model`. None: the model's default device.
        precision: As for :meth:`Model.forward`.
        exact: True: the answers have the bits of ``Model.forward(..., exact=True)``. On a CPU they always have.
    """

    def __init__(
        self, model: Model, *, device: str | None = None, precision: str = "full", exact: bool = False
    ) -> None:
        self.model = model
        self._session = _core.Session(model_of(model), execution("auto", model._on(device), 1, exact, precision))

    def push(self, step: int | ArrayLike, *, out: Buffer | None = None) -> NDArray:
        """Runs one step and returns the outputs ``[O]``.

        Args:
            step: A token (int), or normalised float32 features ``[I]``.
            out: Array for the outputs, float32 ``[O]``. None: a new array.

        Raises:
            InvalidArgument: The step has the wrong shape, or the model reads the other kind of step.
        """
        outputs: Any = self._session.push(step, out)
        return outputs

    def run(self, steps: ArrayLike, *, out: Buffer | None = None) -> NDArray:
        """Runs a chunk of steps, as :meth:`push` does one after the other, and returns the outputs ``[T, O]``.

        Args:
            steps: Tokens, int32 ``[T]``, or normalised float32 features ``[T, I]``.
            out: Array for the outputs, float32 ``[T, O]``. None: a new array.

        Raises:
            InvalidArgument: A step is wrong; the message has its number. The state is as before the call.
        """
        outputs: Any = self._session.run(steps, out)
        return outputs

    process_chunk = run  #: Another name of :meth:`run`.

    @property
    def state(self) -> NDArray:
        """A copy of the state after the steps so far, float32. Set it to continue from there.

        It fits all sessions of the same model, so ``numpy.save`` and ``numpy.load`` continue a stream in another
        process.
        """
        state: Any = self._session.state()
        return state

    @state.setter
    def state(self, value: ArrayLike) -> None:
        self._session.restore(value)

    def clone(self) -> Session:
        """Returns a session that continues from the same state, with the weights of this session."""
        other = object.__new__(type(self))
        other.model, other._session = self.model, self._session.clone()
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        return self.clone()

    __copy__ = clone
    __reduce_ex__ = refuse_pickle(
        "pickle session.model and session.state; other = penstock.Session(model) and other.state = state continue there"
    )

    def reset(self) -> None:
        """Returns to the start of a sequence."""
        self._session.reset()

    reset_state = reset  #: Another name of :meth:`reset`.

    def __repr__(self) -> str:
        return f"<penstock.Session of {self.model!r}>"
