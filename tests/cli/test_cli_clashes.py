"""No output of a call replaces an input or another output of it, whatever links lead there, with --force or without."""

import json
import os
import pathlib
import shutil
import struct

import pytest
from program import CELL, PATIENCE, TINY, run, start

WAV = b"RIFF" + struct.pack("<I", 40) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16) + (
    b"data" + struct.pack("<I", 4) + bytes(4)
)


@pytest.fixture
def files(models, tmp_path):
    """A folder with one file of each kind, and links of both kinds to each."""
    for name in ("text.safetensors", "series.safetensors", "series.csv", "text.txt"):
        shutil.copy(models / name, tmp_path / name)
    (tmp_path / "in.wav").write_bytes(WAV)
    (tmp_path / "run.jsonl").write_text('{"kind":"run","model":"series.safetensors","task":"forecast"}\n')
    (tmp_path / "options.conf").write_text("[train]\nsteps = 2\n[bench]\nseconds = 0.01\n")
    (tmp_path / "cell.json").write_text(json.dumps(CELL))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("In the beginning.\n" * 400)
    return tmp_path


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


TRAIN = ["train", "series.csv", *TINY, "--steps", 2, "--quiet"]
TRAIN_TEXT = ["train", "text.txt", *TINY, "--steps", 2, "--length", 16, "--quiet"]
REPORT = ["report", "run.jsonl", "--data", "series.csv"]
BENCH = ["bench", "batch", "--peers", "none", "--cells", "gru", "--shapes", "2x5x3x4", "--threads", 1, "--seconds", 0.002]

# The command, the option or argument of its output, the file that this would replace, and that file's role.
INPUTS = [
    (TRAIN, "-o", "series.csv", "DATA"),
    (TRAIN, "--checkpoint", "series.csv", "DATA"),
    (TRAIN, "--metrics", "series.csv", "DATA"),
    ([*TRAIN_TEXT[:1], "folder", *TRAIN_TEXT[2:]], "-o", "folder/a.txt", "DATA"),
    ([*TRAIN_TEXT, "--init", "text.safetensors"], "-o", "text.safetensors", "--init"),
    ([*TRAIN_TEXT, "--init", "text.safetensors"], "--checkpoint", "text.safetensors", "--init"),
    ([*TRAIN_TEXT, "--init", "text.safetensors"], "--metrics", "text.safetensors", "--init"),
    ([*TRAIN, "--config", "options.conf"], "-o", "options.conf", "--config"),
    ([*TRAIN, "--config=options.conf"], "--metrics", "options.conf", "--config"),
    (["predict", "series.safetensors", "series.csv"], "-o", "series.csv", "DATA"),
    (["predict", "series.safetensors", "series.csv"], "-o", "series.safetensors", "MODEL"),
    (["export", "series.safetensors"], "-o", "series.safetensors", "MODEL"),
    (["quantize", "series.safetensors", "--data", "series.csv"], "-o", "series.safetensors", "MODEL"),
    (["quantize", "series.safetensors", "--data", "series.csv"], "-o", "series.csv", "--data"),
    (["tune", "series.safetensors"], "-o", "series.safetensors", "MODEL"),
    (REPORT, "-o", "series.csv", "--data"),
    (REPORT, "-o", "run.jsonl", "RUN"),
    (REPORT, "-o", "series.safetensors", "the model of RUN"),
    (["report", "series.safetensors"], "-o", "series.safetensors", "RUN"),
    (["stream", "text.safetensors", "in.wav"], "", "in.wav", "IN.wav"),
    (["stream", "text.safetensors", "in.wav"], "", "text.safetensors", "MODEL"),
    (["stream", "text.safetensors", "in.wav", "out.wav", "--target", "text.txt"], "--state", "text.txt", "--target"),
    (["stream", "text.safetensors"], "--state", "text.safetensors", "MODEL"),
    ([*BENCH, "--config", "options.conf"], "--json", "options.conf", "--config"),
    ([*BENCH, "--config", "options.conf"], "--plot", "options.conf", "--config"),
]


def forms(folder, name):
    """The name itself and others of the same file."""
    (folder / "links").mkdir(exist_ok=True)
    os.symlink(folder / name, folder / "links" / "soft")
    os.link(folder / name, folder / "links" / "hard")
    return [name, f"./links/../{name}", str((folder / name).absolute()), "links/soft", "links/hard"]


@pytest.mark.parametrize("command, option, target, role", INPUTS)
def test_an_output_never_replaces_an_input(files, command, option, target, role):
    for name in forms(files, target):
        before = content(files)
        for force in ([], ["--force"]):
            if force and command[0] == "tune" or not force and role == "the model of RUN":
                continue  # the one has no such option, the other refuses the kind of the file first
            result = run(*command, *([option] if option else []), name, *force, cwd=files, expect=2)
            assert f" {name} would overwrite {role} (see 'penstock {command[0]} --help')" in result.err
            assert result.out == "" and content(files) == before


def test_the_cell_of_a_run_is_kept(files):
    for option in ("-o", "--metrics", "--checkpoint"):
        before = content(files)
        result = run(*TRAIN, "--cell", "cell.json", option, "cell.json", "--force", cwd=files, expect=2)
        assert "cell.json would overwrite --cell" in result.err or "cell.json:" in result.err
        assert content(files) == before


OUTPUTS = [
    (TRAIN, ["-o", "a", "--metrics", "a"], "--output and --metrics"),
    (TRAIN, ["-o", "a", "--checkpoint", "a"], "--output and --checkpoint"),
    (TRAIN, ["-o", "a", "--tensorboard", "a"], "--output and --tensorboard"),
    (TRAIN, ["--checkpoint", "a", "--metrics", "a"], "--checkpoint and --metrics"),
    (TRAIN, ["--checkpoint", "a", "--metrics", "./a"], "--checkpoint and --metrics"),
    (TRAIN, ["-o", "a", "--metrics", "a.checkpoint"], "--checkpoint and --metrics"),
    (TRAIN, ["-o", "a", "--metrics", "a.checkpoint.2", "--seeds", 2], "--metrics and --checkpoint"),
    (TRAIN, ["-o", "folder/../a", "--metrics", "folder/../folder/../a"], "--output and --metrics"),
    (TRAIN, ["-o", "nowhere/a", "--metrics", "nowhere/../nowhere/a"], "--output and --metrics"),
    (TRAIN, ["-o", "dangling", "--metrics", "new"], "--output and --metrics"),
    (BENCH, ["--json", "a", "--markdown", "a"], "--json and --markdown"),
    (BENCH, ["--json", "a", "--plot", "a"], "--json and --plot"),
    (BENCH, ["--markdown", "dangling", "--plot", "new"], "--markdown and --plot"),
    (["stream", "text.safetensors", "in.wav", "a"], ["--state", "a"], "OUT.wav and --state"),
]


@pytest.mark.parametrize("command, outputs, roles", OUTPUTS)
def test_two_outputs_are_two_files(files, command, outputs, roles):
    os.symlink("new", files / "dangling")
    before = content(files)
    for force in ([], ["--force"]):
        result = run(*command, *outputs, *force, cwd=files, expect=2)
        assert f"{roles} must be different files, not both " in result.err
        assert result.out == "" and content(files) == before


# An output, what it is, and the files of other kinds that it does not replace.
KINDS = [
    (TRAIN, "--metrics", "a file of metrics", ["series.safetensors", "text.txt", "cell.json", "in.wav"]),
    (REPORT, "-o", "a page of 'penstock report'", ["text.safetensors", "text.txt", "in.wav"]),
    (BENCH, "--json", "a JSON file of 'penstock bench'", ["series.safetensors", "series.csv", "run.jsonl", "cell.json"]),
    (BENCH, "--markdown", "a Markdown page of 'penstock bench'", ["series.safetensors", "text.txt", "run.jsonl"]),
    (BENCH, "--plot", "a picture", ["series.safetensors", "text.txt", "in.wav"]),
    (["stream", "text.safetensors", "in.wav"], "", "a sound file", ["series.safetensors", "text.txt", "run.jsonl"]),
]


@pytest.mark.parametrize("command, option, kind, others", KINDS)
def test_a_file_of_another_kind_is_replaced_on_request_only(files, command, option, kind, others):
    before = content(files)
    for name in others:
        result = run(*command, *([option] if option else []), name, cwd=files, expect=2)
        what = {"series.safetensors": "a model, ", "text.safetensors": "a model, ", "cell.json": "a custom cell, ",
                "in.wav": "a sound file, ", "run.jsonl": "a file of metrics, "}.get(name, "")  # fmt: skip
        assert f"{name} is there already, {what}not {kind}; --force replaces it" in result.err
        assert result.out == "" and content(files) == before


def test_files_of_their_kind_are_replaced(files):
    for again in range(2):
        run(*TRAIN, "--metrics", "m.jsonl", "--force", cwd=files)
        run("report", "m.jsonl", cwd=files)
        run(*BENCH, "--json", "b.json", "--markdown", "b.md", cwd=files)
    (files / "empty").touch()
    run(*BENCH, "--json", "empty", cwd=files)
    run(*BENCH, "--json", "series.csv", "--force", cwd=files)
    assert (files / "series.csv").read_bytes().startswith(b"{")


def complaint(*arguments, **options):
    process = start(*arguments, **options)
    text = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 2, text
    return text


def test_standard_streams_are_files_too(files):
    before = content(files)
    with open(files / "series.csv", "rb") as given:
        command = ["predict", "series.safetensors", "-", "-o", "series.csv", "--force"]
        assert b"--output series.csv would overwrite DATA" in complaint(*command, cwd=files, stdin=given)
    with open(files / "series.csv", "ab") as appended:
        command = ["predict", "series.safetensors", "series.csv"]
        assert b"standard output would overwrite DATA" in complaint(*command, cwd=files, stdout=appended)
    for command in (["stream", "series.safetensors"], ["generate", "text.safetensors", "-i"]):
        with open(files / "series.csv", "rb") as given, open(files / "series.csv", "ab") as appended:
            text = complaint(*command, cwd=files, stdin=given, stdout=appended)
        assert b"standard output would overwrite standard input" in text
    with open(files / "text.txt", "ab") as appended:
        command = ["generate", "text.safetensors", "--prompt-file", "text.txt"]
        assert b"standard output would overwrite --prompt-file" in complaint(*command, cwd=files, stdout=appended)
    assert content(files) == before


@pytest.mark.parametrize("notes", ["notes", "12345"])
def test_a_file_under_the_name_of_a_lock_is_kept(files, notes):
    (files / "m.lock").write_text(notes)
    result = run(*TRAIN, "-o", "m", cwd=files, expect=2)
    assert "m.lock is there already and is not a lock" in result.err
    assert (files / "m.lock").read_text() == notes and not (files / "m").exists()


def test_metrics_are_not_written_into_a_lock(files):
    for role, words in (("--output", ["-o", "m"]), ("--checkpoint", ["-o", "n", "--checkpoint", "m"])):
        result = run(*TRAIN, *words, "--metrics", "m.lock", cwd=files, expect=2)
        assert f"--metrics and the lock of {role} must be different files, not both m.lock" in result.err


def test_manual_pages_replace_manual_pages_only(tmp_path):
    pages = pathlib.Path(tmp_path / "pages")
    run("man", "--folder", pages)
    run("man", "--folder", pages)
    (pages / "penstock.1").write_text("notes")
    assert "penstock.1 is there already, not a manual page; remove it" in run("man", "--folder", pages, expect=2).err
    assert (pages / "penstock.1").read_text() == "notes"
