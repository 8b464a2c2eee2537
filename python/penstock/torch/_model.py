"""Models of `penstock train` as PyTorch modules."""

import json
import math
import os

import torch
from torch import nn
from torch.nn import functional

from .. import _core
from .._cell_forms import CELLS, parameter_shapes
from .._hub import Pretrained
from ..equations import with_equations
from ._checks import is_exported
from ._convolution import causal_convolution, inputs_before
from ._counter_dropout import counter_dropout, keys_of
from ._ops import run_layers
from ._parallel_layer import Reach, shared_layer
from ._sequence_parallel import Shared, agree_on_chunks, agree_to_share, from_before

_FORMAT_VERSION = 2  # version of descriptions
_EPSILON = 1e-6
_TAPS = 9  # taps of a filter
_MOST_CHANNELS = 16  # largest number of channels that filters read


class _Norm(nn.Module):
    """RMS norm: x / sqrt(mean(x^2) + epsilon) * gain."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        if torch.onnx.is_in_onnx_export():  # the older exporter does not know rms_norm
            return x * (x.square().mean(-1, keepdim=True) + _EPSILON).rsqrt() * self.gain
        return functional.rms_norm(x, self.gain.shape, self.gain, _EPSILON)


class _Convolution(nn.Module):
    """Causal depthwise convolution: y_t = bias + sum_j weight_j x_{t-j}. Its state is the last taps - 1 inputs."""

    shared = None  # by processes: a Shared

    def __init__(self, width, taps):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(taps, width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x, state, reset=None):
        """Returns y [B, T, C] and the state [B, taps - 1, C]. Where `reset` [B, T] is True, the past counts as zeros."""
        kept = self.weight.shape[0] - 1
        if self.shared is not None:  # this chunk's last inputs go to the next process
            state = from_before(self._last_inputs(x, reset), state, self.shared.group)
        y = causal_convolution(x, state, self.weight, self.bias, reset)
        whole = inputs_before(x, state, kept + 1) if is_exported() or x.shape[1] < kept else x
        return y, self._last_inputs(whole, reset)

    def _last_inputs(self, x, reset):
        """Returns the last taps - 1 inputs, with zeros for those before the last reset."""
        kept = self.weight.shape[0] - 1
        last = x[:, x.shape[1] - kept :]
        if reset is None:
            return last
        numbers = functional.pad(reset.cumsum(1), (kept, 0))[:, reset.shape[1] :]  # of the sequence of each step
        return last * (numbers == numbers[:, -1:]).unsqueeze(-1)


class Recurrence(nn.Module):
    """One recurrent layer with one bias."""

    shared = None  # by processes: a Shared
    reach = None  # of a layer that is shared: a Reach

    def __init__(self, cell, inputs, hidden, heads):
        super().__init__()
        self.cell = cell
        for name, shape in parameter_shapes(cell, inputs, hidden, heads, "single").items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def __getstate__(self):
        return {**vars(self), "cell": with_equations(self.cell)}  # known where it is unpickled

    def __setstate__(self, state):
        super().__setstate__({**state, "cell": str(state["cell"])})

    def forward(self, x, state, reset=None):
        if self.shared is not None:
            h0 = None if state is None else state[0, 0]
            form = (None, reset, self.cell, False, self.shared.group, self.reach)
            y, last = shared_layer(x, list(self.parameters()), h0, *form)
            return y, last[None, None]
        states = () if state is None else state.unbind(0)
        rows = (None, None, reset)
        y, *last = run_layers(x, list(self.parameters()), states, rows, self.cell, 1, False, True, False)
        return y, torch.stack(last)


class _FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up = nn.Linear(width, 2 * inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        gate, value = self.up(x).chunk(2, -1)
        return self.down(functional.silu(gate) * value)


class _Block(nn.Module):
    def __init__(self, spec, index):
        super().__init__()
        width, hidden = spec["width"], spec["hidden_size"] or spec["width"]
        self.dropout = spec["dropout"]
        self.recurrent_norm = _Norm(width) if spec["end_norms"] or index > 0 else None
        self.convolution = _Convolution(width, spec["convolution"]) if spec["convolution"] > 0 else None
        self.recurrent = Recurrence(spec["cell"], width, hidden, spec["heads"])
        self.projection = nn.Linear(hidden, width) if hidden != width else None
        inner = max(1, math.floor(spec["feed_forward"] * width + 0.5)) if spec["feed_forward"] else 0
        self.feed_forward_norm = _Norm(width) if inner else None
        self.feed_forward = _FeedForward(width, inner) if inner else None

    def forward(self, x, state, reset=None, masks=None):
        """Returns x [B, T, width] and the state: that of the convolution, if there is one, and that of the layer."""
        state = dict(state)
        branch = x if self.recurrent_norm is None else self.recurrent_norm(x)
        if self.convolution is not None:
            branch, state["convolution"] = self.convolution(branch, state.get("convolution"), reset)
        branch, state["recurrent"] = self.recurrent(branch, state.get("recurrent"), reset)
        if self.projection is not None:
            branch = self.projection(branch)
        x = x + self._drop(branch, masks, 0)
        if self.feed_forward is not None:
            branch = self.feed_forward(self.feed_forward_norm(x))
            x = x + self._drop(branch, masks, 1)
        return x, state

    def _drop(self, branch, masks, number):
        if masks is None or not self.training:
            return functional.dropout(branch, self.dropout, self.training)
        return counter_dropout(branch, self.dropout, masks[number], masks[2])


class _LinearForecast(nn.Module):
    """A linear forecast from the last rows, fitted beforehand. Each channel reads one column."""

    def __init__(self, width, inputs, lags, known_effects):
        super().__init__()
        self.spread = nn.Linear(inputs, width)
        self.known = nn.Linear(inputs, width) if known_effects else None
        filter_ = _Convolution(width, lags)
        self.weight, self.bias = filter_.weight, filter_.bias
        self._filter = [filter_]  # inside a list: the parameters belong to this module, not to a child
        self.requires_grad_(False)

    def forward(self, x, state, reset=None):
        filter_ = self._filter[0]
        filter_.weight, filter_.bias = self.weight, self.bias
        forecast, state = filter_(self.spread(x), state, reset)
        return forecast if self.known is None else forecast + self.known(x), state


class _Filters(nn.Module):
    """The filters of one bank: taps over delayed inputs, thresholds, and the evidence for each class."""

    def __init__(self, channels, filters, span, kept):
        super().__init__()
        self.delay = _Convolution(channels, span)
        self.combine = nn.Linear(channels, 2 * filters)
        self.evidence = nn.Linear(filters, kept)

    def forward(self, x, state):
        delayed, state = self.delay(x, state)
        gate, value = self.combine(delayed).chunk(2, -1)
        return self.evidence(functional.silu(gate) * value), state


class _FilterBank(nn.Module):
    """Evidence of all filters for the classes, as a mean over the steps so far. Fitted beforehand."""

    def __init__(self, inputs, outputs, filters, dilations):
        super().__init__()
        channels = _TAPS * min(_MOST_CHANNELS, inputs)
        self.spread = nn.Linear(inputs, channels)
        for i in range(2 * dilations):  # two banks per dilation: one reads values, the other differences
            span = (_TAPS - 1) * 2 ** (i // 2) + 1 + i % 2
            self.add_module(str(i), _Filters(channels, filters // 2, span, outputs + 1))
        self._banks = 2 * dilations
        self.sum = Recurrence("mingru", outputs + 1, outputs + 1, 1)
        self.norm = _Norm(outputs + 1)
        self.output = nn.Linear(outputs + 1, outputs)
        self.requires_grad_(False)

    def forward(self, x, state):
        state, spread, evidence = dict(state), self.spread(x), 0
        for i in range(self._banks):
            said, state[i] = getattr(self, str(i))(spread, state.get(i))
            evidence = evidence + said
        sums, state["sum"] = self.sum(evidence, state.get("sum"))
        return self.output(self.norm(sums)), state


def _add_layers(module, spec, data, inputs, outputs):
    """Adds the layers between inputs and outputs to a module: a model or one member of an ensemble."""
    width = spec["width"]
    if data["vocabulary"] > 0:
        module.embedding = nn.Embedding(data["vocabulary"], width)
    else:
        module.input = nn.Linear(inputs, width)
    module.blocks = nn.ModuleList(_Block(spec, index) for index in range(spec["blocks"]))
    module.norm = _Norm(width) if spec["end_norms"] else None
    module.head = nn.Linear(width, outputs)


def _run_layers(module, x, state, reset=None, masks=None):
    """Returns the outputs of the head, and the states of the blocks by their numbers."""
    x = module.embedding(x) if hasattr(module, "embedding") else module.input(x)
    after = {}
    keys = [None] * len(module.blocks) if masks is None else keys_of(masks, len(module.blocks))
    for i, block in enumerate(module.blocks):
        x, after[i] = block(x, state.get(i, {}), reset, keys[i])
    return module.head(x if module.norm is None else module.norm(x)), after


class SequenceModel(Pretrained, nn.Module):
    """A model of ``penstock train``: embedding or linear input, blocks of norm, recurrent layer and residual, head.

    The keys of the ``state_dict`` are the names of the tensors in the model file. An ensemble (``spec["members"]``
    above 1) is the sum of its members; their heads were divided by the number of members.

    Args:
        spec: The architecture, as in the model file (:attr:`penstock.Model.spec`).
        data: The description of the data, as in the model file (:attr:`penstock.Model.data`).

    >>> import penstock.torch
    >>> model = penstock.torch.SequenceModel.load("model.safetensors")  # doctest: +SKIP
    >>> logits, state = model(torch.tensor([[72, 105]]))  # doctest: +SKIP
    """

    _shared = None  # by processes: a Shared

    def __init__(self, spec, data):
        super().__init__()
        self.spec = {"from_last": False, "end_norms": True, "lags": 0, "known_effects": False, **spec}
        self.data = dict(data)
        self._members = self.spec.get("members", 1)
        inputs, targets = len(data["inputs"]), len(data["targets"])
        self._columns = _shared_columns(data) if self.spec["from_last"] else []
        outputs = len(data["classes"]) or data["vocabulary"] or targets * data["horizon"]
        if self._members > 1:
            self.members = nn.ModuleList(nn.Module() for _ in range(self._members))
        for module in self.members if self._members > 1 else [self]:
            _add_layers(module, self.spec, data, inputs + len(self._columns), outputs)
        lags = self.spec["lags"] if self.spec["from_last"] else 0
        effects = self.spec["known_effects"]
        self.autoregression = _LinearForecast(outputs, inputs, lags, effects) if lags > 0 else None
        filters, dilations = self.spec.get("filters", 0), self.spec.get("dilations", 0)
        self.filters = _FilterBank(inputs, outputs, filters, dilations) if filters > 0 else None

    @classmethod
    def load(cls, path):
        """Reads a model or a checkpoint with the checks of :meth:`penstock.Model.load`. Returns it in evaluation mode.

        Raises:
            BadInput: The file is damaged.
            Incompatible: The file has other content, or belongs to a newer version.
            IoFailure: The file cannot be read.
        """
        text, parameters = _core.read_model_parts(os.fspath(path))
        description = json.loads(text)
        model = cls(description["model"], description["data"])
        model.load_state_dict({name: torch.from_numpy(array) for name, array in parameters.items()})
        return model.eval()

    def save(self, path):
        """Writes a model file for ``penstock predict``, ``generate`` and ``stream``.

        Raises:
            IoFailure: The file cannot be written.
        """
        write_model(path, self.spec, self.data, self.state_dict())

    def forward(self, x, state=None, *, reset=None, masks=None):
        """Runs the model and returns ``(outputs, state)``.

        Args:
            x: Tokens ``[B, T]``, or normalised features ``[B, T, I]``.
            state: The state that the previous call returned, to continue its sequences. None: the start of a sequence.
            reset: True ``[B, T]`` where a sequence starts, before which the state is zeroed. None: nowhere.
            masks: In training, int64 ``[2]``: the seed of this step's dropout masks and the number of the first row in
                the whole batch. Any division of a batch then draws the masks of the whole. None: masks by
                ``torch.manual_seed``.

        Returns:
            Logits ``[B, T, vocabulary]``, normalised forecasts ``[B, T, horizon * targets]`` or logits of classes
            ``[B, T, classes]``; and the state, a dictionary.
        """
        state = {} if state is None else dict(state)
        if reset is not None and (self._members > 1 or self.filters is not None):
            raise ValueError("reset is for single models without filters: start the other sequences with state=None")
        if self._shared is not None:
            taps = self.spec["convolution"]
            agree_on_chunks(self._shared.group, x, max(1, taps - 1), f"a convolution of {taps} taps" if taps else "a layer")
        features = x
        if self.data["vocabulary"] == 0 and self.spec["from_last"]:
            x = self._changes(x, state, reset)
        if self._members == 1:
            y, after = _run_layers(self, x, state, reset, masks)
            state.update(after)
        else:
            before = state.get("members", [{}] * self._members)
            results = [_run_layers(member, x, own) for member, own in zip(self.members, before)]
            y, state["members"] = sum(y for y, _ in results), [after for _, after in results]
        if self.spec["from_last"]:
            y = y + self._last_values(features)
            if self.autoregression is not None:
                forecast, state["autoregression"] = self.autoregression(
                    features, state.get("autoregression"), reset
                )
                y = y + forecast
        if self.filters is not None:
            said, state["filters"] = self.filters(features, state.get("filters", {}))
            y = y + said
        return y, state

    def share_sequences(self, process_group):
        """Divides each sequence among the processes of a group. Call it on all of them.

        Each process then gives :meth:`forward` its chunk of the steps, in the order of ranks, and gets the outputs and
        the state of this chunk. Only the process with the first chunk reads ``state``. All processes have to run the
        backward pass. Each gets the gradients of its chunk: sum them over the processes.

        Args:
            process_group: A group of torch.distributed. None: sequences are whole again.

        Raises:
            ValueError: The layers have recurrent matrices, so their steps follow each other. Or the model has members
                or filters, or reads changes: these look beyond a chunk. Or the processes have different models. Every
                process raises, and names the one that cannot. So does :meth:`forward` for a chunk that is too short.
            RuntimeError: A process has not called this within 45 s.
        """
        if process_group is not None:
            sizes = {"vocabulary": self.data["vocabulary"], "classes": len(self.data["classes"])}
            agree_to_share(process_group, {**self.spec, **sizes}, self._refusal_to_share())
        self._shared = None if process_group is None else Shared(process_group)
        for module in self.modules():
            if isinstance(module, (_Convolution, Recurrence)):
                module.shared = self._shared
            if isinstance(module, Recurrence):
                module.reach = Reach()

    def _refusal_to_share(self):
        """Returns why processes cannot divide the sequences of this model; empty if they can."""
        _, states, scans = CELLS[self.spec["cell"]]
        if not scans or states > 1:
            return (
                f"layers of {self.spec['cell']} run step by step, so processes would wait for each other: choose mingru "
                "or minlstm, or divide the batch instead (DistributedDataParallel)"
            )
        if self._members > 1 or self.filters is not None or self.spec["from_last"]:
            return "share_sequences is for single models of tokens or labels, without filters or changes"
        return ""

    def _changes(self, x, state, reset):
        """Returns the features, and the changes of forecast columns from the previous row. Forecast columns are bounded
        by tanh."""
        if not self._columns:
            return x
        scale = math.sqrt((self.data["horizon"] + 1) / 2)
        index = [c["input"] for c in self._columns]
        values = x[..., index]
        factors = x.new_tensor([scale * c["factor"] for c in self._columns])
        first = state.get("last", values[:, :1])  # start of a sequence: no change
        before = torch.cat([first, values[:, :-1]], 1)
        if reset is not None:
            before = torch.where(reset.unsqueeze(-1), values, before)
        state["last"] = values[:, -1:]
        bounded = x.clone()
        bounded[..., index] = torch.tanh(values)
        return torch.cat([bounded, factors * (values - before)], -1)

    def _last_values(self, features):
        """Returns the values from which forecasts start, [B, T, horizon * targets]."""
        targets = len(self.data["targets"])
        last = features.new_zeros(*features.shape[:-1], targets)
        for column in self._columns:
            last[..., column["target"]] = column["offset"] + column["factor"] * features[..., column["input"]]
        return last.repeat(1, 1, self.data["horizon"])


def write_model(path, spec, data, state):
    """Writes a model file of a description and a ``state_dict``."""
    description = {"format_version": _FORMAT_VERSION, "model": spec, "data": data}
    tensors = {name: tensor.detach().float().cpu().numpy() for name, tensor in state.items()}
    _core.write_model_parts(os.fspath(path), json.dumps(description), tensors)


def _shared_columns(data):
    """Returns the columns that are both inputs and targets.

    `offset + factor * input` converts a normalised input to the normalisation of the target.
    """
    first = {column["name"]: (i, column) for i, column in reversed(list(enumerate(data["inputs"])))}
    return [
        {
            "input": i,
            "target": target,
            "factor": source["scale"] / to["scale"],
            "offset": (source["mean"] - to["mean"]) / to["scale"],
        }
        for target, to in enumerate(data["targets"])
        for i, source in ([first[to["name"]]] if to["name"] in first else [])
    ]
