"""ONNX Runtime: one LSTM, GRU or RNN node, time first, inputs and outputs bound once; forward only."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from server import Refused

# name: (operator, our gate at each of its places, attributes)
CELLS = {
    "lstm": ("LSTM", [0, 3, 1, 2], {}),
    "gru": ("GRU", [1, 0, 2], {"linear_before_reset": 1}),
    "gru-before": ("GRU", [1, 0, 2], {"linear_before_reset": 0}),
    "elman": ("RNN", [0], {"activations": ["Tanh"]}),
    "elman-relu": ("RNN", [0], {"activations": ["Relu"]}),
}


def version():
    return onnxruntime.__version__


def build(case, arrays):
    """The model's bytes. Inputs x [T, B, I], h, c; outputs y [T, 1, B, H] or with a head [T * B, 1], then the states."""
    operator, order, attributes = CELLS[case["cell"]]
    hidden, gates = case["H"], len(order)

    def ordered(name):
        array = arrays[name]
        return array.reshape(gates, hidden, *array.shape[1:])[order].reshape(array.shape)

    weights = {
        "W": ordered("weight_ih_l0")[None],
        "R": ordered("weight_hh_l0")[None],
        "B": np.concatenate([ordered("bias_ih_l0"), ordered("bias_hh_l0")])[None],
    }
    step = case["pass"] == "step"
    states = ["h", "c"][: 2 if operator == "LSTM" else 1] if step else []
    outputs = ["y"] + [f"{state}_out" for state in states]
    nodes = [
        helper.make_node(
            operator, ["x", "W", "R", "B", "", *states] if step else ["x", "W", "R", "B"], outputs,
            hidden_size=hidden, **attributes,
        )
    ]
    steps = 1 if step else case["T"]
    float32, rows = TensorProto.FLOAT, case["B"]
    answer = helper.make_tensor_value_info("y", float32, [steps, 1, rows, hidden])
    if case["head"]:
        weights["flat"] = np.array([steps * rows, hidden], dtype=np.int64)
        weights["head_weight"], weights["head_bias"] = arrays["head_weight"], arrays["head_bias"]
        nodes.append(helper.make_node("Reshape", ["y", "flat"], ["rows"]))
        nodes.append(helper.make_node("Gemm", ["rows", "head_weight", "head_bias"], ["answer"], transB=1))
        answer = helper.make_tensor_value_info("answer", float32, [steps * rows, 1])
    state_info = [1, rows, hidden]
    graph = helper.make_graph(
        nodes, "layer",
        [helper.make_tensor_value_info("x", float32, [steps, rows, case["I"]])]
        + [helper.make_tensor_value_info(state, float32, state_info) for state in states],
        [answer] + [helper.make_tensor_value_info(f"{state}_out", float32, state_info) for state in states],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model.SerializeToString(), states, answer.name


class Session:
    def __init__(self, case, arrays):
        self.case = case
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = case["threads"], 1
        model, self.states, self.answer = build(case, arrays)
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.x = np.ascontiguousarray(arrays["x"].transpose(1, 0, 2))
        self.t = 0
        self.bind()

    def value(self, *shape):
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype=np.float32))

    def bind(self):
        """One binding for a sequence; for steps one for each step and each of the two places of the states."""
        rows, hidden, step = self.case["B"], self.case["H"], self.case["pass"] == "step"
        steps = 1 if step else self.case["T"]
        self.y = self.value(steps * rows, 1) if self.case["head"] else self.value(steps, 1, rows, hidden)
        places = [{state: self.value(1, rows, hidden) for state in self.states} for _ in range(2)]
        self.places = places
        self.bindings = []
        for t in range(self.case["T"] if step else 1):
            x = onnxruntime.OrtValue.ortvalue_from_numpy(self.x[t : t + 1] if step else self.x)
            for parity in range(2 if step else 1):
                binding = self.session.io_binding()
                binding.bind_ortvalue_input("x", x)
                binding.bind_ortvalue_output(self.answer, self.y)
                for state in self.states:
                    binding.bind_ortvalue_input(state, places[parity][state])
                    binding.bind_ortvalue_output(f"{state}_out", places[1 - parity][state])
                self.bindings.append(binding)
        self.calls = 0

    def call(self):
        self.session.run_with_iobinding(self.bindings[0])

    def step(self):
        calls = self.calls
        self.session.run_with_iobinding(self.bindings[2 * (calls % self.case["T"]) + calls % 2])
        self.calls = calls + 1

    def stream(self):
        """Every step from a state of zero: [B, T, C]."""
        self.bind()
        answers = []
        for _ in range(self.case["T"]):
            self.step()
            answers.append(self.y.numpy().reshape(self.case["B"], -1).copy())
            if self.case["head"]:
                h = self.places[self.calls % 2]["h"].numpy()[0]
                answers[-1] = np.concatenate([h, answers[-1]], axis=1)
        return np.stack(answers, axis=1)

    def check(self):
        if self.case["pass"] != "step":
            self.call()
        return self.last()

    def last(self):
        rows = self.case["rows"]
        if self.case["pass"] == "step":
            return {"y": self.stream()[rows]}
        return {"y": self.y.numpy()[:, 0].transpose(1, 0, 2)[rows]}

    def sample(self, seconds, time_calls):
        return time_calls(seconds, self.step if self.case["pass"] == "step" else self.call)


def make(_, case, arrays):
    if case["cell"] not in CELLS:
        raise Refused(f"has no {case['cell']}")
    if case["pass"] == "training":
        raise Refused("does not train")
    if case["dtype"] != "f32":
        raise Refused(f"has no {case['dtype']} here")
    return Session(case, arrays)
