"""Configuration files, pages of the manual, completions, suggestions, conversations."""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import time
import wave

import pytest

from program import BIN, PATIENCE, TINY, read_terminal, refuses, run, start

VERBS = re.findall(r"^  (\w+) ", run("--help").out.split("Commands:\n")[1].split("\n\n")[0], re.M)


def options_of(verb):
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", run(verb, "--help").out.split("Examples:")[0], re.M)


@pytest.mark.parametrize("verb", VERBS)
def test_manual_has_every_option(verb):
    page = run("man", verb).out.replace("\\-", "-")
    assert page.startswith(f".TH PENSTOCK-{verb.upper()} 1 ")
    for option in options_of(verb):
        assert option in page


def test_manual_as_files(tmp_path):
    run("man", "--folder", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"penstock.1", *(f"penstock-{verb}.1" for verb in VERBS)}
    if shutil.which("groff"):
        for path in tmp_path.iterdir():
            made = subprocess.run(["groff", "-man", "-Tutf8", "-ww", path], capture_output=True, text=True, check=True)
            assert made.stderr == "" and "penstock" in made.stdout
    shown = read_terminal(80, "man", "train")
    assert "--horizon" in shown and ".TH" not in shown and ".SH" not in shown
    refuses("man", "sing", message=f'COMMAND must be one of {", ".join(VERBS)}, not "sing"', status=2, verb="man")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_have_every_option(tmp_path, shell):
    script = run("completion", shell).out
    for verb in VERBS:
        for option in options_of(verb):
            assert option[2:] in script
    (tmp_path / "script").write_text(script)
    if shutil.which(shell):
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def completed(words):
    """What bash would offer for the last word."""
    line = "COMP_WORDS=({}); COMP_CWORD={}; _penstock; printf '%s\\n' \"${{COMPREPLY[@]}}\"".format(
        " ".join(f"'{word}'" for word in words), len(words) - 1
    )
    script = f"source <('{BIN}' completion bash)\n{line}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes():
    assert completed(["penstock", "tr"]) == ["train"]
    assert completed(["penstock", "train", "--learn"]) == ["--learning-rate"]
    assert completed(["penstock", "train", "--missing", ""]) == ["refuse", "carry", "interpolate", "mask"]
    assert "--temperature" in completed(["penstock", "generate", "-"])


@pytest.mark.parametrize(
    "verb, typed, meant",
    [
        ("train", "--lr", "--learning-rate"),
        ("train", "--hidden", "--hidden-size"),
        ("train", "--gpu", "--device cuda"),
        ("train", "--layers", "--blocks"),
        ("train", "--batch_size", "--batch"),
        ("train", "--rate", "--learning-rate"),
        ("train", "--lenght", "--length"),
        ("train", "--freq", "--irregular"),
        ("train", "--exog", "--known"),
        ("generate", "--temp", "--temperature"),
        ("predict", "--sep", "--delimiter"),
    ],
)
def test_what_people_type(verb, typed, meant):
    refuses(verb, "x", typed, "3", message=f"there is no option '{typed}', did you mean '{meant}'?", status=2, verb=verb)


def test_help_fits_a_terminal():
    verbs = re.findall(r"^  (\w+) +[A-Z]", run("--help").out.partition("Commands:\n")[2].partition("\nOptions:")[0], re.MULTILINE)
    assert "train" in verbs and "man" in verbs
    for verb in verbs:
        for line in run(verb, "--help").out.splitlines() + run("--help").out.splitlines():
            assert len(line) <= 80, line


def test_what_is_nearly_another_word():
    refuses("forcast", "x", message="there is no command 'forcast', did you mean 'predict'?", status=2, verb="")
    refuses("train", "x", "--finetun", "m", message="there is no option '--finetun', did you mean '--init'?", status=2,
            verb="train")  # fmt: skip


def test_what_is_no_verb():
    result = run("torchscript", "model.safetensors", expect=2)
    assert "there is no command 'torchscript': 'penstock export' writes ONNX, and penstock.torch.SequenceModel in Python" in (
        result.err
    )


def test_options_from_a_file(models, tmp_path):
    (tmp_path / "run.conf").write_text(
        "# a run\n[train]\nwidth = 16   # small\nblocks=1\nbatch = 4\nquiet = true\njson = true\nsteps = 3\n"
        "[generate]\nbytes = 7\n"
    )
    command = ["train", models / "text.txt", "--config", "run.conf", "--length", 8]
    result = run(*command, "--steps", 2, cwd=tmp_path)
    assert result.json()["steps"] == 2 and result.json()["model"]["width"] == 16
    assert len(run("generate", "model.safetensors", "--config=run.conf", cwd=tmp_path).bytes) == 7
    printed = run(*command, "--print-config", cwd=tmp_path).out
    (tmp_path / "again.conf").write_text(printed)
    assert run("train", "--config", "again.conf", "--print-config", cwd=tmp_path).out == printed
    assert "\nsteps = 3 " in printed and "\n#seconds = " in printed and "\n#warmup = 0.05 " in printed


@pytest.mark.parametrize("data", ["text.txt", "series.csv", "labelled.csv"])
def test_printed_options_are_those_of_the_run(models, tmp_path, data):
    command = ["train", models / data, "--steps", 2, "--json", "--threads", 1, "--no-filters"][: 8 if "lab" in data else 7]
    (tmp_path / "run.conf").write_text(run(*command, "--print-config", cwd=tmp_path).out)
    first = run(*command, "-o", "first", cwd=tmp_path)
    again = run("train", models / data, "--config", "run.conf", "-o", "again", cwd=tmp_path)
    tensors = [run("info", name, "--json", cwd=tmp_path).json() for name in ("first", "again")]
    assert again.json()["steps"] == first.json()["steps"]
    assert tensors[0]["history"]["score"] == tensors[1]["history"]["score"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("widht = 3\n", "1: there is no option 'widht', did you mean '--width'?"),
        ("\nwidth\n", "2: a line must be NAME = VALUE, not 'width'"),
        ("[trian]\n", "1: there is no command '[trian]', did you mean 'train'?"),
        ("json = maybe\n", "1: json must be true or false, not 'maybe'"),
        ("help = true\n", "1: there is no option 'help', did you mean '--help'?"),
    ],
)
def test_mistakes_in_a_file_of_options(tmp_path, text, message):
    (tmp_path / "c").write_text(text)
    refuses("train", "x", "--config", "c", message=f"--config c:{message}", status=2, verb="", cwd=tmp_path)


def test_a_file_of_options_that_is_not_there(tmp_path):
    refuses("train", "x", "--config", "c", message="--config c: cannot read: No such file or directory", status=1, verb="", cwd=tmp_path)


def test_help_says_what_scripts_need():
    text = run("--help").out
    assert "Exit status:" in text and "128+N" in text
    for variable in ("PENSTOCK_ISA", "PENSTOCK_CACHE_DIR", "OMP_NUM_THREADS", "SOURCE_DATE_EPOCH"):
        assert variable in text


def test_standard_input_is_data(models, tmp_path):
    text = (models / "text.txt").read_bytes()
    run("train", "-", *TINY, "--steps", 2, "--length", 8, "-o", "a", stdin=text, cwd=tmp_path)
    result = run("train", "-", "--as", "series", *TINY, "--steps", 2, "-o", "b", "--json", cwd=tmp_path,
                 stdin=(models / "series.csv").read_bytes())  # fmt: skip
    assert result.json()["model"]["task"] == "forecast"
    shown = run("info", "-", "--as", "series", stdin=(models / "series.csv").read_bytes()).out
    assert "is           data: level, flow in 240 rows" in shown and "next         penstock train - --as series\n" in shown
    assert "bytes of text" in run("info", "-", stdin=text).out


def test_info_says_what_a_file_is(models, tmp_path):
    shown = run("info", models / "series.safetensors").out
    assert "is           a model\n" in shown and "trained      1970-01-01T00:00:00Z, 60 steps" in shown
    assert "on           series.csv: level, flow in 240 rows" in shown and re.search(
        r"^score        mse [\d.e-]+ on \d+ held-out rows; level: RMSE [\d.]+, MAE .* than .* by \d+ %; 1 column more$", shown, re.MULTILINE)
    found = run("info", models / "series.safetensors", "--json").json()
    assert found["kind"] == "model" and found["verified"] is True and len(found["checksum"]) == 16
    run("train", models / "text.txt", *TINY, "--steps", 2, "--length", 8, "--checkpoint", "run", cwd=tmp_path)
    assert "a checkpoint after 2 steps and 0:00; 'penstock train --resume' continues the run" in run("info", tmp_path / "run").out
    data = run("info", models / "series.csv").out
    assert "is           data: level, flow in 240 rows" in data and "penstock train " in data


def test_a_conversation(models):
    answers = run("generate", "text.safetensors", "-i", "-n", 5, "--seed", 1, stdin="In the\nbeginning\n", cwd=models)
    assert len(answers.bytes) >= 2 * 5
    again = run("generate", "text.safetensors", "-i", "-n", 5, "--seed", 1, stdin="In the\nbeginning\n", cwd=models)
    assert again.bytes == answers.bytes


@pytest.mark.parametrize("columns", [60, 100])
def test_tables_of_bench_fit_the_terminal(columns):
    text = read_terminal(columns, "bench", "layer", "--cells", "mingru", "--shapes", "1x8x8x8", "--passes", "forward",
                         "--peers", "none", "--threads", 1, "--seconds", 0.01, "--quiet")  # fmt: skip
    lines = text.replace("\r", "").splitlines()
    assert any(line.startswith("mingru  1,8,8,8") for line in lines)
    assert max(map(len, lines)) <= columns and not any(line.startswith("|") for line in lines)


def tone(path, samples, rate=8000):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(b"".join(struct.pack("<h", max(-32768, min(32767, round(32767 * s)))) for s in samples))


def test_sound_to_sound(tmp_path):
    values = [0.5 * ((i * 7919 % 1000) / 500 - 1) for i in range(8000)]
    tone(tmp_path / "in.wav", values)
    tone(tmp_path / "target.wav", [0.5 * value for value in values])
    command = ["train", "in.wav", "--target", "target.wav", "--cell", "lstm", "--blocks", 1, "--width", 8, "--threads", 1,
               "--batch", 4, "--length", 64]  # fmt: skip
    result = run(*command, "--steps", 300, "--learning-rate", 0.01, cwd=tmp_path)
    assert result.err.startswith("data   in.wav: 0.8 s at 8000 Hz, another 20 % held out; target target.wav\n")
    assert "score  error-to-signal ratio 0." in result.out and "penstock stream model.safetensors in.wav in-model.wav --target target.wav" in result.out
    shown = run("stream", "model.safetensors", "in.wav", "out.wav", "--target", "target.wav", cwd=tmp_path).out
    assert re.match(r"out.wav: 1.000 s of sound in \d\.\d{3} s, real-time factor \d\.\d{3}\n", shown)
    error = float(re.search(r"error-to-signal ratio ([\d.e-]+), of which DC", shown)[1])
    assert 0 < error < 0.3, "halving is learnt"
    assert (tmp_path / "out.wav").read_bytes()[:4] == b"RIFF"
    # Standard output has the sound alone, and the report goes elsewhere.
    with open(tmp_path / "piped.wav", "wb") as piped:
        process = start("stream", "model.safetensors", "in.wav", "/dev/stdout", cwd=tmp_path, stdout=piped)
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and said.startswith(b"/dev/stdout: 1.000 s of sound in ")
    assert (tmp_path / "piped.wav").read_bytes() == (tmp_path / "out.wav").read_bytes()
    assert "one channel in and one out, at 8000 Hz" in run("info", "model.safetensors", cwd=tmp_path).out

    tone(tmp_path / "short.wav", values[:100])
    tone(tmp_path / "fast.wav", values, rate=16000)
    tone(tmp_path / "silence.wav", [0] * 8000)
    (tmp_path / "none.wav").write_bytes(b"RIFF")
    for target, message in [
        ("short.wav", "short.wav: 100 samples, in.wav has 8000; they must be one recording, whose lengths differ by at most half a second"),
        ("fast.wav", "fast.wav: 16000 samples a second, in.wav has 8000"),
        ("silence.wav", "silence.wav: the part to train on is silent"),
    ]:
        refuses("train", "in.wav", "--target", target, "-o", "x", message=message, status=1, verb="train", cwd=tmp_path)
    assert "none.wav: " in run("train", "none.wav", "--target", "in.wav", "-o", "x", cwd=tmp_path, expect=1).err
    refuses("stream", "model.safetensors", "fast.wav", "o.wav", status=1, verb="stream", cwd=tmp_path,
            message="fast.wav: 16000 Hz, the model was trained at 8000 Hz")  # fmt: skip


def started_with(folder, **given):
    """What stands in the environment of a run that waits for its text."""
    command = [str(BIN), "train", "-", "--as", "text"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=folder, env={"PATH": os.environ["PATH"], **given}, **pipes)
    try:
        end = time.monotonic() + PATIENCE
        while True:
            seen = pathlib.Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            assert time.monotonic() < end, seen
            # Right after a program begins there is nothing yet.
            if f"PATH={os.environ['PATH']}".encode() in seen and (given or b"PENSTOCK_STARTED_ANEW=1" in seen):
                return seen
            time.sleep(0.02)
    finally:
        process.kill()
        process.communicate()


def test_threads_spin_for_a_short_time_where_nobody_says_for_how_long(tmp_path):
    turns = next(each for each in started_with(tmp_path) if each.startswith(b"GOMP_SPINCOUNT="))
    assert 40e-6 / 100e-9 < int(turns.split(b"=")[1]) < 40e-6 / 0.5e-9  # a turn takes some nanoseconds
    assert not [each for each in started_with(tmp_path, OMP_WAIT_POLICY="active") if each.startswith(b"GOMP_")]
    assert b"GOMP_SPINCOUNT=5" in started_with(tmp_path, GOMP_SPINCOUNT="5")
