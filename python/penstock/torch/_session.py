"""Networks on streams: chunks of a sequence, with the states of recurrent layers kept from chunk to chunk."""

import torch
from torch import nn

from .._pickling import refuse_pickle
from ._cells import Cell
from ._model import SequenceModel

_CELLS = (Cell, nn.RNNCellBase)
_WITH_STATES = (nn.RNNBase, SequenceModel, *_CELLS)  # our RNNBase is one of nn.RNNBase


class Session:
    """Runs a network on a stream, chunk by chunk. Recurrent layers and cells start from the state after the last chunk.

    The outputs are those of the whole sequence if all other layers treat each step by itself.

    Args:
        model: A module with recurrent layers or cells of :mod:`penstock.torch` or ``torch.nn``, at any depth. It is set
            to evaluation mode.

    Attributes:
        state: {name of a layer: its states, in the order of its calls in a chunk}; empty at the start. ``torch.save``
            takes it, and assigning it continues from there.

    Raises:
        TypeError: ``model`` is not a module.
        ValueError: There is no recurrent layer, or one that cannot run in chunks: it is bidirectional, or several
            processes share its sequences.

    >>> import torch, penstock.torch
    >>> layer = penstock.torch.GRU(3, 5)
    >>> session, x = Session(layer), torch.ones(6, 1, 3)
    >>> chunks = torch.cat([session.process_chunk(x[:4]), session.process_chunk(x[4:])])
    >>> torch.allclose(chunks, layer(x)[0])
    True
    """

    def __init__(self, model):
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
        self._layers = {n: m for n, m in model.named_modules() if isinstance(m, _WITH_STATES)}
        if not self._layers:
            raise ValueError(f"model must have a recurrent layer, got {type(model).__name__}")
        for name, layer in self._layers.items():
            shared = getattr(layer, "process_group", None) is not None
            if shared or getattr(layer, "bidirectional", False):
                why = "several processes share its sequences" if shared else "it reads the steps after a chunk"
                raise ValueError(f"{name or 'model'} cannot run in chunks: {why}; got {layer}")
        self.model = model.eval()
        self.state = {}

    def process_chunk(self, *inputs, **options):
        """Runs the model on the next chunk and returns what it returns; for a recurrent layer, the outputs alone.

        Args:
            inputs: The arguments of the model, such as ``[B, T, I]``. Chunks may differ in length, not in rows.
            options: Keyword arguments of the model.

        Raises:
            ValueError: The model gives a layer its first state itself, or the number of rows has changed. The state is
                as before the call.
        """
        after = {name: [] for name in self._layers}
        hooks = []
        for name, layer in self._layers.items():
            hooks.append(layer.register_forward_pre_hook(self._entering(name, after[name]), with_kwargs=True))
            hooks.append(layer.register_forward_hook(_leaving(after[name])))
        try:
            with torch.inference_mode():
                results = self.model(*inputs, **options)
        finally:
            for hook in hooks:
                hook.remove()
        self.state = {name: states for name, states in after.items() if states}
        return results[0] if isinstance(self.model, (nn.RNNBase, SequenceModel)) else results

    def reset_state(self):
        """Returns to the start of a sequence."""
        self.state = {}

    run, reset = process_chunk, reset_state  #: Other names, as in :class:`penstock.Session`.

    __reduce_ex__ = refuse_pickle("save its model and its state by torch.save")

    def _entering(self, name, after):
        """Returns a hook that gives a layer the state that it left in the last chunk."""

        def enter(layer, inputs, options):
            is_cell = isinstance(layer, _CELLS)
            if is_cell and after:  # a later step of this chunk
                return None
            word = "state" if isinstance(layer, SequenceModel) else "hx"
            if (inputs[1] if len(inputs) > 1 else options.get(word)) is not None:
                raise ValueError(
                    f"the model gives {name or type(layer).__name__} its first state, and a Session has to: call the layer "
                    f"without {word}"
                )
            kept = self.state.get(name)
            if kept is None:
                return None
            if len(after) == len(kept):
                raise ValueError(f"the model calls {name or type(layer).__name__} more often than in the last chunk")
            state = kept[len(after)]
            _check_rows(layer, inputs[0] if inputs else options["input"], state)
            return inputs[:1], {**options, word: state}

        return enter


def _leaving(after):
    """Returns a hook that keeps the last state of a layer."""

    def leave(layer, inputs, results):
        if isinstance(layer, _CELLS):
            after[:] = [results]
        else:
            after.append(results[1])

    return leave


def _check_rows(layer, x, state):
    """Raises ValueError if the input of a layer or a cell has other rows than its state."""
    if isinstance(layer, SequenceModel) or not isinstance(x, torch.Tensor):
        return
    first = state if isinstance(state, torch.Tensor) else state[0]
    is_cell = isinstance(layer, _CELLS)
    rows = x.shape[:1] if is_cell else x.shape[0 if layer.batch_first else 1 :][:1]
    has_rows = x.dim() == (2 if is_cell else 3)
    if first.shape[0 if is_cell else 1 : -1] != (rows if has_rows else ()):
        raise ValueError(
            f"a chunk has the input {list(x.shape)} for a state {list(first.shape)} of other rows: call reset_state() "
            "before other sequences"
        )
