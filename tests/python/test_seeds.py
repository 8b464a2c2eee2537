"""bench/seeds.py reads what profilers print; its measurements need a GPU."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "tables"))
import gpu_traces  # noqa: E402


def test_counters_of_each_kernel_are_read_from_ncu():
    rows = [("0", "scan(float*)", "sectors", "sector", "1,600"), ("0", "scan(float*)", "requests", "request", "400"),
            ("0", "scan(float*)", "read", "Mbyte", "2.5"), ("1", "join", "shared", "inst", "12")]
    text = "==PROF== Connected\n" + '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n' + "".join(
        f'"{number}","{kernel}","{gpu_traces.METRICS[name]}","{unit}","{value}"\n'
        for number, kernel, name, unit, value in rows)
    assert gpu_traces.kernels_of(text) == [{"name": "scan", "sectors": 1600, "requests": 400, "read": 2.5e6},
                                           {"name": "join", "shared": 12}]


def test_hidden_copies_are_what_runs_beside_kernels():
    events = [{"cat": kind, "ts": begin, "dur": length} for kind, begin, length in (
        ("kernel", 0, 10), ("kernel", 5, 10), ("kernel", 30, 5), ("gpu_memcpy", 12, 20), ("cpu_op", 0, 99))]
    kernels, copies = (gpu_traces.intervals(events, {kind}) for kind in ("kernel", "gpu_memcpy"))
    assert kernels == [[0, 15], [30, 35]]
    assert gpu_traces.common(copies, kernels) == 3 + 2
