"""The short run of tests/faults, and what streams keep when nobody reads their answers."""

import io
import os
import pathlib
import signal
import sys
import time

import pytest
from program import PATIENCE, SERIES, TINY, FullPipe, refuses, run, start

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "faults"))

import writers
import written


def test_writers_lose_nothing():
    """A sample of the campaign: of each writer of the program a fault; of pictures, which take seconds to draw, those of
    a full disk."""
    table = io.StringIO()
    pictures = [writer for writer in written.program_writers() if "picture" in writer.name]
    others = [writer for writer in written.program_writers() if "picture" not in writer.name]
    assert len(pictures) == 2
    wrong = writers.campaign(others, kills=2, calls=2, sample=1, out=table)
    wrong += writers.campaign(pictures, faults=["full disk"], sample=2, out=table)
    sys.stdout.write(table.getvalue())
    assert wrong == []


def test_a_stream_saves_its_state_on_a_closed_pipe(models, tmp_path):
    ours, theirs = os.pipe()
    os.close(ours)
    process = start("stream", models / "series.safetensors", "--state", "s.json", cwd=tmp_path, stdin=-1, stdout=theirs)
    os.close(theirs)
    process.communicate(SERIES.encode(), timeout=PATIENCE)
    assert process.returncode == 0
    assert (tmp_path / "s.json").exists()


def test_a_blocked_stream_heeds_a_signal(models, tmp_path):
    full = FullPipe(room=200)  # for the heading and a few rows
    process = start("stream", models / "series.safetensors", "--state", "s.json", cwd=tmp_path, stdin=-1, stdout=full.theirs)
    process.stdin.write(SERIES.encode())
    process.stdin.flush()
    time.sleep(2)  # until it waits for a reader
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert (tmp_path / "s.json").exists()
    full.close()


def test_two_streams_do_not_share_a_state(models, tmp_path):
    first = start("stream", models / "series.safetensors", "--state", "s.json", cwd=tmp_path, stdin=-1)
    first.stdin.write(b"day,level,flow\n")
    first.stdin.flush()
    assert first.stdout.readline()
    second = run("stream", models / "series.safetensors", "--state", "s.json", cwd=tmp_path, expect=2)
    assert "--state s.json: another run" in second.err
    first.communicate(timeout=PATIENCE)
    assert first.returncode == 0


def test_metrics_on_a_full_disk_end_no_run(models, tmp_path):
    result = run("train", models / "text.txt", *TINY, "--steps", 30, "--length", 16, "--metrics", "/dev/full", cwd=tmp_path)
    assert result.err.count("warning: /dev/full: cannot write metrics: No space left on device") == 1
    assert (tmp_path / "model.safetensors").exists()


def test_too_many_seeds_are_refused_at_once(models, tmp_path):
    result = run("train", models / "text.txt", *TINY, "--seeds", 1025, cwd=tmp_path, expect=2)
    assert "members must be 1 to 1024, not 1025" in result.err


def test_a_folder_is_no_configuration(tmp_path):
    refuses("train", "x.txt", "--config", tmp_path, message=f"--config {tmp_path}: it is a folder; name a file in it",
            status=1, verb="")  # fmt: skip


@pytest.mark.parametrize("words", [["train", "s.csv", "--config", "/dev/zero"], ["train", "s.csv", "--cell", "zero.json"],
                                   ["csp", "/dev/zero"], ["info", "/dev/zero"], ["report", "/dev/zero"],
                                   ["train", "/dev/zero"], ["predict", "s.csv", "/dev/zero"]])  # fmt: skip
def test_a_file_without_end_is_refused(tmp_path, words):
    (tmp_path / "s.csv").write_text(SERIES)
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    process = start(*words, cwd=tmp_path)
    _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode in (1, 2) and complaint.count(b"\n") == 1, complaint


def test_too_small_an_address_space_is_an_error_and_no_crash(tmp_path):
    (tmp_path / "s.csv").write_text(SERIES)

    def starts(megabytes):
        process = start("--version", memory=megabytes << 20)
        process.communicate(timeout=PATIENCE)
        return process.returncode == 0

    # With less, the loader has no room for the libraries, or one of them ends the process before main().
    least = next(megabytes for megabytes in range(40, 200) if starts(megabytes)) + 1
    for megabytes in range(least, least + 40, 5):
        process = start("train", "s.csv", *TINY, "--steps", 2, "-o", f"{megabytes}", cwd=tmp_path, memory=megabytes << 20)
        out, complaint = process.communicate(timeout=PATIENCE)
        assert process.returncode in (0, 1), (megabytes, process.returncode, complaint)
        assert process.returncode == 0 or complaint.strip(), megabytes
