"""What penstock.torch refuses, with the types of torch.nn's errors, and messages that name the argument."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from test_torch_layers import KINDS, NAMES, pair  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils.rnn import pack_sequence  # noqa: E402

torch.set_num_threads(1)  # these sizes are too small to share


@pytest.mark.parametrize(
    "make, other, said",
    [
        (lambda: ours.SLSTM(3, 4), lambda: ours.LSTM(3, 4), "'slstm', and this LSTM has 'lstm'"),
        (lambda: ours.LSTM(3, 4, 2), lambda: ours.SLSTM(3, 4, 2), "'lstm', and this SLSTM has 'slstm'"),
        (lambda: ours.GRU(3, 4, reset_after=False), lambda: ours.GRU(3, 4), "'gru-before', and this GRU has 'gru'"),
        (lambda: ours.RNN(3, 4, nonlinearity="relu"), lambda: ours.RNN(3, 4), "'elman-relu', and this RNN has 'elman'"),
        (lambda: ours.MinGRU(3, 4, candidate="positive"), lambda: ours.MinGRU(3, 4), "and this MinGRU has"),
        (lambda: ours.SLSTMCell(3, 4), lambda: ours.LSTMCell(3, 4), "'slstm', and this LSTMCell has 'lstm'"),
    ],
)
def test_weights_of_another_cell_are_refused(tmp_path, make, other, said):
    trained, wrong = torch.nn.ModuleDict({"a": make()}), torch.nn.ModuleDict({"a": other()})
    torch.save(trained.state_dict(), tmp_path / "a.pt")
    before = copy.deepcopy(wrong.state_dict())
    for weights in (trained.state_dict(), torch.load(tmp_path / "a.pt")):
        for strict in (True, False):
            with pytest.raises(RuntimeError, match=said):
                wrong.load_state_dict(weights, strict=strict)
        make().load_state_dict(trained["a"].state_dict())
    assert all(torch.equal(value, before[name]) for name, value in wrong.state_dict().items())
    # Without a note, as from torch.nn, weights are taken.
    wrong.load_state_dict(dict(trained.state_dict()))
    assert all(torch.equal(value, trained.state_dict()[name]) for name, value in wrong.state_dict().items())


def exception_of(call, module):
    try:
        call(module)
    except Exception as error:
        return type(error)
    return None


@KINDS
def test_errors_are_of_the_types_of_torch_nn(name, kind):
    theirs, mine = pair(name, 5, 7, **kind)
    bad = [
        lambda m: m(torch.randn(2, 3, 4)),
        lambda m: m(torch.randn(2, 3, 4, 5)),
        lambda m: m(torch.randn(5)),
        lambda m: m(torch.randn(0, 3, 5)),
        lambda m: m(torch.randn(2, 3, 5).double()),
        lambda m: m(torch.randn(2, 3, 5), (torch.randn(1, 2, 7),) * 2 if name == "LSTM" else torch.randn(1, 2, 7)),
        lambda m: m(torch.randn(2, 3, 5), (torch.randn(1, 7),) * 2 if name == "LSTM" else torch.randn(1, 7)),
        lambda m: m(torch.randn(2, 5), (torch.randn(1, 1, 7),) * 2 if name == "LSTM" else torch.randn(1, 1, 7)),
        lambda m: type(m)(5, 0),
        lambda m: type(m)(5.5, 3),
        lambda m: type(m)(5, 3, num_layers=0),
        lambda m: type(m)(5, 3, dropout=1.5),
        lambda m: type(m)(5, 3, bias=1),
        lambda m: type(m)(5, 3, proj_size=7),
    ]
    for i, call in enumerate(bad):
        expected = exception_of(call, theirs)
        assert exception_of(call, mine) is expected, f"case {i}"
        assert expected is not None or i == 12, f"case {i}"  # PyTorch 2.10 takes bias=1


WRONG_LENGTHS = [
    ([1.0, 2.0, 3.0], TypeError, r"lengths must be an int64 tensor or a list of whole numbers, not \[1.0, 2.0, 3.0\]"),
    (torch.tensor([1.0, float("nan"), 2.0]), RuntimeError, "lengths must be .* of dtype torch.int64, not torch.float32"),
    (torch.tensor([1, 2]), RuntimeError, r"lengths must be \[B\] = \[3\], not \[2\]"),
    (torch.tensor([1, 2, 9]), RuntimeError, "lengths must be 0 to T = 4, not .*9"),
    (torch.tensor([1, 2, -1]), RuntimeError, "lengths must be 0 to T = 4, not .*-1"),
]


@pytest.mark.parametrize("options", [{}, {"proj_size": 2}], ids=["kernels", "projections"])
@pytest.mark.parametrize("lengths, kind, message", WRONG_LENGTHS)
def test_wrong_lengths(options, lengths, kind, message):
    with pytest.raises(kind, match=message):
        ours.LSTM(5, 7, **options)(torch.randn(4, 3, 5), lengths=lengths)


@pytest.mark.parametrize("lengths, kind, message", [WRONG_LENGTHS[0], *WRONG_LENGTHS[3:]])
def test_wrong_lengths_of_scans(lengths, kind, message):
    with pytest.raises(kind, match=message):
        ours.scan(torch.ones(3, 4, 2), torch.ones(3, 4, 2), lengths=lengths)


def test_scans_of_whole_numbers_are_refused():
    whole = torch.ones(3, 4, 2, dtype=torch.int64)
    for a, b in ((whole, whole), (whole, whole.bool()), (whole.cfloat(), whole)):
        with pytest.raises(TypeError, match="a and b must be tensors of float32.* convert them with .float"):
            ours.scan(a, b)
    assert torch.equal(ours.scan(whole.float(), whole)[0], ours.scan(whole.float(), whole.float())[0])


def test_wrong_reset_masks():
    x = torch.randn(4, 3, 5)
    stack = ours.GRU(5, 7)
    with pytest.raises(RuntimeError, match=r"reset_mask must be of .* = \[4, 3\], not \[3, 4\]"):
        stack(x, reset_mask=torch.zeros(3, 4, dtype=torch.bool))
    with pytest.raises(RuntimeError, match="reset_mask must be a tensor of dtype torch.bool, not torch.float32"):
        stack(x, reset_mask=torch.zeros(4, 3))
    with pytest.raises(TypeError, match="reset_mask must be a tensor, not list"):
        stack(x, reset_mask=[[True] * 3] * 4)
    with pytest.raises(RuntimeError, match=r"reset_mask must be of .* = \[4\], not \[3\]"):
        stack(x[:, 0], reset_mask=torch.zeros(3, dtype=torch.bool))


@pytest.mark.parametrize("name", NAMES)
def test_states_of_another_type_are_refused_as_torch_nn_does(name):
    x, state = torch.randn(4, 3, 5), torch.zeros(1, 3, 7)
    for module in pair(name, 5, 7):
        with pytest.raises(RuntimeError):
            module(x, (state.double(),) * 2 if name == "LSTM" else state.double())
    theirs, mine = (getattr(m, name + "Cell")(5, 7) for m in (nn, ours))
    for module in (theirs, mine):
        with pytest.raises(RuntimeError, match="dtype"):
            module(x[0].double())
        with pytest.raises(RuntimeError, match="dtype"):
            module(x[0], (state[0].half(),) * 2 if name == "LSTM" else state[0].half())
    with torch.autocast("cpu", torch.bfloat16):  # whose results differ in type, and come back as states
        _, last = getattr(ours, name)(5, 7)(x)
        assert getattr(ours, name)(5, 7)(x, last)[0].dtype == torch.bfloat16
        mine(x[0], tuple(s[0] for s in last) if name == "LSTM" else last[0])


def test_errors_name_the_argument():
    x = torch.randn(4, 3, 5)
    lstm = ours.LSTM(5, 7)
    with pytest.raises(ValueError, match="own lengths"):
        lstm(pack_sequence([x[:, 0]]), lengths=torch.tensor([4]))
    with pytest.raises(ValueError, match="num_heads must divide"):
        ours.LSTM(5, 7, num_heads=2)
    for kind in (ours.MinGRU, ours.MinLSTM, ours.MinGRUCell, ours.MinLSTMCell):
        with pytest.raises(ValueError, match="^candidate must be 'linear' or 'positive', not 'cubic'$"):
            kind(5, 7, candidate="cubic")
    with pytest.raises(ValueError, match="b must be of the shape of a"):
        ours.scan(torch.zeros(1, 2, 3), torch.zeros(1, 2, 4))


def test_calls_of_other_packages_get_the_line_of_ours():
    """As in test_words.py, for modules, whose calls PyTorch makes."""
    page = "docs/coming_from.md has"
    for kind in (ours.MinGRU, ours.GRU, ours.SLSTM, ours.MinGRUCell):
        name = kind.__name__
        with pytest.raises(TypeError, match=rf"^{name}\(\) needs 'hidden_size': {name}\(input_size, hidden_size\); {page}"):
            kind(8)
    x = torch.zeros(2, 3, 4)
    for layer, step in ((ours.MinGRU(4, 4), x), (ours.GRUCell(4, 4), x[0])):
        for argument in ("return_next_prev_hidden", "prev_hidden", "initial_state", "states", "mask"):
            with pytest.raises(TypeError, match=rf"^forward\(\) has no argument '{argument}': here it is .*; {page} more$"):
                layer(step, **{argument: None})
    for argument in ("zoneout", "dropconnect", "recurrent_dropout"):
        with pytest.raises(TypeError, match=rf"^LSTM\(\) has no argument '{argument}': here it is penstock.torch.regularise\("):
            ours.LSTM(4, 4, **{argument: 0.1})
    for name in ("sLSTMBlock", "FlashRNNConfig", "IndRNN", "LayerNormLSTM"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}': here it is .*; {page} more$"):
            getattr(ours, name)
