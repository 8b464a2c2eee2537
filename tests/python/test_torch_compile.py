"""penstock.torch under torch.compile, torch.export and traces."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from test_torch_transforms import STACKS, compile_anew  # noqa: E402, F401: a fixture

torch.set_num_threads(1)  # these sizes are too small to share


@pytest.mark.parametrize("cell", ["lstm", "gru", "mingru"])
def test_compiles_to_one_graph_with_gradients(cell):
    torch.manual_seed(0)
    stack = STACKS[cell](3, 5, num_layers=2, bidirectional=True, batch_first=True)
    compiled = torch.compile(stack, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 7, 3, requires_grad=True)

    def gradients(module):
        stack.zero_grad()
        x.grad = None
        y, last = module(x)
        last = last if isinstance(last, torch.Tensor) else torch.cat(last)
        (y.sin().sum() + last.cos().sum()).backward()
        return [y, x.grad, *(p.grad for p in stack.parameters())]

    for got, expected in zip(gradients(compiled), gradients(stack)):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("cell", ["lstm", "mingru"])
def test_compiled_training_runs_forward_once(cell):
    """With a tape, the backward pass need not run forward again."""
    tapes = []

    def keep(graph, _):
        tapes.extend(node.args[-2] for node in graph.graph.nodes if "penstock" in str(node.target))
        return graph

    stack = STACKS[cell](3, 5, batch_first=True)
    torch.compile(stack, fullgraph=True, backend=keep)(torch.randn(2, 7, 3))
    assert tapes == [True]
    with torch.no_grad():
        torch.compile(stack, fullgraph=True, backend=keep)(torch.randn(2, 7, 3))
    assert tapes == [True, False]


@pytest.mark.parametrize("options", [{}, {"proj_size": 2, "num_layers": 2}])
def test_compiles_for_sizes_that_vary(options):
    stack = ours.LSTM(3, 5, **options)
    compiled = torch.compile(stack, fullgraph=True, dynamic=True, backend="aot_eager")
    for steps, rows in [(4, 2), (9, 3), (5, 6)]:
        x = torch.randn(steps, rows, 3)
        torch.testing.assert_close(compiled(x)[0], stack(x)[0])


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "bidirectional": True, "num_layers": 2}])
def test_compiles_projections(options, steps):
    stack = ours.LSTM(3, 5, proj_size=2, **options)
    compiled = torch.compile(stack, fullgraph=True, backend="aot_eager")
    x = torch.randn((6, steps, 3) if stack.batch_first else (steps, 6, 3))
    slots = stack.num_layers * (2 if stack.bidirectional else 1)
    states = tuple(torch.randn(slots, 6, width, requires_grad=True) for width in (2, 5))
    every_row = {"lengths": torch.randint(steps + 1, (6,)), "reset_mask": torch.rand(x.shape[:2]) < 0.3}

    def gradients(module, *call, **form):
        y, last = module(*call, **form)
        loss = y.sin().sum() + sum(s.cos().sum() for s in last)
        return [y, *last, *torch.autograd.grad(loss, [*(call[1:] and states), *stack.parameters()])]

    for call, form in (((x,), {}), ((x, states), {}), ((x, states), every_row)):
        for got, expected in zip(gradients(compiled, *call, **form), gradients(stack, *call, **form)):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("kind, options", [(ours.GRU, {}), (ours.LSTM, {"proj_size": 2, "bidirectional": True})])
def test_compiles_packed_sequences(kind, options):
    stack = kind(3, 5, **options)
    compiled = torch.compile(stack, fullgraph=True, backend="aot_eager")
    packed = torch.nn.utils.rnn.pack_sequence([torch.randn(n, 3) for n in (2, 6, 3)], enforce_sorted=False)
    got, got_last = compiled(packed)
    expected, expected_last = stack(packed)
    torch.testing.assert_close(got.data, expected.data)
    torch.testing.assert_close(got_last, expected_last)


def test_inductor_compiles_packed_sequences_with_gradients():
    torch.manual_seed(0)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = ours.LSTM(3, 5)
            self.head = torch.nn.Linear(5, 2)

        def forward(self, packed):
            y, (h, _) = self.lstm(packed)
            return self.head(y.data).tanh().sum() + h.sin().sum()

    model = Model()
    compiled = torch.compile(model, fullgraph=True)
    rows = [torch.randn(n, 3) for n in (2, 6, 3)]

    def gradients(module):
        model.zero_grad()
        leaves = [row.clone().requires_grad_() for row in rows]
        loss = module(torch.nn.utils.rnn.pack_sequence(leaves, enforce_sorted=False))
        loss.backward()
        return [loss.detach(), *(leaf.grad for leaf in leaves), *(p.grad for p in model.parameters())]

    for got, expected in zip(gradients(compiled), gradients(model)):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("width", [0, 4])
def test_exports_and_loads_again(tmp_path, width):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = ours.LSTM(3, 5, num_layers=2, batch_first=True, proj_size=width)
            self.head = torch.nn.Linear(width or 5, 2)

        def forward(self, x):
            return self.head(self.lstm(x)[0])

    model = Model().eval()
    x = torch.randn(2, 7, 3)
    sizes = {"x": {0: torch.export.Dim("rows", max=64), 1: torch.export.Dim("steps", min=2, max=512)}}
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, (x,), dynamic_shapes=sizes), path)
    again = torch.export.load(path).module()
    for other in (x, torch.randn(5, 11, 3)):
        torch.testing.assert_close(again(other), model(other))


@pytest.mark.parametrize("options", [{}, {"proj_size": 2}])
def test_traces(options):
    lstm = ours.LSTM(3, 5, **options).eval()
    x = torch.randn(4, 2, 3)
    for example in (x, x[:1]):
        traced = torch.jit.trace(lstm, (example,))
        torch.testing.assert_close(traced(x)[0], lstm(x)[0])
