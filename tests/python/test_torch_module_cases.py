"""PyTorch's own cases for its recurrent modules (torch.testing), run against Penstock's."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("expecttest", reason="torch.testing's own tests need expecttest, which is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from torch.testing._internal.common_modules import ModuleErrorEnum, module_db  # noqa: E402

NAMES = ["RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell"]
INFOS = {info.module_cls.__name__: info for info in module_db if info.module_cls.__module__ == "torch.nn.modules.rnn"}


def samples(name, dtype, training=False, **options):
    info = INFOS[name]
    made = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=training, **options
    )
    assert made
    return made


def built(name, sample, dtype):
    """torch.nn's module and ours with the same parameters."""
    arguments = sample.constructor_input
    theirs = getattr(torch.nn, name)(*arguments.args, **arguments.kwargs).to(dtype)
    mine = getattr(ours, name)(*arguments.args, **arguments.kwargs).to(dtype)
    mine.load_state_dict(theirs.state_dict())
    return theirs, mine


def tensors(results):
    if isinstance(results, torch.Tensor):
        return [results]
    if isinstance(results, torch.nn.utils.rnn.PackedSequence):
        return [results.data]
    return [t for result in results for t in tensors(result)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_forward(name, dtype):
    options = {"with_packed_sequence": True} if name in ("RNN", "GRU") else {}
    for sample in samples(name, dtype, **options):
        theirs, mine = built(name, sample, dtype)
        call = sample.forward_input
        got, expected = mine(*call.args, **call.kwargs), theirs(*call.args, **call.kwargs)
        for a, b in zip(tensors(got), tensors(expected), strict=True):
            torch.testing.assert_close(a, b)
        if sample.reference_fn is not None and not isinstance(call.args[0], torch.nn.utils.rnn.PackedSequence):
            reference = sample.reference_fn(mine, *call.args, **call.kwargs)
            for a, b in zip(tensors(got), tensors(reference), strict=True):
                torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name):
    for sample in samples(name, torch.float64, training=True)[::3]:
        _, mine = built(name, sample, torch.float64)
        call, parameters = sample.forward_input, tuple(mine.parameters())

        def function(*_, call=call, mine=mine):
            return tuple(tensors(mine(*call.args, **call.kwargs)))

        inputs = tensors([a for a in call.args if a is not None]) + list(parameters)
        assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("name", NAMES)
def test_errors(name):
    info = INFOS[name]
    errors = info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=False)
    assert errors
    for error in errors:
        sample = error.module_error_input
        construct, call = sample.constructor_input, sample.forward_input
        with pytest.raises(error.error_type, match=error.error_regex):
            module = getattr(ours, name)(*construct.args, **construct.kwargs)
            if error.error_on == ModuleErrorEnum.FORWARD_ERROR:
                module(*call.args, **call.kwargs)
