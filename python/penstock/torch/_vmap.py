"""The ops under vmap. Calls that share their weights become rows of one call."""

import torch


def _each(size, dims, arguments):
    """Yields the arguments of each of `size` calls. `dims` gives the axis along which a tensor holds all calls."""

    def pick(value, dim, i):
        if isinstance(value, (list, tuple)) and isinstance(dim, (list, tuple)):
            return [pick(v, d, i) for v, d in zip(value, dim)]
        return value if dim is None else value.select(dim, i)

    for i in range(size):
        yield [pick(value, dim, i) for value, dim in zip(arguments, dims)]


def _stacked(results):
    return tuple(
        [torch.stack(each) for each in zip(*column)] if isinstance(column[0], list) else torch.stack(column)
        for column in zip(*results)
    )


def _is_batched(dim):
    return any(d is not None for d in dim) if isinstance(dim, (list, tuple)) else dim is not None


def _fold(tensor, dim, size, axis):
    """Merges the axis of calls into the axis of rows, which is `axis` in the tensor of one call."""
    if tensor is None:
        return None
    tensor = tensor.unsqueeze(0).expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return tensor.movedim(0, axis).flatten(axis, axis + 1)


def _size_of_call(tensor, dim, axis):
    return (tensor if dim is None else tensor.select(dim, 0)).shape[axis]


def batch_recurrent(op, size, dims, x, weights, state, lengths, batch_sizes, reset, *form):
    """Runs calls that share their weights as rows of one call with one tape, and others one by one."""
    _, _, _, batch_first, _, every_state = form
    rows = 0 if batch_first else 1
    restarts = state is not None and _size_of_call(state, dims[2], 2) != _size_of_call(x, dims[0], rows)
    if _is_batched(dims[1]) or batch_sizes is not None or restarts:
        return _batch_by_loop(op, size, dims, x, weights, state, lengths, batch_sizes, reset, *form)
    y, last, tape, states = op(
        _fold(x, dims[0], size, rows),
        weights,
        _fold(state, dims[2], size, 2),
        _fold(lengths, dims[3], size, 0),
        None,
        _fold(reset, dims[5], size, 0),
        *form,
    )
    if every_state:
        states = states.unflatten(rows, (size, -1))
    y, last = y.unflatten(rows, (size, -1)), last.unflatten(2, (size, -1))
    return (y, last, tape, states), (rows, 2, None, rows if every_state else None)


def _batch_by_loop(op, size, dims, *call):
    results = _stacked([op(*each) for each in _each(size, dims, call)])
    return results, tuple([0] * len(r) if isinstance(r, list) else 0 for r in results)


def batch_recurrent_backward(op, size, dims, *call):
    """Runs the backward passes one by one, since each call has its own weight gradients.

    Calls that share one tape run their forward pass again.
    """
    tape = 10
    results = []
    for *inputs, tape_of_call in _each(size, dims, call[: tape + 1]):
        own = tape_of_call if dims[tape] is not None else tape_of_call.new_empty(0)
        results.append(op(*inputs, own, *call[tape + 1 :]))
    results = _stacked(results)
    return results, (0, 0, [0] * len(results[2]))


def batch_scan(op, size, dims, *call):
    """Runs scans or their backward passes as rows of one call."""
    *tensors, logarithmic, reverse = call
    results = op(*[_fold(t, dim, size, 0) for t, dim in zip(tensors, dims)], logarithmic, reverse)
    return tuple(each.unflatten(0, (size, -1)) for each in results), (0,) * len(results)
