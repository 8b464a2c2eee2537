"""penstock bench: what it prints, what it refuses, and that one wrong weight costs it every time."""

import json
import os
import re
import signal
import sys
import time

import pytest

from program import PATIENCE, FullPipe, read_terminal, refuses, run, start

SMALL = ["--shapes", "2x5x3x4", "--threads", 1, "--seconds", 0.002]
ALONE = ["--peers", "none", *SMALL]
OUTCOMES = {"timed", "wrong", "skipped", "failed", "untimed"}


@pytest.fixture
def variables(monkeypatch):
    """Sets variables of the program's environment."""
    return lambda **values: [monkeypatch.setenv(name, value) for name, value in values.items()]


def bench(*arguments, **options):
    return run("bench", *arguments, "--json", "-", **options).json()


def results(report):
    return [entry for table in report["tables"] for case in table["cases"] for entry in case["results"]]


def test_a_table_for_people():
    result = run("bench", "layer", "--cells", "lstm", *ALONE)
    assert "## One layer over whole sequences" in result.out
    row = next(line for line in result.out.splitlines() if line.startswith("| lstm"))
    assert "2,5,3,4" in row and re.search(r"\| [\d.e-]+ - [\d.e-]+ +\|", row)
    assert result.err == "1/2 lstm 2x5x3x4 forward f32, 1 thread\n2/2 lstm 2x5x3x4 training f32, 1 thread\n"
    assert run("bench", "layer", "--cells", "lstm", "--quiet", *ALONE).err == ""


@pytest.mark.parametrize("table", ["layer", "scan", "stream", "batch", "latency", "throughput", "fused", "recurrent", "cuda_rnn", "cs179"])
def test_every_table_is_complete(table):
    report = bench(table, *ALONE)
    assert report["all_right"] and not report["interrupted"]
    assert report["command"].startswith(f"penstock bench {table} --peers none")
    assert {"cpu", "isa", "threads", "kernel", "compiler", "gemm", "date", "load"} <= report["machine"].keys()
    assert report["tables"][0]["name"] == table
    for case in report["tables"][0]["cases"]:
        assert [case[axis] for axis in "BTIH"] == [2, 5, 3, 4]
        assert case["limit"]["seconds"] > 0 and case["checked"].startswith("all 5 steps of rows 0 and 1 of 2")
        first = case["results"][0]
        assert first["name"] == "penstock" and first["outcome"] == "timed" and first["ratio"] == 1
        assert 0 < first["minimum"] <= first["lower_quartile"] <= first["median"] <= first["maximum"]
        assert 0 <= first["error"] <= first["tolerance"] < 1e-4


def test_all_tables_and_files(tmp_path):
    run("bench", "all", *ALONE, "--cells", "gru", "--json", "all.json", "--markdown", "page.md", cwd=tmp_path)
    report = json.loads((tmp_path / "all.json").read_text())
    assert len([table for table in report["tables"] if table["cases"]]) == 9
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# Benchmarks on a CPU\n") and page.count("\n## ") == 9


def test_quick_takes_few_shapes():
    report = bench("batch", "--quick", "--peers", "none", "--threads", 1, "--cells", "lstm")
    assert [case["B"] for case in report["tables"][0]["cases"]] == [1, 8]


@pytest.mark.parametrize("weight", [0, 40, 127])
@pytest.mark.parametrize("table", ["layer", "stream"])
def test_one_wrong_weight_leaves_no_time(variables, table, weight):
    variables(PENSTOCK_BENCH_FAULT=f"penstock:{weight}")
    result = run("bench", table, "--cells", "lstm", "--peers", "onednn", *SMALL, "--markdown", "-", expect=1)
    assert "penstock bench: penstock is wrong in lstm 2x5x3x4" in result.err and "no time: y is off by" in result.err
    rows = [line for line in result.out.splitlines() if line.startswith("| lstm")]
    assert rows
    for row in rows:
        cells = [cell.strip() for cell in row.split("|")]
        assert cells[5] == "WRONG" and "not timed" in cells and "x)" not in row and " - " not in row.replace("| -", "")
    report = json.loads(run("bench", table, "--cells", "lstm", *ALONE, "--json", "-", expect=1).out)
    assert not report["all_right"]
    for entry in results(report):
        assert entry["outcome"] == "wrong" and entry["error"] > entry["tolerance"]
        assert not {"median", "minimum", "maximum", "ratio"} & entry.keys()


def test_a_wrong_peer_has_no_time_and_we_have(variables):
    variables(PENSTOCK_BENCH_FAULT="onednn:5")
    report = bench("layer", "--cells", "lstm", "--peers", "onednn", *SMALL, expect=1)
    for entry in results(report):
        assert entry["outcome"] == ("timed" if entry["name"] == "penstock" else "wrong")


def test_peers_agree_and_stand_beside_us():
    """Python itself has them where these tests run (tests/python/requirements.txt)."""
    report = bench("layer", "--cells", "gru,mingru-log", "--python", sys.executable, "--peers", "torch,numpy,onednn", *SMALL)
    assert {"torch", "numpy", "onednn"} == {peer["name"] for peer in report["peers"]} and report["missing"] == []
    by_name = {}
    for entry in results(report):
        assert entry["outcome"] in ("timed", "skipped"), entry
        by_name.setdefault(entry["name"], []).append(entry["outcome"])
    assert by_name["torch"] == ["timed"] * 4
    assert by_name["numpy"] == ["timed", "skipped"] * 2
    assert by_name["onednn"] == ["timed"] * 2 + ["skipped"] * 2


@pytest.mark.parametrize("peer", ["penstock", "numpy", "torch"])
def test_a_wrong_term_of_a_scan(variables, peer):
    variables(PENSTOCK_BENCH_FAULT=f"{peer}:15")
    report = bench("scan", "--python", sys.executable, "--peers", "numpy,torch", "--cells", "scan", "--passes", "forward", *SMALL, expect=1)
    right = "untimed" if peer == "penstock" else "timed"
    for entry in results(report):
        assert entry["outcome"] in ("wrong" if entry["name"] == peer else right, "skipped"), entry
    assert "wrong" in [entry["outcome"] for entry in results(report)]


def test_a_wrong_weight_of_a_peer_in_python(variables):
    variables(PENSTOCK_BENCH_FAULT="numpy:3")
    report = bench("stream", "--cells", "slstm", "--python", sys.executable, "--peers", "numpy", *SMALL, expect=1)
    assert [entry["outcome"] for entry in results(report)] == ["timed", "wrong"]


def test_missing_peers_are_named():
    result = run("bench", "layer", "--cells", "gru", "--python", "/nowhere/python", "--json", "-", *SMALL)
    report = result.json()
    assert {peer["name"] for peer in report["missing"]} == {"torch", "torch-compile", "onnxruntime", "numpy"}  # of this table
    for peer in report["missing"]:
        assert peer["reason"] == "cannot start /nowhere/python: No such file or directory"
        assert f"penstock bench: {peer['name']} is left out: cannot start" in result.err
    skipped = [entry for entry in results(report) if entry["name"] == "torch"]
    assert skipped and all(entry["outcome"] == "skipped" and entry["note"] == "is not here" for entry in skipped)


def test_without_the_peers_folder(variables):
    variables(PENSTOCK_BENCH_PEERS="")
    report = bench("layer", "--cells", "gru", *SMALL)
    assert {peer["reason"] for peer in report["missing"]} == {
        "its script is not in share/penstock/bench beside the program, nor does PENSTOCK_BENCH_PEERS say where"
    }
    assert [peer["name"] for peer in report["peers"]] == ["onednn"]


def test_a_peer_that_dies_is_named(variables, tmp_path):
    (tmp_path / "server.py").write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    if 'hello' not in line: sys.exit('the end')\n"
        "    peers = [{'name': 'torch', 'version': '0', 'missing': ''}]\n"
        "    print(json.dumps({'python': '3', 'peers': peers}), flush=True)\n"
    )
    variables(PENSTOCK_BENCH_PEERS=str(tmp_path))
    result = run("bench", "fused", "--cells", "gru", "--peers", "torch", *SMALL, "--json", "-", expect=1)
    assert "penstock bench: torch failed in gru 2x5x3x4 forward f32, 1 thread, no time: the end\n" in result.err
    assert [entry["outcome"] for entry in results(result.json())] == ["timed", "timed", "failed"]


@pytest.mark.parametrize(
    "table, peers",
    [
        ("stream", {"torch", "torch-compile", "onnxruntime", "onednn", "numpy"}),
        ("scan", {"torch", "numba", "numpy"}),
        ("fused", {"torch", "torch-loop"}),
    ],
)
def test_every_peer_agrees(table, peers):
    """Each somewhere; PyTorch's compiler alone needs several seconds."""
    report = bench(table, "--cells", "lstm,scan", "--python", sys.executable, *SMALL)
    assert report["missing"] == [] and peers | {"onednn"} == {peer["name"] for peer in report["peers"]}
    assert peers <= {entry["name"] for entry in results(report) if entry["outcome"] == "timed"}
    assert {entry["outcome"] for entry in results(report)} <= {"timed", "skipped"}


@pytest.mark.parametrize("name", ["p.svg", "p.png"])
def test_a_picture(tmp_path, name):
    result = run("bench", "batch", "--python", sys.executable, "--peers", "onednn", *SMALL, "--plot", name, cwd=tmp_path)
    assert "no plot" not in result.err
    assert (tmp_path / name).read_bytes().startswith(b"<?xml" if name == "p.svg" else b"\x89PNG")


def test_a_picture_that_cannot_be_drawn_is_no_failure(tmp_path):
    result = run("bench", "layer", "--cells", "gru", *ALONE, "--python", "/nowhere/python", "--plot", "p.svg", cwd=tmp_path)
    assert "penstock bench: there is no plot: cannot start /nowhere/python" in result.err


def test_without_wide_vectors(variables):
    variables(PENSTOCK_ISA="baseline")
    report = bench("layer", *ALONE)
    assert report["machine"]["isa"] == "baseline" and report["all_right"]


def test_thread_counts():
    report = bench("fused", "--cells", "gru", "--shapes", "2x5x3x4", "--peers", "onednn", "--threads", "0,1,1024", "--seconds", 0.002)
    counts = [case["threads"] for case in report["tables"][0]["cases"]]
    assert counts[0] == report["machine"]["threads"] and counts[-1] == 1024
    assert report["all_right"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "TABLE is missing"),
        (["layers"], "TABLE must be one of layer, scan, stream, batch, latency, throughput, fused, recurrent, cuda_rnn, cs179 or all, not 'layers'; did you mean 'layer'?"),
        (["layer", "--threads", 5000], "--threads must be 0 to 1024, not 5000"),
        (["layer", "--threads", "1,-2"], "--threads must be 0 to 1024, not -2"),
        (["layer", "--threads", "many"], "--threads must be a whole number, not 'many'"),
        (["layer", "--shapes", "1x2x3"],
         "--shapes must be BxTxIxH, such as 16x200x256x256, or BxTxIxHxHEADS, each at least 1, not '1x2x3'"),
        (["layer", "--passes", "step"], "--passes must be among those of the table layer, not 'step'"),
        (["layer", "--passes", "up"], "--passes must be among forward, training and step, not 'up'"),
        (["layer", "--dtypes", "f8"], "--dtypes must be among f32, bf16-weights and bf16, not 'f8'"),
        (["scan", "--cells", "lstm"], "--cells must be of the kind that the table has, such as scan, not 'lstm'"),
        (["layer", "--seconds", 0], "--seconds must be above 0 and at most 3600, not 0"),
        (["layer", "--peers", "none,torch"],
         "--peers must be among torch, torch-compile, onnxruntime, onednn, numpy, numba, torch-loop, or none, not 'none'"),
        (["layer", "--device", "tpu"], '--device must be one of cpu, cuda, not "tpu"; did you mean \'cpu\'?'),
        (["stream", "--device", "cuda"],
         "TABLE must be one of layer, scan, recurrent, batch, throughput, fused, cuda_rnn, cs179 or all on device cuda, not 'stream'"),
        (["layer", "--device", "cuda", "--threads", 2], "--threads are the CPU's: device cuda has none to choose"),
        (["layer", "--device", "cuda", "--dtypes", "bf16-weights"],
         "--dtypes must be among f32, f16 and bf16, not 'bf16-weights'"),
        (["layer", "--device", "cuda", "--peers", "numpy"],
         "--peers must be among torch, torch-compile, torch-loop, flashrnn, or none, not 'numpy'"),
        (["layer", "--shapes", "1x1x9999999x1"],
         "--shapes must have an input and a hidden size of at most 1048576 each, not 1x1x9999999x1"),
    ],
)
def test_misuse(arguments, message):
    refuses("bench", *arguments, message=message, status=2, verb="bench")


def test_without_a_gpu_says_what_is_missing():
    missing = run("info", "--json").json()["cuda"]["missing"]
    if not missing:
        pytest.skip("there is a GPU")
    result = run("bench", "cuda_rnn", "--device", "cuda", *ALONE[:2], expect=1)
    assert result.err == f"penstock bench: device cuda cannot be used: {missing}\n"
    assert result.out == ""


def test_shapes_beyond_the_memory():
    result = run("bench", "layer", "--shapes", "100000x1000000x64x64", expect=2)
    assert re.fullmatch(
        r"penstock bench: --shapes: lstm 100000x1000000x64x64 forward f32, 1 thread needs about \d+\.\d GB of memory, "
        r"and \d+\.\d GB are free \(see 'penstock bench --help'\)\n",
        result.err,
    )
    assert result.out == ""


def test_files_that_cannot_be_written():
    result = run("bench", "layer", "--json", "/nowhere/a.json", expect=1)
    assert result.err == "penstock bench: cannot write '/nowhere/a.json': No such file or directory\n"


def test_interrupted_it_reports_what_it_has():
    first, second = (f"{i}/3 lstm 2x5x3x4 forward f32, {i} thread{'s' * (i > 1)}\n" for i in (1, 2))
    full = FullPipe(room=len(first))  # the second goes in, a third does not
    cases = ["--cells", "lstm", "--passes", "forward", "--shapes", "2x5x3x4", "--threads", "1,2,3"]
    process = start("bench", "layer", *cases, "--peers", "none", "--seconds", 0.002, "--json", "-", stderr=full.theirs)
    while full.written() < len(first + second):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    err = full.rest().decode()
    out = process.stdout.read()
    assert process.wait(PATIENCE) == 128 + signal.SIGINT
    assert err.startswith(first + second)
    report = json.loads(out)
    assert report["interrupted"] and len(report["tables"][0]["cases"]) >= 1


def test_interrupted_while_peers_are_asked(variables, tmp_path):
    (tmp_path / "server.py").write_text("import sys, time\nsys.stdin.readline()\ntime.sleep(60)\n")
    variables(PENSTOCK_BENCH_PEERS=str(tmp_path))
    process = start("bench", "layer", "--cells", "gru", *SMALL, "--json", "-")
    assert process.stderr.readline() == b"1/2 asking for peers\n"
    time.sleep(1)  # until it waits for the answer
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGINT
    assert json.loads(out)["interrupted"]


BUSY_PEER = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "hello":
        peers = [{"name": name, "version": "1", "missing": ""} for name in asked["peers"]]
        print(json.dumps({"python": "3", "peers": peers}), flush=True)
    elif asked["do"] == "prepare":
        print("{}", flush=True)
    else:
        time.sleep(600)
"""


def test_interrupted_while_a_peer_works_on_and_on(variables, tmp_path):
    (tmp_path / "server.py").write_text(BUSY_PEER)
    variables(PENSTOCK_BENCH_PEERS=str(tmp_path))
    process = start("bench", "layer", "--cells", "gru", *SMALL, "--peers", "torch", "--json", "-")
    while b"gru" not in process.stderr.readline():
        pass
    time.sleep(1)  # until it waits for the answer
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGINT
    assert json.loads(out)["interrupted"]


@pytest.mark.parametrize("columns", [40, 100])
def test_a_bar_on_a_terminal(columns):
    text = read_terminal(columns, "bench", "fused", "--cells", "gru,lstm", *ALONE)
    bars = re.findall(r"\r([^\r\n]+)\x1b\[K", text)
    assert len(bars) == 3 and all(len(bar) < columns for bar in bars)
    assert "0/2" in bars[0] and "1/2" in bars[1] and "2/2" in bars[2]
    assert "left" in bars[1] and "█" in bars[1] and "█" not in bars[0]
    assert "\r\x1b[K# Benchmarks on a CPU\r\n" in text


def test_nothing_stays_behind(tmp_path):
    folder = {"TMPDIR": str(tmp_path)}
    os.environ.update(folder)
    try:
        bench("layer", "--cells", "gru", "--python", sys.executable, "--peers", "numpy", *SMALL)
    finally:
        del os.environ["TMPDIR"]
    assert list(tmp_path.glob("penstock*")) == []
