"""penstock.torch on a GPU: beside torch.nn, under streams, graphs and the compiler."""

import pathlib
import runpy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

import penstock.interchange  # noqa: E402
import penstock.torch.xlstm  # noqa: E402
from penstock.torch import _masked_cells, _regularise  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils.rnn import pack_sequence  # noqa: E402

NAMES = ["RNN", "GRU", "LSTM"]
KINDS = pytest.mark.parametrize("name, kind", [*((name, {}) for name in NAMES), ("LSTM", {"proj_size": 8})])


def pair(name, *sizes, **options):
    torch.manual_seed(3)
    theirs = getattr(nn, name)(*sizes, device="cuda", **options)
    torch.manual_seed(3)
    return theirs, getattr(ours, name)(*sizes, device="cuda", **options)


def close(got, expected, unit, steps):
    """Within sqrt(T) roundings of the largest value."""
    torch.testing.assert_close(
        got.float(), expected.float(), rtol=0, atol=16 * unit * steps**0.5 * max(1.0, expected.abs().max().item())
    )


def as_list(states):
    return [states] if isinstance(states, torch.Tensor) else list(states)


def results_of(module, x, autocast=False):
    module.zero_grad()
    leaf = x.data.detach().clone().requires_grad_()
    given = leaf if isinstance(x, torch.Tensor) else x._replace(data=leaf)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        y, last = module(given)
    y = y if isinstance(x, torch.Tensor) else y.data
    (y.float().sin().sum() + sum(s.float().cos().sum() for s in as_list(last))).backward()
    return [y, *as_list(last), leaf.grad, *(p.grad for p in module.parameters())]


@pytest.fixture(autouse=True)
def exact_products():
    """cuDNN's and cuBLAS's float products would round to 10 bits."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}])
@pytest.mark.parametrize("rows, steps, inputs, hidden", [(3, 7, 16, 32), (5, 65, 24, 64)])
@KINDS
def test_floats(name, kind, rows, steps, inputs, hidden, options):
    theirs, mine = pair(name, inputs, hidden, **kind, **options)
    x = torch.randn(rows, steps, inputs, device="cuda")
    x = x if options.get("batch_first") else x.transpose(0, 1)
    for got, expected in zip(results_of(mine, x), results_of(theirs, x)):
        close(got, expected, 2**-21, steps * rows)


@KINDS
def test_tf32(name, kind):
    """Products of floats follow PyTorch's flag, as those of its own layers do."""
    theirs, mine = pair(name, 64, 256, **kind)
    x = torch.randn(7, 64, 64, device="cuda")
    exact, expected = results_of(mine, x), results_of(theirs, x)
    torch.backends.cudnn.allow_tf32 = True
    rounded = results_of(mine, x)
    torch.backends.cudnn.allow_tf32 = False
    assert all(map(torch.equal, results_of(mine, x), exact))
    assert not torch.equal(rounded[0], exact[0])
    for got, wanted in zip(rounded, expected):
        close(got, wanted, 2**-11, 7 * 64)


@KINDS
def test_autocast(name, kind):
    theirs, mine = pair(name, 64, 128, num_layers=2, **kind)
    x = torch.randn(33, 6, 64, device="cuda")
    got, expected = results_of(mine, x, autocast=True), results_of(theirs, x)
    assert got[0].dtype == torch.bfloat16 and all(p.grad.dtype == torch.float32 for p in mine.parameters())
    for a, b in zip(got, expected):
        close(a, b, 2**-9, 33)


@KINDS
def test_packed_sequences(name, kind):
    theirs, mine = pair(name, 16, 32, **kind)
    packed = pack_sequence([torch.randn(n, 16, device="cuda") for n in (4, 19, 7, 1)], enforce_sorted=False)
    for got, expected in zip(results_of(mine, packed), results_of(theirs, packed)):
        close(got, expected, 2**-21, 31)


@pytest.mark.parametrize("width", [0, 8])
def test_lengths_resets_and_states_lie_on_the_gpu(width):
    options = {"batch_first": True, "bidirectional": True, "proj_size": width}
    mine, host = ours.LSTM(16, 32, device="cuda", **options), ours.LSTM(16, 32, **options)
    host.load_state_dict(mine.state_dict())
    x, lengths = torch.randn(3, 9, 16), torch.tensor([2, 9, 0])
    mask = torch.rand(3, 9) < 0.3
    states = torch.randn(2, 3, width or 32), torch.randn(2, 3, 32)
    y, last = host(x, states, lengths=lengths, reset_mask=mask)
    on_gpu = [s.cuda() for s in states]
    got, after = mine(x.cuda(), on_gpu, lengths=lengths.cuda(), reset_mask=mask.cuda())
    for a, b in zip((got, *after), (y, *last)):
        close(a.cpu(), b, 2**-21, 9)


@pytest.mark.parametrize("stack", [ours.SLSTM, ours.MinGRU, ours.MinLSTM])
@pytest.mark.parametrize("steps, rows", [(40, 3), (1, 1)])
def test_other_cells_agree_with_the_cpu(stack, steps, rows):
    host = stack(16, 32)
    mine = stack(16, 32, device="cuda")
    mine.load_state_dict(host.state_dict())
    x = torch.randn(rows, 16, steps).permute(2, 0, 1)  # as convolutions leave it: a single step has any stride
    for got, expected in zip(results_of(mine, x.cuda()), results_of(host, x)):
        close(got.cpu(), expected, 2**-20, 120)


@pytest.mark.parametrize("name", ["peephole_lstm", "norm_lstm", "leaky_integrator"])
def test_cells_of_papers_agree_with_the_cpu(name):
    path = pathlib.Path(__file__).parents[2] / "examples" / "paper_cells.py"
    cell = runpy.run_path(str(path))[name]
    host = ours.Recurrent(cell, 16, 32, num_layers=2)
    mine = ours.Recurrent(cell, 16, 32, num_layers=2, device="cuda")
    mine.load_state_dict(host.state_dict())
    x = torch.randn(40, 3, 16)
    for got, expected in zip(results_of(mine, x.cuda()), results_of(host, x)):
        close(got.cpu(), expected, 2**-20, 120)


@pytest.mark.parametrize("stack, kind", [(ours.LSTM, {}), (ours.LSTM, {"proj_size": 8}), (ours.SLSTM, {})])
def test_every_state_agrees_with_the_cpu(stack, kind):
    host = stack(16, 32, num_layers=2, bidirectional=True, **kind)
    mine = stack(16, 32, num_layers=2, bidirectional=True, device="cuda", **kind)
    mine.load_state_dict(host.state_dict())
    x, lengths = torch.randn(40, 3, 16), torch.tensor([40, 1, 17])

    def results(module, x, lengths):
        x = x.requires_grad_()
        _, _, states = module(x, lengths=lengths, every_state=True)
        sum(s.sin().sum() for s in states).backward()
        return [*states, x.grad, *(p.grad for p in module.parameters())]

    for got, expected in zip(results(mine, x.cuda(), lengths.cuda()), results(host, x, lengths)):
        close(got.cpu(), expected, 2**-20, 120)


UNITS = {torch.float32: 2**-23, torch.bfloat16: 2**-8, torch.float16: 2**-10}


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("cell, stack", [("lstm", ours.LSTM), ("gru", ours.GRU), ("elman", ours.RNN), ("slstm", ours.SLSTM)])
def test_recurrences_over_given_products(cell, stack, heads, dtype):
    """Against double precision on the CPU, with lengths, resets and strides of several kinds."""
    layer = stack(4, 32, device="cuda", **({} if heads == 1 else {"num_heads": heads}))
    _, weight, bias, bias_hh = (w.detach().to(dtype) for w in layer._weights())
    wx = torch.randn(17, 5, bias.numel(), device="cuda").to(dtype)
    lengths, reset = torch.tensor([17, 1, 9, 12, 17]), torch.rand(5, 17) < 0.2

    def results(wx, batch_first, device, dtype):
        given = [t.to(device, dtype).detach().requires_grad_() for t in (wx, weight, bias, bias_hh)]
        x, r, b, bh = given
        x = x.transpose(0, 1) if batch_first else x
        mask = reset.to(device) if batch_first else reset.t().to(device)
        y, last = ours.recurrence(x, r, b, cell=cell, bias_hh=bh, lengths=lengths.to(device), reset_mask=mask, batch_first=batch_first)
        y = y.transpose(0, 1) if batch_first else y
        # A rounded gate decides which side of sLSTM's maximum has a gradient, if its states have one.
        loss = y.double().sin().sum() + as_list(last)[0].double().cos().sum()
        loss.backward()
        return [y, *as_list(last)[: 1 if cell == "slstm" else 2], *(t.grad for t in given)]

    want = results(wx, False, "cpu", torch.float64)
    wide = torch.zeros(17, 5, wx.shape[-1] + 8, device="cuda", dtype=dtype)
    wide[..., 8:] = wx
    for x, batch_first in ((wx, False), (wx, True), (wide[..., 8:], True), (wx.transpose(0, 1).contiguous().transpose(0, 1), True)):
        for got, expected in zip(results(x, batch_first, "cuda", dtype), want, strict=True):
            close(got.cpu(), expected, UNITS[dtype], 17 * 5)


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("cell, stack", [("lstm", ours.LSTM), ("gru", ours.GRU), ("elman", ours.RNN)])
@pytest.mark.parametrize("heads, hidden", [(1, 32), (2, 32), (1, 320)])
def test_masks_in_the_recurrence(cell, stack, heads, hidden, dtype):
    """One call with masks against double precision on the CPU."""
    layer = stack(4, hidden, device="cuda", **({} if heads == 1 else {"num_heads": heads}))
    _, weight, _, bias = (w.detach() for w in layer._weights())
    count = 2 if cell == "lstm" else 1
    keeps = {k: torch.rand(17, 5, hidden) < 0.3 for k in range(count)}
    dropped = torch.rand(5, hidden) < 0.4
    wx = torch.randn(17, 5, bias.numel(), device="cuda").to(dtype)
    states = [torch.randn(5, hidden, device="cuda") for _ in range(count)]
    rows = torch.tensor([17, 1, 9, 12, 17]), torch.rand(17, 5) < 0.2
    name = _masked_cells.masked_cell(cell, tuple(keeps), True)

    def results(device, dtype, state_dtype):
        leaves = [t.to(device, d).detach().requires_grad_() for t, d in
                  [(wx, dtype), (weight, state_dtype), (bias, state_dtype), *((s, state_dtype) for s in states)]]
        x, r, b, *initial = leaves
        masks = {k: keep.to(device) for k, keep in keeps.items()}
        own = tuple(t.to(device) for t in rows)
        every, last = _masked_cells.run_masked(
            name, x, r, b, (), tuple(initial), own, True, count, masks, dropped.to(device), 0.4
        )
        (sum(s.double().sin().sum() for s in every) + sum(s.double().cos().sum() for s in last)).backward()
        return [*every, *last, *(leaf.grad for leaf in leaves)]

    for got, expected in zip(results("cuda", dtype, torch.float32), results("cpu", torch.float64, torch.float64), strict=True):
        close(got.cpu(), expected, UNITS[dtype], 17 * 5)


def test_masks_are_drawn_on_the_gpu(monkeypatch):
    layer = ours.regularise(ours.LSTM(16, 32, device="cuda"), zoneout=0.25, cell_zoneout=0.5, recurrent_dropout=0.3)
    seen = []
    run = _regularise.run_masked
    monkeypatch.setattr(_regularise, "run_masked", lambda *call: seen.append(call) or run(*call))
    x = torch.randn(100, 64, 16, device="cuda")
    layer(x)[0].sum().backward()
    (*_, keeps, dropped, _), = seen
    shares = [keeps[0], keeps[1], dropped]
    assert [round(s.double().mean().item(), 1) for s in shares] in ([0.2, 0.5, 0.3], [0.3, 0.5, 0.3])
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


def test_masks_of_doubles_run_step_by_step():
    layer = ours.regularise(ours.LSTM(3, 5, device="cuda", dtype=torch.float64), zoneout=0.25, recurrent_dropout=0.3)
    y, _ = layer(torch.randn(4, 2, 3, device="cuda", dtype=torch.float64))
    y.sum().backward()
    assert y.dtype == torch.float64 and torch.isfinite(y).all()


@pytest.mark.parametrize("backend", ["vanilla", "cuda"])
def test_layers_of_xlstm(backend):
    """Layers of either backend on the GPU give what the package's own operations give on the CPU."""
    package = pytest.importorskip("xlstm", reason="the package xlstm is not installed")
    common = {"embedding_dim": 64, "num_heads": 4, "recurrent_weight_init": "standard", "bias_init": "standard"}
    torch.manual_seed(7)
    host = package.sLSTMLayer(package.sLSTMLayerConfig(backend="vanilla", dtype="float32", **common))
    host.reset_parameters()
    x = torch.randn(3, 20, 64)
    host(x).sin().sum().backward()
    want, gradient = host(x).detach(), host.slstm_cell._recurrent_kernel_.grad
    penstock.torch.xlstm.patch()
    try:
        types = {"dtype": "float32"} if backend == "vanilla" else {"dtype": "float32", "dtype_b": "float32", "internal_input_shape": "SBNGH"}
        mine = package.sLSTMLayer(package.sLSTMLayerConfig(backend=backend, **types, **common))
        weights = penstock.interchange.from_xlstm({k: v.detach().numpy() for k, v in host.state_dict().items()})
        tensors = penstock.interchange.xlstm.to_xlstm(weights, backend=backend)
        mine.load_state_dict({name: torch.from_numpy(t.copy()) for name, t in tensors.items()})
        mine = mine.cuda()
        got, last = mine(x.cuda(), return_last_state=True)
        got.sin().sum().backward()
        close(got.cpu(), want, 2**-18, 20)
        kernel = mine.slstm_cell._recurrent_kernel_.grad.cpu()
        close(kernel if backend == "vanilla" else kernel.transpose(1, 2), gradient, 2**-18, 60)
        state = {"conv_state": None, "slstm_state": None}
        for t in range(20):
            out, state = mine.step(x[:, t : t + 1].cuda(), **state)
            close(out.cpu(), want[:, t : t + 1], 2**-18, 20)
        close(state["slstm_state"].cpu(), last["slstm_state"].cpu(), 2**-18, 20)
    finally:
        penstock.torch.xlstm.unpatch()


@pytest.mark.parametrize("scan", [ours.scan, ours.log_scan])
@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 5), (2, 1025, 33), (1, 4099, 64)])
@pytest.mark.parametrize("reverse, ragged", [(False, False), (True, False), (True, True)])
def test_scans(scan, dtype, shape, reverse, ragged):
    """Against double precision on the CPU, from the same rounded terms."""
    torch.manual_seed(5)
    lengths = torch.randint(0, shape[1] + 1, shape[:1]) if ragged else None
    reset = torch.rand(shape[:2]) < 0.1 if ragged else None
    a, b = torch.rand(shape) * 0.9 + 0.05, torch.randn(shape)
    terms = [a, b] if scan is ours.scan else [a.log(), b.abs().log()]
    leaves = [t.to(dtype) for t in (*terms, torch.randn(shape[0], shape[2]))]

    def results(*leaves):
        leaves = [leaf.detach().requires_grad_() for leaf in leaves]
        own = [None if t is None else t.to(leaves[0].device) for t in (lengths, reset)]
        h, last = scan(*leaves, lengths=own[0], reset_mask=own[1], reverse=reverse)
        (h.double().sin().sum() + last.double().cos().sum()).backward()
        return [h, last, *(leaf.grad for leaf in leaves)]

    for got, expected in zip(results(*(leaf.cuda() for leaf in leaves)), results(*(leaf.double() for leaf in leaves))):
        # Each state is a sum in which what is 1 / (1 - a) = 20 steps back still counts.
        bound = 20 * UNITS[dtype] * max(1.0, expected.abs().max().item())
        torch.testing.assert_close(got.cpu().double(), expected, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("smallest", [0.05, 0.999])
def test_corrections_are_passes_from_other_states(dtype, reverse, smallest):
    """Decays that forget at once, and decays that do not within the sequence."""
    torch.manual_seed(6)
    shape = (2, 1025, 40)
    a, b, dh = torch.rand(shape) * (1 - smallest) + smallest, torch.randn(shape), torch.randn(shape)
    terms = [t.to("cuda", dtype) for t in (a, b)]
    dh, form = dh.to("cuda", dtype), (False, reverse)
    first, dlast = torch.randn(2, 2, 40, device="cuda")
    ops = torch.ops.penstock

    def forward(state):
        h, last = torch.empty_like(terms[0]), torch.empty_like(first)
        ops.scan_out(*terms, state, None, None, *form, h=h, h_last=last)
        return h, last

    def backward(h, dlast):
        results = {"da": torch.empty_like(h), "db": torch.empty_like(h), "dh0": torch.empty_like(first)}
        ops.scan_backward_out(dh, dlast, *terms, first, None, None, h, *form, **results)
        return results

    def close(got, expected):
        unit = 2**-23 if got.dtype == torch.float32 else UNITS[got.dtype]
        bound = 1025**0.5 * 2**-20 + unit
        torch.testing.assert_close(got, expected, rtol=0, atol=bound * expected.abs().max().item())

    (h, last), (expected, expected_last) = forward(None), forward(first)
    ops.scan_correct(*terms, first, None, None, *form, None, h=h, h_last=last)
    close(h, expected)
    close(last, expected_last)
    got, wanted = backward(h, None), backward(h, dlast)
    ops.scan_backward_correct(dh, dlast, *terms, first, None, None, h, *form, None, **got)
    for name, gradient in wanted.items():
        close(got[name], gradient)


def test_scans_of_doubles_are_the_cpus():
    a = torch.rand(1, 3, 2, dtype=torch.float64, device="cuda")
    with pytest.raises(RuntimeError, match="f64"):
        ours.scan(a, a)


def test_streams_are_respected():
    mine = ours.GRU(64, 64, device="cuda")
    x = torch.randn(256, 8, 64, device="cuda")
    expected = mine(x)[0]
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    late = torch.empty_like(x)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late.copy_(x)
        got = mine(late)[0]
    assert not stream.query()  # nobody has waited
    stream.synchronize()
    assert torch.equal(got, expected)


@pytest.fixture
def no_waiting():
    """Raises an error where PyTorch makes the host wait for the GPU."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


MASKED = [
    *((name, {}) for name in ("RNN", "GRU", "LSTM", "SLSTM", "MinGRU", "MinLSTM")),
    ("LSTM", {"num_layers": 2}),
    ("GRU", {"bidirectional": True, "batch_first": True}),
]


@pytest.mark.parametrize("name, options", MASKED, ids=str)
def test_masks_are_read_on_the_gpu(name, options, request):
    mine = getattr(ours, name)(16, 32, device="cuda", **options)
    dones = torch.rand(9, 4, device="cuda") < 0.3
    x, y = torch.randn(9, 4, 16, device="cuda", requires_grad=True), None
    for turn in range(2):  # the first one compiles kernels
        starts = ours.episode_starts(dones, dones[0])
        y, _ = mine(x, reset_mask=starts if turn else starts.to(torch.uint8))
        y.sum().backward()
        if turn == 0:
            request.getfixturevalue("no_waiting")


def test_masks_on_the_host_are_refused():
    with pytest.raises(RuntimeError, match=r"reset_mask must be on cuda:0, not on cpu: move it with .to\('cuda:0'\)"):
        ours.GRU(4, 8, device="cuda")(torch.zeros(5, 2, 4, device="cuda"), reset_mask=torch.zeros(5, 2, dtype=torch.bool))


@pytest.mark.parametrize("form", ["learnt", "row", "step"])
@pytest.mark.parametrize("name, kind", [*((name, {}) for name in ("RNN", "GRU", "LSTM", "SLSTM", "MinGRU")), ("LSTM", {"num_layers": 2, "num_heads": 4}), ("LSTM", {"proj_size": 8}), ("GRU", {"reset_after": False})])  # fmt: skip
def test_states_start_again_as_on_the_cpu(name, kind, form):
    host = getattr(ours, name)(16, 32, batch_first=True, **kind)
    mine = getattr(ours, name)(16, 32, batch_first=True, device="cuda", **kind)
    mine.load_state_dict(host.state_dict())
    x, mask = torch.randn(5, steps := 1 if name == "RNN" else 40, 16), torch.rand(5, steps) < 0.3
    where = {"learnt": [], "row": [5], "step": [5, steps]}[form]
    to = [torch.rand(host.num_layers, *where, size).add(0.5) for size in host._state_sizes()]
    results = []
    for layer, device in ((host, "cpu"), (mine, "cuda")):
        leaves = [state.detach().to(device).requires_grad_() for state in to]
        given = leaves[0] if len(leaves) == 1 else tuple(leaves)
        y, last = layer(x.to(device), reset_mask=mask.to(device), reset_to=given)
        y.sin().sum().backward()
        results.append([y, *as_list(last), *(leaf.grad for leaf in leaves), *(p.grad for p in layer.parameters())])
    for got, expected in zip(*reversed(results)):
        close(got.cpu(), expected, 2**-18, 40)


@pytest.mark.parametrize("resets", ["none", "mask", "states"])
def test_graphs(resets):
    mine = ours.LSTM(64, 64, num_layers=2, device="cuda")
    x = torch.randn(32, 4, 64, device="cuda", requires_grad=True)
    gradient = torch.randn(32, 4, 64, device="cuda")
    mask = torch.rand(32, 4, device="cuda") < 0.1
    form = {} if resets == "none" else {"reset_mask": mask}
    if resets == "states":
        form["reset_to"] = tuple(torch.rand(2, 2, 64, device="cuda").unbind(0))

    def step():
        mine.zero_grad(set_to_none=False)
        y, _ = mine(x, **form)
        y.backward(gradient)
        return y

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = step()
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
        mask.copy_(torch.rand(32, 4, device="cuda") < 0.3)
    graph.replay()
    replayed = [y.clone(), *(p.grad.clone() for p in mine.parameters())]
    expected = [step(), *(p.grad for p in mine.parameters())]
    for got, other in zip(replayed, expected):
        if resets == "states":  # a graph has as many rows as steps
            close(got, other, 2**-20, 32)
        else:
            assert torch.equal(got, other)


@pytest.mark.parametrize("resets", ["none", "mask", "states"])
def test_callables_as_graphs(resets):
    mine = ours.GRU(32, 64, device="cuda")

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.first = mine, nn.Parameter(torch.rand(1, 64, device="cuda"))

        def forward(self, x, mask):
            return self.layer(x, **({} if resets == "none" else {"reset_mask": mask}),
                              **({"reset_to": self.first} if resets == "states" else {}))[0]  # fmt: skip

    policy = Policy()
    x, mask = torch.randn(16, 8, 32, device="cuda", requires_grad=True), torch.rand(16, 8, device="cuda") < 0.2
    graphed = torch.cuda.make_graphed_callables(policy, (x, mask), allow_unused_input=True)
    x, mask = torch.randn(16, 8, 32, device="cuda", requires_grad=True), torch.rand(16, 8, device="cuda") < 0.4
    got = graphed(x, mask)
    got.sum().backward()
    got, gradient = got.detach().clone(), x.grad.clone()
    x.grad = None
    form = {} if resets == "none" else {"reset_mask": mask}
    if resets == "states":
        form["reset_to"] = policy.first
    expected = mine(x, **form)[0]
    expected.sum().backward()
    close(got, expected, 2**-20, 16)
    close(gradient, x.grad, 2**-20, 16)


@pytest.mark.parametrize("masked", [False, True])
def test_compiles_with_graphs(masked):
    mine = ours.LSTM(64, 64, device="cuda")
    compiled = torch.compile(mine, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()  # what the last step returned may be overwritten
        mine.zero_grad()
        x = torch.randn(32, 4, 64, device="cuda", requires_grad=True)
        form = {"reset_mask": torch.rand(32, 4, device="cuda") < 0.2} if masked else {}
        y = compiled(x, **form)[0]
        y.sum().backward()
        got = [y.detach().clone(), x.grad.clone()]
        x.grad = None
        expected = mine(x, **form)[0]
        expected.sum().backward()
        for mine_, theirs in zip(got, [expected, x.grad]):
            close(mine_, theirs, 2**-20, 32)


def test_scaled_gradients():
    mine = ours.GRU(64, 64, device="cuda")
    optimizer = torch.optim.SGD(mine.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda")
    before = [p.detach().clone() for p in mine.parameters()]
    with torch.autocast("cuda", torch.float16):
        loss = mine(torch.randn(16, 4, 64, device="cuda"))[0].float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert all(not torch.equal(p, b) for p, b in zip(mine.parameters(), before))
