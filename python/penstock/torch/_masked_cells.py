"""Layers with masks in their recurrence as one call: cells with one more gate, which holds the masks as numbers."""

import functools
import hashlib
import json

import torch

from penstock import variants

from .. import _core
from ._ops import run_layers

#: By cell: the function of penstock.variants that makes variants of it, with the same weights.
VARIANTS = {
    "elman": variants.elman,
    "elman-relu": functools.partial(variants.elman, activation="relu"),
    "gru": variants.gru,
    "lstm": variants.lstm,
}

#: Limits of the library for dense cells.
_MOST_GATES, _MOST_STATES = 5, 4


def _equations(cell):
    """Returns the cell as data. None for a built-in cell that no variant writes."""
    if cell in VARIANTS:
        return json.loads(VARIANTS[cell](name=f"{cell}-as-data").json)
    text = None if cell in {each["name"] for each in _core.cells()} else _core.cell_json(cell)
    return text and json.loads(text)


def _add_masks(given, zoned, drops):
    """Adds a gate to the cell's data, the sum of 2^k for each state k in `zoned` that keeps its value and 2^S for a unit
    that is dropped from the recurrent product. With `drops`, the output is what the product reads, and one more state
    holds h."""
    nodes, gates, states = given["nodes"], given["gates"], len(given["states"])

    def add(op, *operands, **more):
        nodes.append({"op": op, **({"of": list(operands)} if operands else {}), **more})
        return len(nodes) - 1

    if drops:
        for node in nodes:
            if node["op"] == "state" and node["index"] == 0:
                node["index"] = states
        given["states"].append("undropped")
    code = add("add", add("input", index=gates), add("recurrent", index=gates))
    outputs = given["outputs"]
    for bit in sorted([*zoned, *([states] if drops else [])], reverse=True):
        value = add("constant", value=float(2**bit))
        holds = add("less_equal", value, code)
        code = add("subtract", code, add("multiply", holds, value))
        if bit == states:
            dropped = holds
        else:
            before = add("state", index=states if drops and bit == 0 else bit)
            outputs[bit] = add("where", holds, before, outputs[bit])
    if drops:
        outputs.append(outputs[0])
        outputs[0] = add("where", dropped, add("constant", value=0.0), outputs[0])
    given["gates"] = gates + 1


@functools.cache
def masked_cell(cell, zoned, drops):
    """Returns the name of the cell with a gate of masks. None if the library cannot have it."""
    given = _equations(cell)
    if given is None or given["gates"] >= _MOST_GATES or len(given["states"]) + drops > _MOST_STATES:
        return None
    _add_masks(given, zoned, drops)
    given["description"] = f"{cell} with masks"[:200]
    given["name"] = "masked-" + hashlib.sha256(json.dumps(given).encode()).hexdigest()[:24]
    _core.define_cell(json.dumps(given), "cell")
    return given["name"]


def _backwards(tensor, lengths):
    """Reverses the steps of each row of [T, B, ...]; those beyond its length stay."""
    if lengths is None:
        return tensor.flip(0)
    steps = torch.arange(tensor.shape[0], device=tensor.device).unsqueeze(1)
    order = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return tensor.take_along_dim(order.view(*order.shape, *[1] * (tensor.dim() - 2)), 0)


def _with_mask_gate(weight, bias, hidden):
    """Returns a recurrent matrix and its bias with zeros for the gate of masks."""
    rows = hidden if weight.dim() == 2 else weight.shape[-1]
    zeros = weight.new_zeros(*weight.shape[:-2], rows, weight.shape[-1])
    return torch.cat([weight, zeros], -2), None if bias is None else torch.cat([bias, bias.new_zeros(hidden)])


def run_masked(cell, wx, weight_hh, bias_hh, learnt, states, rows, reverse, kept, keeps, dropped, share):
    """Runs one direction of a layer with masks. `cell` is the name that masked_cell() returned.

    Args:
        wx: W x with its bias ``[T, B, G * H]``.
        learnt: Learnt vectors ``[K, H]``, or ().
        rows: (lengths ``[B]`` or None, reset ``[T, B]`` or None).
        kept: Number of states to return for each step.
        keeps: By state that has zoneout, bool ``[T, B, H]``: True keeps the value.
        dropped: bool ``[B, H]`` or None: units that the recurrent product does not read. The others are divided by
            1 - share.

    The states ``[B, H]`` may have those of resets behind them.

    Returns the first `kept` states after each step, each ``[T, B, H]``, and the last states.
    """
    lengths, reset = rows
    hidden, count = states[0].shape[-1], len(states)
    code = wx.new_zeros(*wx.shape[:2], hidden)
    for state, keep in keeps.items():
        code += keep * 2**state
    if dropped is not None:
        code += dropped * 2**count
        weight_hh = weight_hh / (1 - share)
        more = len(states[0]) - len(dropped)  # states of resets: one for all rows, one a row, or one a step
        if more == 1:
            states, more = tuple(torch.cat([s[:-1], s[-1:].expand(dropped.shape)]) for s in states), len(dropped)
        masks = torch.cat([dropped, dropped.repeat_interleave(more // len(dropped), 0)])
        states = (states[0].masked_fill(masks, 0), *states[1:], states[0])
    wx = torch.cat([wx, code], -1)
    if reverse:
        wx, reset = _backwards(wx, lengths), None if reset is None else _backwards(reset, lengths)
    matrix, bias_hh = _with_mask_gate(weight_hh, bias_hh, hidden)
    weights = [matrix.new_empty(wx.shape[-1], 0), matrix]
    if len(learnt) or bias_hh is not None:
        weights.append(torch.cat([matrix.new_zeros(wx.shape[-1]), *learnt]))
    if bias_hh is not None:
        weights.append(bias_hh)
    every_state = dropped is not None or kept > 1
    form = (cell, 1, False, False, every_state)
    mask = None if reset is None else reset.t().contiguous()
    y, *last = run_layers(wx, weights, tuple(s.unsqueeze(0) for s in states), (lengths, None, mask), *form)
    every = [y]
    if every_state:
        every += last.pop().unflatten(-1, (len(states) - 1, hidden)).unbind(-2)
    last = [s.squeeze(0) for s in last]
    if dropped is not None:
        every[0], last[0] = every.pop(), last.pop()
    if reverse:
        every = [_backwards(s, lengths) for s in every[:kept]]
    return tuple(every[:kept]), tuple(last)

