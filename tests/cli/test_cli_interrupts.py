"""Ctrl-C ends every verb at once, whatever it reads and however long that is."""

import gzip
import json
import os
import pathlib
import pty
import re
import signal
import time

import pytest
from program import PATIENCE, TINY, FullPipe, run, start

# Seconds: a stop takes far less than one, however busy the machine is.
AT_ONCE = 10

LONG = "day,level,flow\n" + "".join(f"{i},{10 + i % 7},{2 + i % 3}\n" for i in range(400_000))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Models, and inputs that are long: compressed ones, which are read whole before a row of them is answered."""
    folder = tmp_path_factory.mktemp("long")
    (folder / "short.csv").write_text(LONG[:4000])
    (folder / "long.csv").write_text(LONG)
    (folder / "long.csv.gz").write_bytes(gzip.compress(LONG.encode(), 1))
    groups = "shop,day,level\n" + "".join(f"s{i % 30000},{i // 30000},{i % 7}\n" for i in range(240_000))
    (folder / "groups.csv").write_text(groups)
    (folder / "few_groups.csv").write_text("shop,day,level\n" + "".join(f"s{i % 4},{i},{i % 7}\n" for i in range(400)))
    text = b"In the beginning was the word.\n"
    (folder / "short.txt").write_bytes(text * 100)
    (folder / "long.txt.gz").write_bytes(gzip.compress(text * 300_000, 1))
    options = [*TINY, "--steps", 2, "--quiet"]
    run("train", "short.csv", *options, "-o", "series", cwd=folder)
    run("train", "few_groups.csv", "--group", "shop", *options, "-o", "groups", cwd=folder)
    run("train", "short.txt", *options, "-o", "text", cwd=folder)
    labelled = "".join(f"{i // 5},{'ab'[i // 5 % 2]},{i % 7}\n" for i in range(200))
    (folder / "labelled.csv").write_text("sequence,label,x\n" + labelled)
    run("train", "labelled.csv", *options, "-o", "labelled", cwd=folder)
    run("train", "task:parity", *options, "-o", "tokens", cwd=folder)
    return folder


def catches(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (signal.SIGINT - 1) & 1


@pytest.mark.parametrize(
    "verb, arguments, stdin, saves",
    [
        ("predict", ["series", "long.csv.gz"], None, True),
        ("predict", ["groups", "groups.csv"], None, True),
        ("predict", ["text", "long.txt.gz"], None, True),
        ("evaluate", ["series", "long.csv.gz"], None, False),
        ("evaluate", ["groups", "groups.csv"], None, False),
        ("evaluate", ["text", "long.txt.gz"], None, False),
        ("report", ["series", "--data", "long.csv.gz"], None, False),
        ("train", ["long.csv", "-o", "new"], None, False),
        ("generate", ["text", "--prompt-file", "long.txt"], None, False),
        ("stream", ["series"], "long.csv.gz", True),
        ("stream", ["text"], "long.txt.gz", True),
    ],
)
def test_ctrl_c_ends_a_verb_at_once(files, verb, arguments, stdin, saves):
    if "long.txt" in arguments:
        (files / "long.txt").write_bytes(gzip.decompress((files / "long.txt.gz").read_bytes()))
    with open(files / (stdin or "short.txt"), "rb") as given, open(files / "answers", "wb") as answers:
        process = start(verb, *arguments, cwd=files, stdin=given, stdout=answers)
        end = time.monotonic() + PATIENCE
        while saves and not catches(process):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        time.sleep(0.1)  # each of these takes several times as long
        assert process.poll() is None
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=PATIENCE)
        taken = time.monotonic() - begin
    # Those that save nothing leave a signal to the system, which a shell reports as the same 130.
    assert process.returncode == (130 if saves else -signal.SIGINT), complaint
    assert taken < AT_ONCE
    text = (files / "answers").read_text()
    assert text == "" or text.endswith("\n")  # whole lines


IDLE = [
    ("stream", ["series", "--state", "state"], "state"),
    ("stream", ["series", "--json"], None),
    ("stream", ["groups", "--state", "state"], "state"),
    ("stream", ["text", "--state", "state"], "state"),
    ("stream", ["labelled", "--state", "state"], "state"),
    ("stream", ["tokens", "--state", "state"], "state"),
    ("predict", ["series", "-"], None),
    ("predict", ["series", "-", "-o", "forecasts"], None),
    ("predict", ["groups", "-"], None),
    ("predict", ["text", "-"], None),
    ("predict", ["labelled", "-"], None),
    ("predict", ["tokens", "-"], None),
    ("generate", ["text", "--interactive"], None),
    ("csp", ["-"], None),
]


# The header of the table that each model reads.
HEADERS = {"series": "day,level,flow\n", "groups": "shop,day,level\n", "labelled": "sequence,label,x\n"}


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("arguments", [["series", "short.csv"], ["text", "--per-byte", "short.txt"]])
def test_one_signal_ends_a_verb_that_waits_for_room(files, arguments, kind):
    full = FullPipe()
    process = start("predict", *arguments, cwd=files, stdout=full.theirs)
    time.sleep(1)  # until it waits for a reader
    process.send_signal(kind)
    assert process.wait(AT_ONCE) == 128 + kind
    full.close()


@pytest.mark.parametrize(
    "source, kind",
    [
        ("pipe", signal.SIGINT),
        ("pipe", signal.SIGTERM),
        ("pipe", signal.SIGHUP),
        ("terminal", signal.SIGINT),
        ("half a line", signal.SIGINT),
        ("fifo", signal.SIGINT),
    ],
)
@pytest.mark.parametrize("verb, arguments, saved", IDLE)
def test_one_signal_ends_a_verb_that_waits_for_input(files, tmp_path, verb, arguments, saved, source, kind):
    words = [str(files / word) if (files / word).exists() else word for word in arguments]
    ours, theirs = pty.openpty() if source == "terminal" else os.pipe()[::-1]
    if source == "fifo":  # that nobody opens for writing
        if "-" not in words:
            pytest.skip("the verb reads standard input alone")
        os.mkfifo(tmp_path / "fifo")
        words[words.index("-")] = "fifo"
    process = start(verb, *words, cwd=tmp_path, stdin=theirs)
    if source == "half a line":
        os.write(ours, b"1")
    end = time.monotonic() + PATIENCE
    while not catches(process):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.2)
    assert process.poll() is None
    begin = time.monotonic()
    process.send_signal(kind)
    _, complaint = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - begin < AT_ONCE
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 128 + kind, complaint
    assert complaint == b"" or b" byte" in complaint, complaint
    assert {path.name for path in tmp_path.iterdir()} - {"fifo"} == ({saved} if saved else set())
    if saved:
        run(verb, *words, cwd=tmp_path, stdin=HEADERS.get(arguments[0], ""))  # which reads the state


def test_a_long_table_shows_that_it_is_read(files):
    ours, theirs = pty.openpty()
    process = start("train", "long.csv", *TINY, "-o", "shown", "--force", cwd=files, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = b""
    while not re.search(rb"(reading long.csv|linear forecasts, \d+ of \d+): 0:0", text):
        text += os.read(ours, 4096)  # an error at the end of the program
    process.kill()
    process.wait(PATIENCE)
    os.close(ours)


def test_ctrl_c_in_what_follows_training_loses_nothing(tmp_path):
    # Filters for so many sequences take many times as long as the training before them.
    rows = "".join(f"{i // 100},{'ab'[i // 100 % 2]},{i * 7919 % 1000}\n" for i in range(400_000))
    (tmp_path / "long.csv").write_text("sequence,label,x\n" + rows)
    options = [*TINY, "--steps", 2, "--patience", 0, "--quiet", "--json", "-o", "m"]
    process = start("train", "long.csv", *options, cwd=tmp_path)
    end = time.monotonic() + PATIENCE
    while not (tmp_path / "m.checkpoint").exists():  # which is written once there have been so many steps
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.5)
    assert process.poll() is None
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, complaint = process.communicate(timeout=PATIENCE)
    taken = time.monotonic() - begin
    assert process.returncode == 130, complaint
    assert taken < AT_ONCE
    said = json.loads(out)
    assert said["interrupted"] and said["steps"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {"long.csv", "m", "m.checkpoint"}
    assert "filters" not in run("info", "m", cwd=tmp_path).out
    # Without filters, there is little to make up for.
    said = run("train", "long.csv", *options, "--resume", "--no-filters", cwd=tmp_path).json()
    assert not said["interrupted"] and said["steps"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {"long.csv", "m"}


@pytest.fixture
def deaf_python(tmp_path):
    """A Python that draws nothing for as long as a test lasts."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    "written, arguments",
    [
        ("page.html", ["report", "series", "--data", "short.csv", "-o", "{}/page.html", "--png", "{}/pictures"]),
        (
            "all.json",
            ["bench", "batch", "--peers", "none", "--cells", "gru", "--shapes", "2x5x3x4", "--threads", 1]
            + ["--seconds", 0.002, "--json", "{}/all.json", "--plot", "{}/picture.svg"],
        ),
    ],
)
def test_ctrl_c_ends_drawing(files, tmp_path, deaf_python, written, arguments):
    words = [str(word).format(tmp_path) for word in arguments]
    process = start(*words, "--python", deaf_python, cwd=files)
    end = time.monotonic() + PATIENCE
    while not (tmp_path / written).exists():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, complaint
    assert b"cannot be started" not in complaint and b"no plot" not in complaint
    assert not list(tmp_path.rglob("*.png")) and not (tmp_path / "picture.svg").exists()
