"""Files that cannot be read or written: one line, and nothing lost that was saved before."""

import json
import struct

import pytest

from program import TINY, refuses, run, start

QUICK = [*TINY, "--steps", 2, "--length", 8]


def series(*rows):
    return "a,b\n" + "".join(f"{i},{i % 7}\n" for i in range(20)) + "".join(row + "\n" for row in rows)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("empty.txt", "", "empty.txt: the file is empty"),
        ("short.txt", "ab", "short.txt: 2 bytes are too few: training needs two and validation one"),
        ("empty.csv", "", "empty.csv: the file is empty; it must start with the names of its columns"),
        ("head.csv", "a,b\n", "head.csv: no rows behind the header"),
        ("missing.csv", series("7"), "missing.csv:22:1: 1 fields, the header has 2"),
        ("extra.csv", series("7,8,9"), "extra.csv:22:5: 3 fields, the header has 2"),
        ("word.csv", series("7,seven"), 'word.csv:22:3: column "b": "seven" is not a number'),
        ("nan.csv", series("7,NaN"), 'nan.csv:22:3: column "b": "NaN" is not a finite number'),
        ("huge.csv", series("7,1e999"), 'huge.csv:22:3: column "b": "1e999" is beyond the range of numbers'),
        ("cell.csv", series("7,"), 'cell.csv:22:3: column "b": the value is missing'),
        ("blank.csv", series("", "7,8"), "blank.csv:22:1: blank line between the rows"),
        ("quote.csv", series('7,"8'), "quote.csv:22:3: the quote is never closed"),
        ("name.csv", b"a,\xff\n1,2\n", 'name.csv:1:3: the column name "\\xff" is not UTF-8'),
        ("bytes.csv", series().encode() + b"7,\xff\n", 'bytes.csv:22:3: column "b": "\\xff" is not a number'),
        ("twice.csv", "a,a\n1,2\n", 'twice.csv:1:3: the header has two columns "a"'),
        (
            "labels.csv",
            "sequence,label,x\n1,a,2\n1,b,3\n",
            'labels.csv:3:3: label "b" in sequence "1", which began with label "a"',
        ),
    ],
)
def test_bad_training_data(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    refuses("train", name, *QUICK[:-2], message=message, status=1, verb="train", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_text_need_not_be_utf8(tmp_path):
    (tmp_path / "bytes").write_bytes(bytes(range(256)) * 4)
    run("train", "bytes", *QUICK, cwd=tmp_path)
    assert run("predict", "model.safetensors", "bytes", "--json", cwd=tmp_path).json()["files"][0]["bytes"] == 1024


def test_data_that_are_not_there(tmp_path):
    message = "cannot read 'book.txt': No such file or directory"
    refuses("train", "book.txt", message=message, status=1, verb="train", cwd=tmp_path)


def split(model):
    size = struct.unpack("<Q", model[:8])[0]
    return json.loads(model[8 : 8 + size]), model[8 + size :]


def joined(header, data, size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def with_offsets(model, tensor, offsets):
    header, data = split(model)
    header[tensor]["data_offsets"] = offsets
    return joined(header, data)


def with_metadata(model, old, new):
    header, data = split(model)
    assert old in header["__metadata__"]["penstock"]
    header["__metadata__"]["penstock"] = header["__metadata__"]["penstock"].replace(old, new)
    return joined(header, data)


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda m: b"", "no safetensors file: 0 bytes are too few for a header"),
        (lambda m: m[:100], "no safetensors file, or a truncated one"),
        (lambda m: m[:-10], "reach beyond the"),
        (lambda m: joined(*split(m), size=2**62), "its header would be 4611686018427387904 bytes long"),
        (lambda m: joined(b'{"a":', b""), "the header is no JSON"),
        (lambda m: joined(b"[" * 100000, b""), "the header is no JSON object"),
        (lambda m: with_offsets(m, "head.bias", [0, 2**50]), "its data_offsets span 1125899906842624"),
        (lambda m: with_offsets(m, "norm.gain", [0, 64]), "overlap"),
        (lambda m: with_metadata(m, '"width":16', '"width":-1'), "width must be 1 to 65536, not -1"),
        (lambda m: with_metadata(m, '"width":16', '"width":17'), "is F32 [256, 16], not F32 [256, 17]"),
        (
            lambda m: with_metadata(m, '"width":16', '"width":60000'),
            "the architecture has 7230960256 parameters, the tensors hold",
        ),
        (lambda m: with_metadata(m, '"mingru"', '"gruesome"'), "not 'gruesome'"),
    ],
)
def test_damaged_models(models, tmp_path, damage, message):
    (tmp_path / "bad.safetensors").write_bytes(damage((models / "text.safetensors").read_bytes()))
    result = run("info", "bad.safetensors", cwd=tmp_path, expect=1)
    assert result.err.startswith("penstock info: bad.safetensors: ")
    assert message in result.err
    assert result.err.count("\n") == 1 and result.out == ""


def test_output_that_cannot_be_written_stops_the_run_before_it_starts(models, tmp_path):
    text = models / "text.txt"

    def refused(output, message, status):
        refuses("train", text, "--output", output, message=f"--output {output}{message}", status=status,
                verb="train", cwd=tmp_path)  # fmt: skip

    (tmp_path / "notes").write_text("not a model")
    refused("notes", " is there and is no Penstock model; --force overwrites it", 2)
    refused("no/folder", ": cannot write: No such file or directory", 1)
    refused(".", ": cannot write: it is not a regular file", 1)
    refused("/dev/null", ": cannot write: it is not a regular file", 1)
    refused(text, " would overwrite DATA", 2)
    assert (tmp_path / "notes").read_text() == "not a model"
    run("train", text, "--output", "notes", "--force", *QUICK, cwd=tmp_path)
    assert run("info", "notes", "--json", cwd=tmp_path).json()["width"] == 16


def test_metrics_that_cannot_be_written(models, tmp_path):
    refuses("train", models / "text.txt", *QUICK, "--metrics", "no/folder",
            message="no/folder: cannot write metrics: No such file or directory", status=1, verb="train",
            cwd=tmp_path)  # fmt: skip


def test_a_model_of_ours_is_replaced_without_asking(models, tmp_path):
    for _ in range(2):
        run("train", models / "text.txt", *QUICK, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_full_disk_costs_nothing_that_was_saved(models, tmp_path):
    run("train", models / "text.txt", *QUICK, "--checkpoint", "run.checkpoint", cwd=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"model.safetensors", "run.checkpoint"}
    result = run("train", models / "text.txt", *QUICK, "--checkpoint", "run.checkpoint", "--seed", 1, "--quiet",
                 cwd=tmp_path, file_size=8192, expect=1)  # fmt: skip
    assert "run.checkpoint" in result.err and "File too large" in result.err and result.err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "arguments",
    [["info"], ["generate", "text.safetensors"], ["predict", "text.safetensors", "text.txt"], ["train", "--help"]],
)
def test_standard_output_that_is_full(models, arguments):
    with open("/dev/full", "wb") as full:
        process = start(*arguments, cwd=models, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.endswith(b": cannot write to standard output: No space left on device\n") and err.count(b"\n") == 1


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "-: there is nothing to read, not even a header"),
        ("flow\n1\n", '-:1:1: the model reads a column "level", but the header has only "flow"'),
        ("level,flow\n1\n", "-:2:1: 1 fields, the header has 2"),
        ("level,flow\n1,2\nx,2\n", '-:3:1: column "level": "x" is not a number'),
        ("level,flow\n1,nan\n", '-:2:3: column "flow": "nan" is not a finite number'),
    ],
)
@pytest.mark.parametrize("verb", ["predict", "stream"])
def test_bad_rows(models, verb, text, message):
    result = run(verb, "series.safetensors", *(["-"] if verb == "predict" else []), stdin=text, cwd=models, expect=1)
    assert result.err == f"penstock {verb}: {message}\n"


def test_bad_tokens(models):
    result = run("stream", "parity.safetensors", stdin="0 1\n1 2\n", cwd=models, expect=1)
    assert result.err == "penstock stream: -:2:3: a token must be 0 to 1, not '2'\n"
    assert len(result.out.splitlines()) == 1 + 2


def test_other_bad_input_of_predict(models, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    model = models / "text.safetensors"
    refused = {"status": 1, "verb": "predict", "cwd": tmp_path}
    result = run("predict", model, "empty", cwd=tmp_path, expect=1)
    assert result.err == "penstock predict: empty: the file is empty\n"
    result = run("predict", model, "nothing", cwd=tmp_path, expect=1)
    assert result.err == "penstock predict: nothing: cannot read: No such file or directory\n"
    refuses("predict", "nothing", "empty", message="cannot read 'nothing': No such file or directory", **refused)
