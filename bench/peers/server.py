"""Other people's implementations, one process for all of them, driven by `penstock bench` over pipes.

Reads one JSON object a line from standard input and answers each with one line:

    {"do": "hello", "peers": [names]}           -> {"python", "peers": [{"name", "version", "missing"}]}
    {"do": "prepare", "peer", "folder", "case", "rows", "arrays": {name: [sizes]}}
                                                -> {"in_double"} or {"refused": why}
    {"do": "check" | "last", "peer"}            -> {"arrays": [names]}, written to the folder
    {"do": "sample", "peer", "seconds"}         -> {"seconds": [of each call]}
    {"do": "drop", "peer"}                      -> {}

or with {"error": what happened}. Arrays are raw float32 in files "in.NAME" and "out.NAME" of the folder.
"""

import functools
import importlib
import json
import math
import os
import sys
import time

MODULES = {
    "torch": "torch_peer",
    "torch-compile": "torch_peer",
    "torch-loop": "torch_peer",
    "flashrnn": "flashrnn_peer",
    "onnxruntime": "onnxruntime_peer",
    "numba": "numba_peer",
    "numpy": "numpy_peer",
}
GROUP_SECONDS = 20e-6  # calls shorter than this are timed in groups; src/core/base/timing.h has the same rule


class Refused(Exception):
    """Why a peer does not take part in a case, as the rest of a sentence: "has no sLSTM"."""


def time_calls(seconds, call, group_seconds=GROUP_SECONDS):
    """Seconds per call of calls that together take about `seconds`, as time_calls() in src/core/base/timing.h."""
    clock = time.perf_counter

    def timed(calls):
        start = clock()
        for _ in range(calls):
            call()
        return clock() - start

    first = timed(1)
    if first >= seconds:
        return [first]
    warm = max(min(first, timed(1)), 1e-9)
    group = min(max(math.ceil(group_seconds / warm), 1), 100000)
    times, total = [], 0.0
    while total < seconds:
        taken = timed(group)
        times.append(taken / group)
        total += taken
    return times


# Idle threads of one library spin for a while after a call; the next one, in the same process, must not pay for them.
SETTLING_SECONDS = 0.03


def hello(names):
    peers = []
    for name in names:
        try:
            peers.append({"name": name, "version": importlib.import_module(MODULES[name]).version(), "missing": ""})
        except ImportError as error:
            peers.append({"name": name, "version": "", "missing": str(error)})
    return {"python": sys.version.split()[0], "peers": peers}


class Server:
    def __init__(self):
        self.contenders = {}
        self.group_seconds = {}  # of each contender
        self.folders = {}

    def prepare(self, request):
        import numpy

        peer, case = request["peer"], request["case"]
        arrays = {
            name: numpy.fromfile(os.path.join(request["folder"], f"in.{name}"), dtype=numpy.float32).reshape(sizes)
            for name, sizes in request["arrays"].items()
        }
        module = importlib.import_module(MODULES[peer])
        if case["heads"] > 1 and not getattr(module, "HEADS", False):
            return {"refused": "has no heads"}
        try:
            contender = module.make(peer, {**case, "rows": request["rows"]}, arrays)
        except Refused as why:
            return {"refused": str(why)}
        self.contenders[peer] = contender
        self.folders[peer] = request["folder"]
        self.group_seconds[peer] = 0.0 if case.get("each_call") else GROUP_SECONDS
        return {"in_double": getattr(contender, "in_double", False)}

    def write(self, peer, answers):
        import numpy

        for name, array in answers.items():
            path = os.path.join(self.folders[peer], f"out.{name}")
            numpy.ascontiguousarray(array, dtype=numpy.float32).tofile(path)
        return {"arrays": list(answers)}

    def answer(self, request):
        do, peer = request["do"], request.get("peer")
        if do == "hello":
            return hello(request["peers"])
        if do == "prepare":
            return self.prepare(request)
        if do == "check":
            return self.write(peer, self.contenders[peer].check())
        if do == "last":
            return self.write(peer, self.contenders[peer].last())
        if do == "sample":
            timer = functools.partial(time_calls, group_seconds=self.group_seconds[peer])
            seconds = self.contenders[peer].sample(request["seconds"], timer)
            time.sleep(SETTLING_SECONDS)
            return {"seconds": seconds}
        if do == "drop":
            self.contenders.pop(peer, None)
            return {}
        raise ValueError(f"there is nothing called {do}")


def main():
    # Libraries print; what they print goes to standard error and not between our lines.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    server = Server()
    for line in sys.stdin:
        try:
            answer = server.answer(json.loads(line))
        except Exception as error:  # whatever a library throws, the other peers go on
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    sys.modules["server"] = sys.modules["__main__"]  # peers raise its Refused
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main()
