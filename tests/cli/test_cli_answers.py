"""generate, predict, stream and info: what they answer, and that they agree with each other."""

import csv
import io
import json
import math
import os
import select

import pytest

from program import PATIENCE, TEXT, refuses, run, start


def test_generate_repeats_itself_with_a_seed(models):
    def text(seed):
        return run("generate", "text.safetensors", "-p", "In the", "-n", 50, "--seed", seed, cwd=models).bytes

    assert text(1) == text(1) != text(2)
    assert text(1).startswith(b"In the") and len(text(1)) == 56


def test_generate_at_temperature_zero_writes_what_predict_expects(models):
    written = run("generate", "text.safetensors", "-p", "In the", "-n", 20, "--temperature", 0, cwd=models).bytes
    rows = run("predict", "text.safetensors", "-", "--per-byte", "--exact", "--json", stdin=written, cwd=models)
    expected = [row["next"] for row in rows.json_lines()]
    assert list(written[6:]) == expected[5:-1]


def test_generate_as_json_and_from_a_prompt_file(models):
    arguments = ["generate", "text.safetensors", "-n", 30, "--seed", 3]
    plain = run(*arguments, "--prompt-file", "-", stdin="and the ", cwd=models)
    result = run(*arguments, "-p", "and the ", "--json", cwd=models).json()
    assert result["prompt"] + result["text"] == plain.out
    assert result["bytes"] == 30 and result["seed"] == 3


def test_generate_writes_many_streams_each_as_by_itself(models):
    arguments = ["generate", "text.safetensors", "-p", "and the ", "-n", 90]
    result = run(*arguments, "--seed", 7, "--streams", 3, "--json", "--stats", cwd=models)
    lines = result.json_lines()
    assert [line["seed"] for line in lines] == [7, 8, 9]
    assert "90 bytes in each of 3 streams in" in result.err
    for line in lines:
        assert line == run(*arguments, "--seed", line["seed"], "--json", cwd=models).json()
    plain = run(*arguments, "--seed", 7, "--streams", 2, cwd=models).out
    texts = [line["prompt"] + line["text"] for line in lines]
    parts = [f"==> stream {i}, seed {7 + i} <==\n{texts[i].removesuffix(chr(10))}\n" for i in range(2)]
    assert plain == "\n".join(parts)


def test_generate_ends_quietly_when_nobody_reads_on(models):
    process = start("generate", "text.safetensors", "-n", 10**9, cwd=models)
    assert len(os.read(process.stdout.fileno(), 10)) > 0
    process.stdout.close()
    assert process.wait(PATIENCE) == 0
    assert process.stderr.read() == b""


def test_predict_scores_texts(models):
    (models / "noise").write_bytes(bytes((i * 7919) % 251 for i in range(2000)))
    files = run("predict", "text.safetensors", "text.txt", "noise", "--json", cwd=models).json()["files"]
    assert [file["file"] for file in files] == ["text.txt", "noise"]
    assert files[0]["bytes"] == len(TEXT) and files[0]["scored"] == len(TEXT) - 1
    assert files[0]["bits_per_byte"] < 5 < 8 < files[1]["bits_per_byte"]
    assert files[0]["loss"] == pytest.approx(files[0]["bits_per_byte"] * math.log(2))
    table = run("predict", "text.safetensors", "text.txt", "noise", cwd=models).out.splitlines()
    assert table[0].split() == ["bits/byte", "loss", "bytes", "file"]
    assert table[1].split() == [f"{files[0]['bits_per_byte']:.4f}", f"{files[0]['loss']:.4f}", "4,380", "text.txt"]


def test_the_bytes_of_a_text_add_up(models):
    total = run("predict", "text.safetensors", "text.txt", "--json", cwd=models).json()["files"][0]
    rows = run("predict", "text.safetensors", "text.txt", "--per-byte", "--json", cwd=models).json_lines()
    assert bytes(row["byte"] for row in rows) == TEXT
    assert rows[0]["bits"] is None
    assert sum(row["bits"] for row in rows[1:]) == pytest.approx(total["bits"])


@pytest.mark.parametrize("style", [[], ["--json"], ["--precision", "bf16"], ["--precision", "bf16-weights"]])
def test_stream_says_of_a_text_what_predict_says(models, style):
    predicted = run("predict", "text.safetensors", "text.txt", "--per-byte", "--exact", *style, cwd=models)
    streamed = run("stream", "text.safetensors", *style, stdin=TEXT, cwd=models)
    assert streamed.out == predicted.out


def test_rounded_weights_cost_a_text_next_to_nothing(models):
    def bits(*precision):
        return run("predict", "text.safetensors", "text.txt", "--json", *precision, cwd=models).json()["files"][0]

    full, rounded = (bits(*given)["bits_per_byte"] for given in ([], ["--precision", "bf16-weights"]))
    assert full != rounded
    assert rounded == pytest.approx(full, abs=0.05)


@pytest.mark.parametrize("style", [[], ["--json"]])
def test_stream_says_of_a_series_what_predict_says(models, style):
    keep = ["--keep", "day", *style]
    predicted = run("predict", "series.safetensors", "series.csv", "--exact", *keep, cwd=models)
    streamed = run("stream", "series.safetensors", *keep, stdin=(models / "series.csv").read_bytes(), cwd=models)
    assert streamed.out == predicted.out
    assert len(streamed.out.splitlines()) == (300 if style else 301)


def test_forecasts_are_in_raw_units(models):
    table = list(csv.DictReader(io.StringIO(run("predict", "series.safetensors", "series.csv", cwd=models).out)))
    assert list(table[0]) == ["level+1", "flow+1", "level+2", "flow+2"]
    truth = list(csv.DictReader(io.StringIO((models / "series.csv").read_text())))
    level = [abs(float(table[i]["level+1"]) - float(truth[i + 1]["level"])) for i in range(50, 299)]
    flow = [abs(float(table[i]["flow+2"]) - float(truth[i + 2]["flow"])) for i in range(50, 298)]
    assert sum(level) / len(level) < 2 and sum(flow) / len(flow) < 0.5  # of amplitudes 5 and 1


def test_last_is_the_last(models):
    everything = run("predict", "series.safetensors", "series.csv", "--keep", "day", cwd=models).out.splitlines()
    last = run("predict", "series.safetensors", "series.csv", "--keep", "day", "--last", cwd=models).out.splitlines()
    assert last == [everything[0], everything[-1]]


def test_columns_may_stand_in_any_order(models):
    rows = list(csv.reader(io.StringIO((models / "series.csv").read_text())))[:20]
    other = "".join(f"{flow},x,{level}\r\n" for _, level, flow in rows)
    plain = "".join(f"{day},{level},{flow}\n" for day, level, flow in rows)
    answers = [run("stream", "series.safetensors", stdin=text, cwd=models).out for text in (plain, other)]
    assert answers[0] == answers[1]


def test_labels(models):
    rows = list(csv.DictReader(io.StringIO(run("predict", "labelled.safetensors", "labelled.csv", cwd=models).out)))
    assert [row["sequence"] for row in rows] == [f"s{i}" for i in range(40)]
    assert sum(row["label"] == ("up" if i % 2 else "down") for i, row in enumerate(rows)) >= 38
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)

    # The stream says the same behind the last row of each sequence.
    text = (models / "labelled.csv").read_bytes()
    result = run("stream", "labelled.safetensors", "--keep", "sequence", "--json", stdin=text, cwd=models)
    last = {row["columns"]["sequence"]: row for row in result.json_lines()}
    assert [last[row["sequence"]]["label"] for row in rows] == [row["label"] for row in rows]
    for row in last.values():
        assert sum(row["probabilities"].values()) == pytest.approx(1)
        assert row["probability"] == pytest.approx(row["probabilities"][row["label"]])


def test_sequences_without_names_are_parted_by_blank_lines(models):
    text = "x,y\n0,1\n1,2\n2,1\n\n0,1\n-1,2\n-2,1\n"
    rows = run("predict", "labelled.safetensors", "-", stdin=text, cwd=models).out.splitlines()
    assert [row.split(",")[:2] for row in rows[1:]] == [["1", "up"], ["2", "down"]]


def test_tokens(models):
    score = run("predict", "parity.safetensors", "task:parity", "--length", 8, "--json", cwd=models).json()
    assert score["accuracy"] > 0.95 and score["length"] == 8 and score["scored"] == 8 * 1024
    lines = "1 0 1\n1 0 0\n"
    rows = run("predict", "parity.safetensors", "-", stdin=lines, cwd=models).out.splitlines()
    assert [row.split(",")[:2] for row in rows[1:]] == [["1", "even"], ["2", "odd"]]
    rows = run("stream", "parity.safetensors", stdin="1 0 1\n", cwd=models).out.splitlines()
    assert [row.split(",")[0] for row in rows[1:]] == ["odd", "odd", "even"]
    for verb in (["predict", "parity.safetensors", "task:modular"], ["predict", "text.safetensors", "task:parity"]):
        assert run(*verb, cwd=models, expect=1).err.count("\n") == 1


class Dialogue:
    """Speaks with a stream and insists on the answer before it goes on."""

    def __init__(self, *arguments, cwd):
        self.process = start("stream", *arguments, cwd=cwd, stdin=-1)
        self.text = b""

    def answer(self):
        while b"\n" not in self.text:
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
            assert ready, "no answer, though nothing more is coming"
            part = os.read(self.process.stdout.fileno(), 4096)
            assert part, self.process.stderr.read()
            self.text += part
        line, _, self.text = self.text.partition(b"\n")
        return line.decode()

    def say(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def end(self):
        out, err = self.process.communicate(timeout=PATIENCE)
        assert (self.process.returncode, self.text + out) == (0, b"")
        return err.decode()


def test_every_row_is_answered_before_the_next_is_sent(models):
    dialogue = Dialogue("series.safetensors", "--keep", "day", "--stats", cwd=models)
    dialogue.say(b"day,level,flow\n")
    assert dialogue.answer() == "day,level+1,flow+1,level+2,flow+2"
    for day in range(5):
        dialogue.say(f"{day},{10 + day},2\n".encode())
        assert dialogue.answer().startswith(f"{day},")
    assert dialogue.end().startswith("5 steps, p50 ")


def test_every_byte_is_answered_before_the_next_is_sent(models):
    dialogue = Dialogue("text.safetensors", "--bits", cwd=models)
    bits = []
    for byte in b"beginning":
        dialogue.say(bytes([byte]))
        bits.append(dialogue.answer())
    assert bits[0] == "-"
    total = sum(map(float, bits[1:]))
    assert dialogue.end() == f"{total:.1f} bits for 8 bytes, {total / 8:.4f} bits/byte\n"


@pytest.mark.parametrize(
    "model, head, part, answers",
    [
        ("text.safetensors", "", "word\n\n", 6),
        ("series.safetensors", "level,flow\n", "11,2\n12,3\n\n", 2),
        ("parity.safetensors", "", "1\n0\n1\n\n", 3),
    ],
)
def test_a_blank_line_starts_anew(models, model, head, part, answers):
    def lines(*options):
        text = run("stream", model, "--json", *options, stdin=head + part + part, cwd=models).out.splitlines()
        assert len(text) == 2 * answers
        return text[:answers], text[answers:]

    first, second = lines("--reset-on-blank-line")
    assert first == second
    first, second = lines()
    assert first != second


def test_a_row_without_line_end_is_answered_too(models):
    assert len(run("stream", "series.safetensors", stdin="level,flow\n1,2", cwd=models).out.splitlines()) == 2


def test_readable_bytes(models):
    rows = run("stream", "text.safetensors", stdin=b"a\n'\\\xff", cwd=models).out.splitlines()
    assert [row.split()[0] for row in rows] == ["byte", "'a'", "'\\n'", "'\\''", "'\\\\'", "'\\xff'"]


def test_info_says_what_a_model_takes(models):
    memory = run("info", "text.safetensors", "--shape", "4x32", "--json", cwd=models).json()["memory"]
    assert memory["weights"] >= 4 * memory["parameters"]
    assert memory["forward"] >= memory["forward_peak"] > 0
    assert memory["training"] > memory["forward"]
    assert memory["optimizer"] == 3 * memory["weights"]
    twice = run("info", "text.safetensors", "--shape", "8x32", "--json", cwd=models).json()["memory"]
    assert twice["state"] == 2 * memory["state"]
    assert memory["training"] < twice["training"] <= 2 * memory["training"]
    text = run("info", "text.safetensors", "--shape", "4x32", cwd=models).out
    assert "for 4x32 rows and steps on cpu" in text
    wrong = run("info", "text.safetensors", "--shape", "4", cwd=models, expect=2)
    assert "--shape must be BxT" in wrong.err


def test_info(models):
    machine = run("info", "--json").json()
    text = run("info").out
    assert machine["cuda"]["gpus"] or machine["cuda"]["missing"], "either GPUs or why there are none"
    assert "\ngpu  " in text
    assert machine["isa"] in machine["isas"] and machine["cpu"] in text
    assert {"lstm", "mingru"} <= {cell["name"] for cell in machine["cells"]}
    for cell in machine["cells"]:
        assert f"\n{cell['name']} " in text
    model = run("info", "series.safetensors", "--json", cwd=models).json()
    assert model["task"] == "forecast" and model["horizon"] == 2 and model["targets"] == ["level", "flow"]
    text = run("info", "series.safetensors", cwd=models).out
    assert f"{model['parameters']:,} parameters" in text and "level (mean 10" in text
    labels = run("info", "labelled.safetensors", cwd=models).out
    assert "labels       down, up" in labels
    assert json.loads(run("info", "text.safetensors", "--json", cwd=models).out)["vocabulary"] == 256


AUTO = [
    ("generate", "text.safetensors", "-n", 5, "--seed", 1),
    ("predict", "text.safetensors", "text.txt"),
    ("evaluate", "text.safetensors", "text.txt"),
    ("stream", "series.safetensors"),
    ("info", "text.safetensors", "--shape", "8x64"),
    ("train", "text.txt", "--steps", 2, "--length", 16, "--output", "auto.safetensors", "--force"),
]


@pytest.mark.parametrize("arguments", AUTO, ids=[case[0] for case in AUTO])
def test_device_auto_says_why(models, arguments):
    """Without a GPU it is the CPU, and a line names what is missing; the answers are the CPU's."""
    missing = run("info", "--json").json()["cuda"]["missing"]
    rows = (models / "series.csv").read_text() if arguments[0] == "stream" else ""
    result = run(*arguments, "--device", "auto", cwd=models, stdin=rows)
    if missing:
        assert f"device cpu: there is no GPU: {missing}\n" in result.err
        if arguments[0] != "train":
            assert result.out == run(*arguments, "--device", "cpu", cwd=models, stdin=rows).out
    else:
        assert "device c" in result.err and ": by estimate " in result.err


def test_device_auto_is_for_verbs_that_know_their_work(models):
    assert "--device cpu|cuda[:N]|auto" in run("generate", "--help").out
    message = '--device must be cpu, cuda or cuda:N with the number of a GPU, not "auto"'
    refuses("profile", "text.safetensors", "--device", "auto", message=message, status=2, verb="profile", cwd=models)


@pytest.mark.parametrize("arguments", AUTO, ids=[case[0] for case in AUTO])
def test_a_device_that_is_not_there(models, arguments):
    """Exit status 1 or 2 and one line that names the device; files stay as they are."""
    before = {path.name: path.read_bytes() for path in models.iterdir()}
    missing = run("info", "--json").json()["cuda"]["missing"]
    result = run(*arguments, "--device", "cuda:99", cwd=models, expect=1 if missing else 2)
    name = f"device cuda:99 is not there: {missing}" if missing else "device must be 0 to "
    assert result.err.splitlines()[-1].startswith(f"penstock {arguments[0]}: {name}")
    assert {path.name: path.read_bytes() for path in models.iterdir()} == before
