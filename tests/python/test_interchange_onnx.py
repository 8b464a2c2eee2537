"""Recurrent nodes of ONNX files as weights, and back."""

import numpy as np
import pytest

penstock = pytest.importorskip("penstock", reason="penstock is not installed")

from interchange_checks import check, outputs, random_weights, same, values  # noqa: E402

from penstock import interchange  # noqa: E402


def test_any_node_of_onnx_is_read_or_refused(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    random, read, x = np.random.default_rng(5), 0, values(4, 2, 3)
    given = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "y")]
    for _ in range(80):
        kind, size = str(random.choice(["LSTM", "GRU", "RNN"])), int(random.integers(1, 4))
        rows, both = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * size, int(random.integers(1, 3))
        stored = {"W": (both, rows, 3), "R": (both, rows, size), "B": (both, 2 * rows), "h": (both, 2, size)}
        stored = {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in stored.items()}
        stored["h"] *= random.random() < 0.5
        stored["lengths"] = np.array([2, 4], np.int32)
        inputs = ["x", "W", "R", *(name if random.random() < p else "" for name, p in [("B", 0.7), ("lengths", 0.2), ("h", 0.6)])]
        attributes = {"hidden_size": size, "direction": "bidirectional" if both == 2 else str(random.choice(["forward", "reverse"]))}
        if random.random() < 0.2:
            attributes["clip"] = float(random.choice([0.1, np.finfo(np.float32).max]))
        if kind == "GRU":
            attributes["linear_before_reset"] = int(random.integers(2))
        if kind == "RNN":
            attributes["activations"] = [str(random.choice(["Tanh", "Relu", "Sigmoid"]))] * both
        node = onnx.helper.make_node(kind, inputs, ["y"], **attributes)
        arrays = [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()]
        graph = onnx.helper.make_graph([node], "g", given[:1], given[1:], arrays)
        version = onnx.helper.make_opsetid("", int(random.choice([7, 14, 21])))
        model = onnx.helper.make_model(graph, opset_imports=[version], ir_version=8)
        onnx.save(model, str(tmp_path / "m.onnx"))
        try:
            weights = interchange.load(tmp_path / "m.onnx")["y"]
        except penstock.Unsupported:
            continue
        session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        y = session.run(None, {"x": x})[0]
        check(outputs(weights, np.ascontiguousarray(x.swapaxes(0, 1))), y.transpose(2, 0, 1, 3).reshape(2, 4, -1))
        read += 1
    assert 20 <= read < 80


@pytest.mark.parametrize("names", [("", ""), ("same", "same"), ("same", "")])
def test_nodes_of_onnx_have_names_of_their_own(tmp_path, names):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    made, given = [], []
    for i, name in enumerate(names):
        weights = random_weights("gru", 3, 3)
        weights.tensors["bias_ih_l0"] += i
        tensors, attributes = interchange.to_onnx(weights)
        given += [onnx.numpy_helper.from_array(array, f"{key}{i}") for key, array in tensors.items()]
        made.append(onnx.helper.make_node("Identity", [f"B{i}"], [f"b{i}"]))
        attributes.pop("op_type")
        inputs = ["x", f"W{i}", f"R{i}", f"b{i}", "", "h"]
        made.append(onnx.helper.make_node("GRU", inputs, ["", f"y{i}"], name=name, **attributes))
    x, h, *y = (value(onnx, name) for name in ("x", "h", "y0", "y1"))
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(made, "g", [x, h], y, given)), str(tmp_path / "m.onnx"))
    found = interchange.load(tmp_path / "m.onnx")
    assert len(found) == 2
    first, second = (weights.tensors["bias_ih_l0"] for weights in found.values())
    np.testing.assert_allclose(second - first, 1, atol=1e-6)


@pytest.mark.parametrize("kind, options, cell", [
    ("LSTM", {"num_layers": 2, "bidirectional": True}, "lstm"),
    ("GRU", {"num_layers": 2}, "gru"),
    ("RNN", {"bidirectional": True}, "elman"),
    ("RNN", {"nonlinearity": "relu", "bias": False}, "elman-relu"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")  # of the exporter by traces
def test_layers_that_pytorch_has_exported_as_onnx(tmp_path, kind, options, cell):
    pytest.importorskip("onnx", reason="onnx is not installed")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    module = getattr(torch.nn, kind)(5, 7, batch_first=True, **options)
    x = torch.randn(2, 11, 5)
    torch.onnx.export(module, (x,), str(tmp_path / "m.onnx"), dynamo=False)
    layers = list(interchange.load(tmp_path / "m.onnx").values())
    assert len(layers) == options.get("num_layers", 1) and {layer.cell for layer in layers} == {cell}
    y = x.numpy()
    for layer in layers:
        y = outputs(layer, y)
    with torch.no_grad():
        check(y, module(x)[0].numpy())


def in_branch(onnx, weights, then, inputs=("state",)):
    """Returns a model whose LSTM is in a branch, as PyTorch's scripted modules are exported.

    The LSTM's weights are rearranged by operators, and its states come from an If whose branches capture `state`.
    """
    make, array = onnx.helper.make_node, onnx.numpy_helper.from_array
    constants = {"starts": [0, 15, 5], "ends": [5, 20, 15], "axis": [0], "i": 0, "one": [1]}
    stored = [array(tensor, name.removesuffix("_l0")) for name, tensor in weights.tensors.items()]
    stored += [array(np.array(value, np.int64).reshape(-1)[i : i + 1], f"{name}{i}")
               for name, value in constants.items() for i in range(np.size(value))]  # fmt: skip
    nodes = []
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):  # gates i, f, g, o become i, o, f, g
        parts = [f"{name}_{i}" for i in range(3)]
        nodes += [make("Slice", [name, f"starts{i}", f"ends{i}", "axis0"], [part]) for i, part in enumerate(parts)]
        nodes.append(make("Concat", parts, [f"{name}_c"], axis=0))
    nodes.append(make("Concat", ["bias_ih_c", "bias_hh_c"], ["bias"], axis=0))
    nodes += [make("Unsqueeze", [of, "axis0"], [to]) for of, to in [("weight_ih_c", "W"), ("weight_hh_c", "R"), ("bias", "B")]]
    captured = onnx.helper.make_graph([make("Gather", ["state", "one0"], ["h1"], axis=0)], "else", [], [value(onnx, "h1")])
    nodes.append(make("If", ["same"], ["h"], then_branch=then, else_branch=captured))
    nodes.append(make("LSTM", ["x", "W", "R", "B", "", "h", "h"], ["y"], hidden_size=5, name="rnn"))
    outer = onnx.helper.make_graph(nodes, "then", [], [value(onnx, "y")])
    other = onnx.helper.make_graph([make("Identity", ["x"], ["x1"])], "else", [], [value(onnx, "x1")])
    whole = [make("Equal", ["rate", "i0"], ["same"]), make("If", ["same"], ["out"], then_branch=outer, else_branch=other)]
    given = [value(onnx, name) for name in ("x", *inputs)] + [value(onnx, "rate", onnx.TensorProto.INT64)]
    graph = onnx.helper.make_graph(whole, "g", given, [value(onnx, "out")], stored)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 16)], ir_version=8)


def value(onnx, name, kind=1):
    return onnx.helper.make_tensor_value_info(name, kind, None)


def constant(onnx, number, name="h0"):
    array = onnx.numpy_helper.from_array(np.full((1, 2, 5), number, np.float32))
    return onnx.helper.make_graph([onnx.helper.make_node("Constant", [], [name], value=array)], "then", [], [value(onnx, name)])


def test_a_layer_in_a_branch_whose_state_is_captured(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    weights, x = random_weights("lstm", 3, 5), values(2, 4, 3)
    model = in_branch(onnx, weights, constant(onnx, 0))
    onnx.save(model, str(tmp_path / "m.onnx"))
    same(interchange.load(tmp_path / "m.onnx")["rnn"], weights)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {"x": np.ascontiguousarray(x.swapaxes(0, 1)), "state": np.zeros((2, 2, 5), np.float32), "rate": np.zeros(1, np.int64)}
    y = session.run(None, given)[0]
    check(outputs(weights, x), y.transpose(2, 0, 1, 3).reshape(2, 4, -1))


@pytest.mark.parametrize("start, refused", [("stored", True), ("state", False)])
@pytest.mark.parametrize("kind", ["If", "Loop", "Scan"])
def test_a_state_from_a_branch_or_a_loop(tmp_path, kind, start, refused):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    make, weights = onnx.helper.make_node, random_weights("lstm", 3, 5)
    ends = [value(onnx, name) for name in ("h2", "s2")]
    if kind == "If":
        body = onnx.helper.make_graph([make("Identity", [start], ["h2"])], "then", [], ends[:1])
        nodes = [make("If", ["same"], ["h"], then_branch=body, else_branch=constant(onnx, 0))]
    elif kind == "Loop":
        formal = [value(onnx, "n", 7), value(onnx, "c", 9), value(onnx, "h1")]
        step = [make("Tanh", ["h1"], ["h2"]), make("Identity", ["c"], ["c2"])]
        body = onnx.helper.make_graph(step, "body", formal, [value(onnx, "c2", 9), ends[0]])
        nodes = [make("Loop", ["times", "", start], ["h"], body=body)]
    else:
        step = [make("Tanh", ["h1"], ["h2"]), make("Identity", ["s"], ["s2"])]
        body = onnx.helper.make_graph(step, "body", [value(onnx, "h1"), value(onnx, "s")], ends)
        nodes = [make("Scan", [start, "x"], ["h", "scanned"], body=body, num_scan_inputs=1)]
    tensors, attributes = interchange.to_onnx(weights)
    nodes.append(make(attributes.pop("op_type"), ["x", "W", "R", "B", "", "h"], ["y"], name="rnn", **attributes))
    given = [value(onnx, "x"), value(onnx, "state"), value(onnx, "times", 7), value(onnx, "same", 9)]
    tensors["stored"] = np.ones((1, 2, 5), np.float32)
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = onnx.helper.make_graph(nodes, "g", given, [value(onnx, "y")], stored)
    onnx.save(onnx.helper.make_model(graph), str(tmp_path / "m.onnx"))
    if refused:
        with pytest.raises(penstock.Unsupported, match="starts from initial_h, which the file holds"):
            interchange.load(tmp_path / "m.onnx")
    else:
        same(interchange.load(tmp_path / "m.onnx")["rnn"], weights)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "gru-before", "elman", "elman-relu"])
def test_nodes_of_onnx(cell, direction):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    weights = random_weights(cell, 3, 5, direction=direction)
    tensors, attributes = interchange.to_onnx(weights)
    same(interchange.from_onnx(tensors, cell=cell, direction=direction), weights)
    given = {name: onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()}
    node = onnx.helper.make_node(attributes.pop("op_type"), ["x", "W", "R", "B"], ["y"], **attributes)
    kinds = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "y")]
    graph = onnx.helper.make_graph([node], "g", kinds[:1], kinds[1:], list(given.values()))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    x = values(2, 7, 3)
    y = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x.swapaxes(0, 1)})[0]
    check(y.transpose(2, 0, 1, 3).reshape(2, 7, -1), outputs(weights, x))


def test_other_operators_of_a_file_do_not_matter(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    make, made, stored = onnx.helper.make_node, [make_strange(onnx, "x", "a", "com.microsoft")], []
    for i, source in enumerate(["a", "b"]):
        tensors, attributes = interchange.to_onnx(random_weights("gru", 3, 3))
        stored += [onnx.numpy_helper.from_array(array, f"{key}{i}") for key, array in tensors.items()]
        kind, cell = attributes.pop("op_type"), "Cos" if i == 1 else "Tanh"
        inputs = [source, *(f"{key}{i}" for key in "WRB")]
        made.append(make(kind, inputs, [f"y{i}"], name=f"rnn{i}", activations=["Sigmoid", cell], **attributes))
        made.append(make_strange(onnx, f"y{i}", "b" if i == 0 else "z", ""))
    graph = onnx.helper.make_graph(made, "g", [value(onnx, "x")], [value(onnx, "z")], stored)
    opsets = [onnx.helper.make_opsetid("", 99), onnx.helper.make_opsetid("com.microsoft", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets), str(tmp_path / "m.onnx"))
    with pytest.raises(penstock.Unsupported, match="GRU .rnn1.: its activation is .Cos."):
        interchange.load(tmp_path / "m.onnx")
    assert list(interchange.load(tmp_path / "m.onnx", prefix="rnn0")) == ["rnn0"]
    with pytest.raises(penstock.BadInput, match="there is no layer .rnn2., but rnn0, rnn1"):
        interchange.load(tmp_path / "m.onnx", prefix="rnn2")


def save_graph(onnx, path, nodes, stored):
    """Saves a file of nodes that make y of x [4, 1, 3] and arrays."""
    arrays = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()]
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, 1, 3])
    graph = onnx.helper.make_graph(nodes, "g", [given], [value(onnx, "y")], arrays)
    domains = {node.domain for node in nodes} - {""}
    opsets = [onnx.helper.make_opsetid("", 17), *(onnx.helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))


def lstm_node(onnx, inputs=("x", "W", "R", "B"), outputs=("y",), name="rnn", **attributes):
    return onnx.helper.make_node("LSTM", list(inputs), list(outputs), name=name, hidden_size=5, **attributes)


@pytest.mark.parametrize("domain", ["", "x"])
@pytest.mark.parametrize("name", ["rnn", "other", ""])
@pytest.mark.parametrize("reads", [1, 7])
def test_nodes_that_are_called_as_layers_of_penstock(tmp_path, domain, name, reads):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    weights = random_weights("lstm", 3, 5)
    other = onnx.helper.make_node("Recurrent", ["y0"] * reads, ["y"], name=name, domain=domain)
    save_graph(onnx, tmp_path / "m.onnx", [lstm_node(onnx, outputs=["y0"]), other], interchange.to_onnx(weights)[0])
    (found,) = interchange.load(tmp_path / "m.onnx").items()
    assert found[0] == "rnn"
    same(found[1], weights)
    with pytest.raises(penstock.Unsupported, match="ONNX has no operator Recurrent" if not domain else "is of the domain .x."):
        penstock.import_onnx(str(tmp_path / "m.onnx"))


@pytest.mark.parametrize("op", ["Transpose", "Identity", "DequantizeLinear", "Shape"])
def test_weights_behind_operators_of_other_domains(tmp_path, op):
    """Nobody knows what these compute, even if ONNX has an operator of the name."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    stored, _ = interchange.to_onnx(random_weights("lstm", 5, 5))
    foreign = onnx.helper.make_node(op, ["R0", *(["s"] if op == "DequantizeLinear" else [])], ["R"], domain="x", perm=[0, 2, 1])
    stored = {"W": stored["W"], "R0": stored["R"], "B": stored["B"], "s": np.float32(2)}
    save_graph(onnx, tmp_path / "m.onnx", [foreign, lstm_node(onnx)], stored)
    with pytest.raises(penstock.Unsupported, match="LSTM .rnn.: its weight_hh is computed and not stored"):
        interchange.load(tmp_path / "m.onnx")


EXTENTS = {
    "B of more rows": ({"B": (1, 50)}, {}),
    "B of fewer rows": ({"B": (1, 30)}, {}),
    "B of two directions": ({"B": (2, 40)}, {}),
    "W of more rows": ({"W": (1, 25, 3)}, {}),
    "W of fewer rows": ({"W": (1, 10, 3)}, {}),
    "W of two directions": ({"W": (2, 20, 3)}, {}),
    "R of more rows": ({"R": (1, 25, 5)}, {}),
    "R of more columns": ({"R": (1, 20, 6)}, {}),
    "R of two directions": ({"R": (2, 20, 5)}, {}),
    "P of more rows": ({"P": (1, 20)}, {}),
    "P of two directions": ({"P": (2, 15)}, {}),
    "W and R and B of one direction": ({}, {"direction": "bidirectional"}),
    "B of three axes": ({"B": (1, 40, 1)}, {}),
    "W of two axes": ({"W": (1, 20)}, {}),
    "W of four axes": ({"W": (1, 20, 3, 1)}, {}),
}


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("case", EXTENTS)
def test_weights_of_other_extents(tmp_path, case, computed):
    """Computed weights are checked as stored ones are: Identity and Concat hide their extents until they are folded."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    shapes, attributes = EXTENTS[case]
    shapes = {"W": (1, 20, 3), "R": (1, 20, 5), "B": (1, 40), "P": (1, 15), **shapes}
    stored = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    nodes = []
    if computed:
        stored = {f"{name}0": array for name, array in stored.items()}
        nodes = [onnx.helper.make_node("Identity", [f"{name}0"], [name]) for name in "WRP"]
        nodes.append(onnx.helper.make_node("Concat", ["B0"], ["B"], axis=1))
    nodes.append(lstm_node(onnx, ["x", "W", "R", "B", "", "", "", "P"], **attributes))
    save_graph(onnx, tmp_path / "m.onnx", nodes, stored)
    problem = r"rnn.*(has the shape|fits neither)|Split '[WRBP] of rnn': an axis of \d+ cannot be split into 1 parts of|cannot be joined"
    with pytest.raises(penstock.BadInput, match=problem):
        interchange.load(tmp_path / "m.onnx")
    if not case.endswith("axes"):  # found when a network is prepared
        with pytest.raises(penstock.BadInput, match=problem):
            penstock.import_onnx(str(tmp_path / "m.onnx"))


def test_layers_that_no_output_needs(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    make, (first, second, third) = onnx.helper.make_node, (random_weights("lstm", 3, 5) for _ in range(3))
    stored = {f"{key}{i}": array for i, weights in enumerate((first, second, third))
              for key, array in interchange.to_onnx(weights)[0].items()}  # fmt: skip
    body = onnx.helper.make_graph([lstm_node(onnx, ["x", "W2", "R2", "B2"], ["z2"], "inner"), make("Identity", ["x"], ["t"])],
                                  "then", [], [value(onnx, "t")])  # fmt: skip
    other = onnx.helper.make_graph([make("Identity", ["x"], ["e"])], "else", [], [value(onnx, "e")])
    nodes = [
        lstm_node(onnx, ["x", "W0", "R0", "B0"], ["y"], "used"),
        lstm_node(onnx, ["x", "W1", "R1", "B1"], ["z"], "unused"),
        make("If", ["c"], ["z3"], then_branch=body, else_branch=other),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [value(onnx, "x"), value(onnx, "c", 9)], [value(onnx, "y")],
                                   [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()])  # fmt: skip
    onnx.save(onnx.helper.make_model(graph), str(tmp_path / "m.onnx"))
    found = interchange.load(tmp_path / "m.onnx")
    assert list(found) == ["used", "unused", "inner"]
    for read, weights in zip(found.values(), (first, second, third)):
        same(read, weights)


def test_tensors_and_graphs_that_no_layer_has(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    make, weights = onnx.helper.make_node, random_weights("lstm", 3, 5)
    stored, _ = interchange.to_onnx(weights)
    body = onnx.helper.make_graph([make("Identity", ["s"], ["t"])], "body", [value(onnx, "s")], [value(onnx, "t")])
    with_layer = onnx.helper.make_graph([lstm_node(onnx, outputs=["t"], name="inner")], "body", [], [value(onnx, "t")])
    words = onnx.helper.make_tensor("words", onnx.TensorProto.STRING, [2], [b"a", b"b"])
    strange = [
        make("Constant", [], ["more"], value=onnx.helper.make_tensor("more", onnx.TensorProto.UINT16, [2], [1, 2])),
        make("Constant", [], ["word"], value_string="a"),
        make("StringNormalizer", ["words"], ["texts"], stopwords=["a", "b"]),
        make("SequenceMap", ["y", "more", "word"], ["mapped"], body=body),
        make("BeamSearch", ["y", "halves"], ["found"], domain="com.microsoft", decoder=body),
        make("Dropout", ["y", "", "training"], ["dropped"]),
    ]

    def save(*more):
        arrays = [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()]
        arrays += [words, onnx.helper.make_tensor("halves", onnx.TensorProto.UINT16, [1], [3])]
        ends = [value(onnx, name) for name in ("mapped", "found", "dropped", "texts")]
        graph = onnx.helper.make_graph([*strange, *more, lstm_node(onnx)], "g", [value(onnx, "x"), value(onnx, "training", 9)], ends, arrays)
        opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opsets), str(tmp_path / "m.onnx"))

    save()
    same(interchange.load(tmp_path / "m.onnx")["rnn"], weights)
    with pytest.raises(penstock.Unsupported):
        penstock.import_onnx(str(tmp_path / "m.onnx"))
    # A layer in such a graph would be lost: that is said, and the others can be read.
    save(make("BeamSearch", ["y"], ["deep"], name="search", domain="com.microsoft", decoder=with_layer))
    with pytest.raises(penstock.Unsupported, match="BeamSearch .search. has a graph with layers, expected them in If"):
        interchange.load(tmp_path / "m.onnx")
    same(interchange.load(tmp_path / "m.onnx", prefix="rnn")["rnn"], weights)
    # Weights that nobody can read are no weights.
    stored["W"] = stored["W"].astype(np.uint16)
    save()
    with pytest.raises(penstock.Unsupported, match="its weight_ih is computed and not stored, or of a type"):
        interchange.load(tmp_path / "m.onnx")


def test_layers_of_branches_that_are_never_taken(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    stored, _ = interchange.to_onnx(random_weights("lstm", 3, 5))
    then = onnx.helper.make_graph([lstm_node(onnx, outputs=["t"])], "then", [], [value(onnx, "t")])
    other = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["e"])], "else", [], [value(onnx, "e")])
    node = onnx.helper.make_node("If", ["no"], ["y"], then_branch=then, else_branch=other)
    save_graph(onnx, tmp_path / "m.onnx", [node], {**stored, "no": np.array(False)})
    with pytest.raises(penstock.BadInput, match="its layers are in branches that are never taken"):
        interchange.load(tmp_path / "m.onnx")


def make_strange(onnx, source, result, domain):
    return onnx.helper.make_node("Strange", [source], [result], domain=domain, words=["a", "b"] if domain else 1)


def test_onnx_files_that_are_written_are_read(tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed")
    weights = random_weights("lstm", 3, 5, layers=2)
    interchange.save(tmp_path / "m.onnx", weights, format="onnx")
    layers = interchange.load(tmp_path / "m.onnx")
    x = values(2, 7, 3)
    first, second = layers.values()
    check(outputs(second, outputs(first, x)), outputs(weights, x))
    (name, *_) = layers
    assert list(interchange.load(tmp_path / "m.onnx", prefix=name)) == [name]
    interchange.save(tmp_path / "s.onnx", random_weights("slstm", 3, 6, heads=2), format="onnx")
    with pytest.raises(penstock.BadInput, match="there is no RNN, GRU or LSTM in it; its operators are "):
        interchange.load(tmp_path / "s.onnx")
    with pytest.raises(penstock.InvalidArgument, match="a file of ONNX holds one stack, not 2"):
        interchange.save(tmp_path / "m.onnx", {"a": weights, "b": weights}, format="onnx")


def test_what_onnx_has_and_no_cell(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    tensors, attributes = interchange.to_onnx(random_weights("lstm", 3, 5))
    kind = attributes.pop("op_type")

    def refused(error, message, inputs=("x", "W", "R", "B"), stored=("W", "R", "B"), **changes):
        node = onnx.helper.make_node(kind, list(inputs), ["y"], **{**attributes, **changes})
        given = [onnx.numpy_helper.from_array(tensors[name], name) for name in stored]
        names = {"x", *inputs} - {"", *stored}
        graph = onnx.helper.make_graph([node], "g", [value(onnx, name) for name in names], [value(onnx, "y")], given)
        onnx.save(onnx.helper.make_model(graph), str(tmp_path / "m.onnx"))
        with pytest.raises(error, match=message):
            interchange.load(tmp_path / "m.onnx")

    refused(penstock.Unsupported, "clip is 0, expected a positive number", clip=0.0)
    refused(penstock.Unsupported, "it has 1 activation_alpha and 0 activation_beta", activation_alpha=[0.5])
    refused(penstock.Unsupported, "the attribute .linear_before_reset., which LSTM does not have", linear_before_reset=1)
    refused(penstock.BadInput, r"R has the shape \[1, 20, 5\], which fits neither 1 directions nor hidden_size 4", hidden_size=4)
    refused(penstock.Unsupported, "starts from initial_h, which the file holds", inputs=("x", "W", "R", "", "", "B"))
    refused(penstock.Unsupported, "starts from initial_c, which the file holds", inputs=("x", "W", "R", "", "", "", "B"))
    refused(penstock.Unsupported, "has sequence_lens that the file holds", inputs=("x", "W", "R", "", "B"))
    refused(penstock.Unsupported, "its activation is .Sine., expected one of affine", activations=["Sigmoid", "Sine", "Tanh"])
    refused(penstock.BadInput, r"P has the shape \[1, 40\], expected \[1, 15\]", inputs=("x", "W", "R", "B", "", "", "", "B"))
    refused(penstock.Unsupported, "LSTM .y.: its weight_hh is computed and not stored", stored=("W", "B"))
    refused(penstock.BadInput, "direction is .sideways.", direction="sideways")
    refused(penstock.BadInput, "R has the shape", inputs=("x", "W", "W", "B"))
    refused(penstock.BadInput, r"B has the shape \[1, 20, 5\], expected \[1, 40\]", inputs=("x", "W", "R", "R"))
    with pytest.raises(penstock.InvalidArgument, match="ONNX has no operator of the cell 'mingru'"):
        interchange.to_onnx(random_weights("mingru", 3, 5))
    with pytest.raises(penstock.InvalidArgument, match="one layer, not 2"):
        interchange.to_onnx(random_weights("gru", 3, 5, layers=2))
    for content in (b"", b"no protobuf", b"\x0a" * 100):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(penstock.BadInput, match="it has no graph|damaged at byte"):
            interchange.load(tmp_path / "bad.onnx")
    with pytest.raises(penstock.IoFailure):
        interchange.load(tmp_path / "none.onnx")
