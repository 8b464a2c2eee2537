"""plan and why: what runs, how long it takes, and why not otherwise."""

import pytest
from program import run


def plan(*arguments, **more):
    return run("plan", *arguments, **more)


def test_a_layer_on_a_chip_that_is_not_there():
    text = plan("--cell", "lstm", "--shape", "16x1024x768x768", "--chip", "h100", "--precision", "bf16").out
    assert text.startswith("on H100 (sm_90)\n")
    assert "recurrence of lstm, forward: B = 16, T = 1024, 1 x 768 units, bf16" in text
    assert "chip: " in text and "about" in text
    assert "not head: a block holds the recurrent matrix of a head of at most 256 units, not of 768" in text

    reports = plan(
        "--cell", "lstm", "--shape", "16x1024x768x768", "--chip", "h100", "--precision", "bf16", "--json"
    ).json()
    recurrence = next(report for report in reports if report["work"].startswith("recurrence"))
    assert recurrence["algorithm"] == "chip" and recurrence["microseconds"] > 100
    assert {"head"} <= {other["name"] for other in recurrence["alternatives"]}


@pytest.mark.parametrize("chip", ["a100", "rtx 3090", "l4", "h200", "b200", "rtx 5090"])
def test_every_generation_has_plans(chip):
    for cell in ("mingru", "minlstm", "lstm", "gru", "slstm", "elman"):
        reports = plan("--cell", cell, "--shape", "16x256x96x64", "--chip", chip, "--training", "--json").json()
        assert all(report["plan"] and report.get("microseconds", 0) >= 0 for report in reports)
        assert all(other["reason"] for report in reports for other in report["alternatives"])


def test_a_layer_on_this_machine():
    text = plan("--cell", "mingru", "--shape", "1x100x256x256", "--threads", "2").out
    assert text.startswith("on CPU (")
    assert "sequential on 2 threads" in text
    assert "(1 row part x 2 channel parts)" in text
    assert "not scan: rows and channels occupy the threads; a chunked scan would compute gates twice" in text
    few = plan("--cell", "mingru", "--shape", "1x4096x64x64", "--threads", "5").out
    assert "not scan: a chunked scan computes gates twice and needs at least 7 threads to be faster" in few
    short = plan("--cell", "mingru", "--shape", "1x100x64x64", "--threads", "16").out
    assert "not scan: T must be at least 2048 to cut it into chunks" in short


def test_counts_have_the_right_plural():
    one = plan("--cell", "lstm", "--shape", "1x50x10x10", "--chip", "h100").out
    assert "head: 1 block of 32 threads and 5 KB" in one and "1 of 1 chunk of the matrix in registers" in one
    chip = plan("--cell", "lstm", "--shape", "16x1024x768x768", "--chip", "h100").out
    assert "and teams run all steps once" in chip and " 1 groups" not in chip and "of 1 blocks" not in chip


def test_exact_plans_have_one_shape_for_all_batches():
    def shape_of(rows):
        text = plan("--cell", "lstm", "--shape", f"{rows}x100x64x512", "--chip", "h100", "--exact").out
        assert "exact mode: the shape for 16 rows, whatever their number" in text and "not " not in text
        assert f"fp32 GEMM: {100 * rows} x 2048 x 64, planned for 1024 rows" in text
        return text[text.index("each with ") : text.index("steps of inputs")]

    assert shape_of(1) == shape_of(300)
    assert "direct: " in plan("--cell", "mingru", "--shape", "1x5000x64x64", "--chip", "h100", "--exact").out


def test_types_that_a_gpu_lacks_are_refused():
    refused = plan("--shape", "16x1024x64x300", "--chip", "a100", "--precision", "bf16-weights", expect=1)
    assert "bf16-weights is of the CPU" in refused.err


def test_mistakes_are_named():
    assert "--shape is missing" in plan(expect=2).err
    assert "--shape must be BxTxIxH, not '3x4'" in plan("--shape", "3x4", expect=2).err
    assert "chip must be one of A100 (sm_80)" in plan("--shape", "1x2x3x4", "--chip", "voodoo", expect=2).err
    assert "heads (3) must divide hidden (4)" in plan("--shape", "1x2x3x4", "--heads", "3", expect=2).err
    assert "MODEL is missing" in run("why", expect=2).err


def test_why_tells_of_every_node(models):
    here = run("why", "text.safetensors", "--shape", "4x32", cwd=models).out
    assert here.startswith("on ") and "residual_norm" in here and "nothing to choose" in here
    assert "sequential on" in here
    # Nodes with a choice come first. Those without share one line at the end.
    lines = here.splitlines()
    assert " of " in lines[1] and lines[2].startswith("  ") and "nothing" not in lines[2]
    assert lines[-1].startswith("nothing to choose: ") and here.count("nothing to choose") == 1
    there = run(
        "why", "text.safetensors", "--shape", "4x32", "--training", "--chip", "h200", "--precision", "bf16", "--json",
        cwd=models,
    ).json()
    works = [report["work"] for report in there]
    assert any("gradient of the weights" in work for work in works)
    assert any("optimizer" in work for work in works)


def test_half_precision_is_refused_where_no_model_has_it():
    shape = ("--cell", "lstm", "--shape", "2x8x8x8", "--precision", "f16")
    assert "f16 needs a GPU; CPUs support full, bf16-weights and bf16" in plan(*shape, expect=1).err
    assert "f16" in plan(*shape, "--chip", "h100").out


def test_floats_on_tensor_cores():
    shape = ("--cell", "lstm", "--shape", "64x512x1024x1024", "--device", "cuda", "--chip", "h200")
    full, tf32 = plan(*shape).out, plan(*shape, "--precision", "tf32").out
    assert "1024 units, f32\n  warpgroup" in full and "1024 units, tf32\n  warpgroup" in tf32
    assert "floats as pairs of float16 on tensor cores" in full and "cuBLASLt" in tf32
    assert "tf32 needs a GPU" in plan(*shape[:4], "--precision", "tf32", expect=1).err
