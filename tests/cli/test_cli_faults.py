"""The short run of tests/faults, and what streams keep when nobody reads their answers."""

import io
import os
import pathlib
import signal
import sys
import time

from program import PATIENCE, SERIES, TINY, FullPipe, refuses, run, start

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "faults"))

import writers
import written


def test_writers_lose_nothing():
    """A sample of the campaign: of each writer of the program a fault."""
    table = io.StringIO()
    wrong = writers.campaign(written.program_writers(), kills=2, calls=2, sample=1, out=table)
    sys.stdout.write(table.getvalue())
    assert wrong == []


def test_a_full_disk_tears_no_picture():
    pictures = [writer for writer in written.program_writers() if "picture" in writer.name]
    assert len(pictures) == 2
    assert writers.campaign(pictures, faults=["full disk"]) == []


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
