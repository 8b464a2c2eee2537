"""Files that cannot be read or written: one line, and nothing lost that was saved before."""

import gzip
import io
import json
import re
import resource
import shutil
import struct
import zipfile

import pytest

import program
from program import PATIENCE, TINY, refuses, run, start

QUICK = [*TINY, "--steps", 2, "--length", 8]


MISSING = "the value is missing; --missing (carry, interpolate or mask) accepts such values"


def damaged(data):
    return data[:40] + bytes([data[40] ^ 255]) + data[41:]


def zipped(name):
    """A ZIP archive of one file of this name."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(name, b"content")
    return archive.getvalue()


def series(*rows):
    return "a,b\n" + "".join(f"{i},{i % 7}\n" for i in range(20)) + "".join(row + "\n" for row in rows)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("empty.txt", "", "empty.txt: the file is empty"),
        ("short.txt", "ab", "short.txt: a text of 2 bytes is too short: training needs two and validation one"),
        ("empty.csv", "", "empty.csv: the file is empty; it must start with the names of its columns"),
        ("head.csv", "a,b\n", "head.csv: no rows after the header"),
        ("missing.csv", series("7"), "missing.csv:22:1: 1 field, the header has 2"),
        ("extra.csv", series("7,8,9"), "extra.csv:22:5: 3 fields, the header has 2"),
        ("word.csv", series("7,seven"), 'word.csv:22:3: column "b": "seven" is not a number'),
        ("nan.csv", series("7,NaN"), f'nan.csv:22:3: column "b": {MISSING}'),
        ("inf.csv", series("7,-inf"), 'inf.csv:22:3: column "b": "-inf" is not a finite number'),
        ("constant.csv", "a,b\n1,x\n1,y\n", 'constant.csv: no numeric column changes, so there is nothing to learn from '
         'among "a", "b"'),
        ("program.txt", b"ab\0cd" * 99, "program.txt: this is binary data (byte 3 is 0), not a text; --bytes reads it "
         "anyway; --tokens uint16 reads token ids of two bytes"),
        ("table.csv", b"PAR1" + bytes(99), "table.csv: this is a Parquet file, not a table in text; pandas turns one into "
         "CSV: python3 -c \"import pandas; pandas.read_parquet('in').to_csv('out.csv')\""),
        ("table.parquet", b"PAR1" + bytes(99), "table.parquet: this is a Parquet file, not a text; pandas turns one into "
         "CSV: python3 -c \"import pandas; pandas.read_parquet('in').to_csv('out.csv')\""),
        ("table.xlsx", zipped("[Content_Types].xml"), "table.xlsx: this is an Excel file, or another of Office, not a text; "
         "pandas turns one into CSV: python3 -c \"import pandas; pandas.read_excel('in').to_csv('out.csv')\""),
        ("arrays.npz", zipped("x.npy"), "arrays.npz: this is a ZIP archive of NumPy arrays, not a text; NumPy turns one into "
         "CSV: python3 -c \"import numpy; numpy.savetxt('out.csv', numpy.load('in')['NAME'], delimiter=',')\""),
        ("weights.pt", zipped("archive/data.pkl"), "weights.pt: this is a file of PyTorch, not a text; --bytes reads it "
         "anyway; --tokens uint16 reads token ids of two bytes"),
        ("books.zip", zipped("book.txt"), "books.zip: this is a ZIP archive, not a text; unpack it first: unzip"),
        ("cut.csv.gz", gzip.compress(series().encode(), mtime=0)[:-9], "cut.csv.gz: damaged gzip data: they end too early"),
        ("bits.csv.gz", damaged(gzip.compress(series().encode(), mtime=0)), None),
        ("times.ts", "@timeStamps true\n@data\n1:a\n", "times.ts:1: series with time stamps cannot be read"),
        ("word.ts", "@problemName w\n@data\n1,2:a\n1,x:b\n", 'word.ts:4: "x" is not a number'),
        ("width.ts", "@problemName w\n@data\n1:2:a\n1:b\n", "width.ts:4: 1 dimension, the first series has 2"),
        ("huge.csv", series("7,1e999"), 'huge.csv:22:3: column "b": "1e999" is beyond the range of numbers'),
        ("cell.csv", series("7,"), f'cell.csv:22:3: column "b": {MISSING}'),
        ("blank.csv", series("", "7,8"), "blank.csv:22:1: blank line between the rows"),
        ("quote.csv", series('7,"8'), "quote.csv:22:3: the quote is never closed"),
        ("bytes.csv", series().encode() + b"7,\xff\n", 'bytes.csv:22:3: column "b": "\u00ff" is not a number'),
        ("half.txt", "word".encode("utf-16")[:-1], "half.txt: text in UTF-16 that ends within a character"),
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
    if message is None:
        assert run("train", name, *QUICK[:-2], cwd=tmp_path, expect=1).err.count("\n") == 1
    else:
        refuses("train", name, *QUICK[:-2], message=message, status=1, verb="train", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_text_need_not_be_utf8(tmp_path):
    (tmp_path / "bytes").write_bytes(bytes(range(256)) * 4)
    run("train", "bytes", "--bytes", *QUICK, cwd=tmp_path)
    run("train", "bytes", "--bytes", "--force", *QUICK, cwd=tmp_path)
    assert run("predict", "model.safetensors", "bytes", "--json", cwd=tmp_path).json()["files"][0]["bytes"] == 1024


def test_data_that_are_not_there(tmp_path):
    message = "cannot read 'book.txt': No such file or directory"
    refuses("train", "book.txt", message=message, status=1, verb="train", cwd=tmp_path)


def test_a_file_counts_once(models, tmp_path):
    (tmp_path / "a.csv").write_bytes((models / "series.csv").read_bytes())
    (tmp_path / "link.csv").symlink_to("a.csv")
    once = "link.csv: the same file as a.csv, so all it holds would count twice; leave one of the two out"
    for verb, *arguments in (["train", *QUICK], ["evaluate", models / "series.safetensors"]):
        refuses(verb, *arguments, "a.csv", "link.csv", message=once, status=1, verb=verb, cwd=tmp_path)
    with (tmp_path / "a.csv").open() as stdin:
        twice = start("train", "a.csv", "-", "--as", "series", *QUICK, cwd=tmp_path, stdin=stdin)
        assert b"-: the same file as a.csv" in twice.communicate(timeout=PATIENCE)[1] and twice.returncode == 1


def split(model):
    size = struct.unpack("<Q", model[:8])[0]
    return json.loads(model[8 : 8 + size]), model[8 + size :]


def joined(header, data, size=None):
    """A model as before there were checksums, which would be all that is said of damage."""
    if isinstance(header, dict):
        header["__metadata__"].pop("penstock.checksum", None)
        text = header["__metadata__"]["penstock"]
        header["__metadata__"]["penstock"] = text.replace('"format_version":2', '"format_version":1')
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
        (lambda m: joined(*split(m), size=2**62), "it does not begin with the length of a header"),
        (lambda m: joined(b'{"a"', b""), "the header is not JSON in UTF-8: ':' expected at byte 4"),
        (lambda m: joined(b"[" * 100000, b""), "the header is not a JSON object"),
        (lambda m: with_offsets(m, "head.bias", [0, 2**50]), "its data_offsets span 1125899906842624"),
        (lambda m: with_offsets(m, "norm.gain", [0, 64]), "overlap"),
        (lambda m: with_metadata(m, '"width":16', '"width":-1'), "width must be 1 to 65536, not -1"),
        (lambda m: with_metadata(m, '"width":16', '"width":17'), "is F32 [256, 16], not F32 [256, 17]"),
        (
            lambda m: with_metadata(m, '"width":16', '"width":20000'),
            "the architecture has 3210540256 parameters, the tensors hold",
        ),
        (lambda m: with_metadata(m, '"mingru"', '"gruesome"'), 'not "gruesome"'),
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
    there = " is there already, no Penstock model; --force replaces it, -o FILE writes another one"
    refused("notes", there, 2)
    refused("no/folder", ": cannot write: No such file or directory; first: mkdir -p no", 1)
    refused(".", ": cannot write: it is a folder; name a file in it", 1)
    refused("/dev/null", ": cannot write: it is not a regular file", 1)
    refused(text, " would overwrite DATA", 2)
    assert (tmp_path / "notes").read_text() == "not a model"
    run("train", text, "--output", "notes", "--force", *QUICK, cwd=tmp_path)
    assert run("info", "notes", "--json", cwd=tmp_path).json()["width"] == 16


def test_metrics_that_cannot_be_written(models, tmp_path):
    refuses("train", models / "text.txt", *QUICK, "--metrics", "no/folder",
            message="no/folder: cannot write metrics: No such file or directory", status=1, verb="train",
            cwd=tmp_path)  # fmt: skip


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_was_trained_is_replaced_on_request_only(models, tmp_path):
    command = ["train", models / "text.txt", *QUICK]
    run(*command, cwd=tmp_path)
    before = content(tmp_path)
    assert set(before) == {"model.safetensors"}
    message = "--output model.safetensors is there already, a model; --force replaces it, -o FILE writes another one"
    refuses(*command, "--seed", 1, message=message, status=2, verb="train", cwd=tmp_path)
    slip = "cannot read 'txet.txt': No such file or directory"
    refuses("train", "txet.txt", *QUICK, message=slip, status=1, verb="train", cwd=tmp_path)
    assert content(tmp_path) == before
    run(*command, "--seed", 1, "--force", cwd=tmp_path)
    assert set(content(tmp_path)) == set(before) and content(tmp_path) != before
    run(*command, "--checkpoint", "run", "-o", "other", cwd=tmp_path)
    message = "--checkpoint run is there already, a checkpoint; --resume continues that run, --force replaces it"
    refuses(*command, "--checkpoint", "run", "-o", "third", message=message, status=2, verb="train", cwd=tmp_path)
    # The file that --resume would replace must be of the same kind.
    (tmp_path / "third").write_bytes((models / "series.safetensors").read_bytes())
    message = "--output third is there already, a model; it does not belong to run, and --force replaces it"
    refuses(*command, "--resume", "--checkpoint", "run", "-o", "third", message=message, status=2, verb="train",
            cwd=tmp_path)  # fmt: skip
    run(*command, "--resume", "--checkpoint", "run", "-o", "other", "--steps", 4, cwd=tmp_path)


def test_a_second_run_with_the_same_output_is_refused_at_once(models, tmp_path):
    command = ["train", models / "text.txt", *TINY, "--length", 16, "--patience", 0, "--steps", 100000]
    first = start(*command, cwd=tmp_path)
    while b" step 1 " not in first.stderr.readline():
        assert first.poll() is None
    message = f"--output model.safetensors: another run (process {first.pid}) is writing to it"
    refuses(*command, "--force", message=message, status=2, verb="train", cwd=tmp_path)
    first.kill()
    first.communicate()
    # The lock of a run that was killed stays, and keeps nobody out.
    assert "model.safetensors.lock" in content(tmp_path)
    run(*command[:-1], 2, "--force", cwd=tmp_path)
    assert set(content(tmp_path)) == {"model.safetensors"}


def test_a_full_disk_costs_nothing_that_was_saved(models, tmp_path):
    run("train", models / "text.txt", *QUICK, "--checkpoint", "run.checkpoint", cwd=tmp_path)
    before = content(tmp_path)
    assert set(before) == {"model.safetensors", "run.checkpoint"}
    result = run("train", models / "text.txt", *QUICK, "--checkpoint", "run.checkpoint", "--seed", 1, "--quiet",
                 "--force", cwd=tmp_path, file_size=8192, expect=1)  # fmt: skip
    lines = result.err.splitlines()
    assert lines[0].startswith("warning: no checkpoint: cannot write 'run.checkpoint': File too large")
    said = "cannot write 'model.safetensors': File too large"
    assert lines[1] == f"warning: {said}; trying again for 0:05: make room, or end this with Ctrl-C"
    assert lines[2:] == [f"penstock train: {said}"]
    assert content(tmp_path) == before


def test_a_model_is_written_once_there_is_room(models, tmp_path):
    process = start("train", models / "text.txt", *QUICK, "--quiet", cwd=tmp_path, file_size=8192)
    while b"trying again" not in (line := process.stderr.readline()):
        assert line.startswith(b"warning: no checkpoint")
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert process.communicate(timeout=PATIENCE) == (b"", b"") and process.returncode == 0
    assert set(content(tmp_path)) == {"model.safetensors"}


def test_a_disk_that_is_full_for_checkpoints_does_not_end_the_run(models, tmp_path):
    # The model alone fits, model and moments do not.
    size = len((models / "text.safetensors").read_bytes())
    result = run("train", models / "text.txt", *QUICK, "--checkpoint-every", 0, "--quiet", cwd=tmp_path,
                 file_size=size + 2048)  # fmt: skip
    assert "warning: no checkpoint: cannot write 'model.safetensors.checkpoint': File too large" in result.err
    assert set(content(tmp_path)) == {"model.safetensors"}
    run("info", "model.safetensors", cwd=tmp_path)


def test_every_flipped_bit_of_a_model_is_seen(models, tmp_path):
    model = (models / "series.safetensors").read_bytes()
    header = 8 + struct.unpack("<Q", model[:8])[0]
    places = [*range(0, header, 199), *range(header, len(model), len(model) // 10)]
    for i, place in enumerate(places):
        bad = model[:place] + bytes([model[place] ^ (1 << i % 8)]) + model[place + 1 :]
        (tmp_path / "bad.safetensors").write_bytes(bad)
        assert run("info", "bad.safetensors", cwd=tmp_path, expect=1).err.startswith("penstock info: bad.safetensors: ")


def test_a_damaged_model_is_one_under_any_name(models, tmp_path):
    content = bytearray((models / "text.safetensors").read_bytes())
    content[len(content) // 2] ^= 4
    (tmp_path / "renamed.bin").write_bytes(content)
    assert "checksum" in run("info", "renamed.bin", cwd=tmp_path, expect=1).err


def test_models_from_before_checksums_load(models, tmp_path):
    (tmp_path / "old.safetensors").write_bytes(joined(*split((models / "text.safetensors").read_bytes())))
    shown = run("info", "old.safetensors", cwd=tmp_path).out
    assert "checksum     none" in shown


@pytest.mark.parametrize(
    "arguments",
    [["info"], ["generate", "text.safetensors"], ["predict", "text.safetensors", "text.txt"], ["train", "--help"]],
)
def test_standard_output_that_is_full(models, arguments):
    with open("/dev/full", "wb") as full:
        process = start(*arguments, cwd=models, stdout=full)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert err.endswith(b": cannot write to standard output: No space left on device\n") and err.count(b"\n") == 1


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "-: there is nothing to read, not even a header"),
        ("flow\n1\n", '-:1:1: the model reads a column "level", but the header has only "flow"'),
        ("level,flow\n1\n", "-:2:1: 1 field, the header has 2"),
        ("level,flow\n1,2\nx,2\n", '-:3:1: column "level": "x" is not a number'),
        ("level,flow\n1,inf\n", '-:2:3: column "flow": "inf" is not a finite number'),
        ("level,flow\n1,nan\n", f'-:2:3: column "flow": {MISSING}'),
    ],
)
@pytest.mark.parametrize("verb", ["predict", "stream"])
def test_bad_rows(models, verb, text, message):
    more = ["-"] if verb == "predict" else ["--missing", "refuse"]
    result = run(verb, "series.safetensors", *more, stdin=text, cwd=models, expect=1)
    assert result.err == f"penstock {verb}: {message}\n"


def test_a_stream_survives_bad_rows_and_counts_them(models):
    good = "level,flow\n10,2\n11,3\n11,3\n11,3\n11,3\n12,2\n"
    bad = "level,flow\n10,2\n11,3\n,\nx,3\n11\n12,2\n"
    expected = run("stream", "series.safetensors", stdin=good, cwd=models)
    result = run("stream", "series.safetensors", stdin=bad, cwd=models)
    assert result.out == expected.out and expected.err == ""
    lines = result.err.splitlines()
    instead = "--missing refuse ends the stream instead"
    assert lines[0] == f'note: -:4:1: column "level": {MISSING}; replaced by the last value; {instead}'
    counted = "note: 5 values were replaced by the last value of their column (--missing refuse ends with an error instead)"
    assert lines[1].startswith(f"{counted}; the first: -:4:1: ")
    assert len(lines) == 2
    predicted = run("predict", "series.safetensors", "-", "--missing", "carry", stdin="level,flow\n10,2\n,3\n", cwd=models)
    assert predicted.out == run("predict", "series.safetensors", "-", stdin="level,flow\n10,2\n10,3\n", cwd=models).out
    assert "note: 1 value was replaced by the last value of its column" in predicted.err


@pytest.mark.parametrize("model, options", [("text", ["--bits"]), ("series", [])])
def test_a_stream_goes_on_from_its_state(models, tmp_path, model, options):
    data = (models / ("text.txt" if model == "text" else "series.csv")).read_text().splitlines(keepends=True)[:41]
    command = ["stream", models / f"{model}.safetensors", *options]
    whole = run(*command, stdin="".join(data), cwd=tmp_path).out.splitlines()
    head = data[:1] if model == "series" else []
    first = run(*command, "--state", "state", stdin="".join(data[:20]), cwd=tmp_path).out.splitlines()
    second = run(*command, "--state", "state", stdin="".join(head + data[20:]), cwd=tmp_path).out.splitlines()
    assert first + second[len(head):] == whole
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    other = models / ("series" if model == "text" else "text")
    message = f"--state state: this is the state of another model than {other}.safetensors"
    refused = run("stream", f"{other}.safetensors", "--state", "state", cwd=tmp_path, expect=1)
    assert refused.err == f"penstock stream: {message}\n"
    (tmp_path / "state").write_text("{}")
    refused = run(*command, "--state", "state", cwd=tmp_path, expect=1)
    assert refused.err == "penstock stream: --state state: this is not a state of a stream\n"


def test_no_damage_to_a_state_goes_unnoticed(models, tmp_path):
    state = tmp_path / "state"
    command = ["stream", models / "text.safetensors", "--state", state]
    run(*command, stdin="some text", cwd=tmp_path)
    whole = state.read_bytes()
    assert re.search(rb'"checksum":"[0-9a-f]{16}"', whole) and b'"version":2' in whole
    damage = "damaged: the checksum does not match; remove the file to start with a new state"
    number = whole.index(b'"state":[') + len(b'"state":[') + 1
    for place, bit in [(number, 0), (number + 3, 1), (whole.index(b"checksum"), 0), (whole.index(b"version"), 0)]:
        state.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1:])
        refused = run(*command, stdin="more", cwd=tmp_path, expect=1)
        assert refused.err == f"penstock stream: --state {state}: {damage}\n"
    state.write_bytes(whole[:-1])
    run(*command, stdin="more", cwd=tmp_path, expect=1)
    state.write_bytes(whole.replace(b'"version":2', b'"version":3'))
    newer = f"penstock stream: --state {state}: a newer Penstock wrote it (version 3, and this one reads up to 2)\n"
    assert run(*command, stdin="more", cwd=tmp_path, expect=1).err == newer


def test_states_from_before_there_were_checksums_go_on(models, tmp_path):
    state = tmp_path / "state"
    command = ["stream", models / "text.safetensors", "--state", state]
    run(*command, stdin="some text", cwd=tmp_path)
    whole = state.read_bytes()
    now = run(*command, stdin="more", cwd=tmp_path).bytes
    old = json.loads(whole)
    del old["checksum"], old["version"]
    state.write_text(json.dumps(old))
    assert run(*command, stdin="more", cwd=tmp_path).bytes == now
    assert b'"checksum"' in state.read_bytes()


@pytest.mark.parametrize("bytes_of_name, allowed", [(250, True), (256, False), (5000, False)])
@pytest.mark.parametrize(
    "option, command",
    [
        ("--output", ["predict", "series.safetensors", "series.csv", "-o"]),
        ("--output", ["export", "series.safetensors", "-o"]),
        (None, ["tune", "--shape", "1x2x2x2", "--seconds", "0.001", "--plans-only", "-o"]),
        ("--state", ["stream", "text.safetensors", "--state"]),
        (None, ["bench", "layer", "--json"]),
    ],
)
def test_names_that_are_too_long(models, tmp_path, bytes_of_name, allowed, option, command):
    if allowed and command[0] == "bench":
        pytest.skip("it would measure")
    name = str(tmp_path / ("n" * bytes_of_name))
    arguments = [models / word if word.endswith((".safetensors", ".csv")) else word for word in command]
    result = run(*arguments, name, cwd=tmp_path, expect=0 if allowed else 1)
    if allowed:
        assert (tmp_path / name).exists()
        return
    reason = f"its name has {bytes_of_name} bytes, and the file system allows 255; choose a shorter one\n"
    assert result.err.endswith(f"cannot write: {reason}" if option else reason) and result.err.count("\n") == 1
    assert (option or "cannot write") in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["-o", "--checkpoint", "--metrics", "--tensorboard"])
def test_training_says_that_a_name_is_too_long(models, tmp_path, option):
    name = str(tmp_path / ("n" * 300))
    output = [] if option == "-o" else ["-o", "m"]
    result = run("train", models / "text.txt", *QUICK, "--quiet", *output, option, name, cwd=tmp_path, expect=1)
    assert "its name has 300 bytes, and the file system allows 255; choose a shorter one" in result.err
    assert result.err.count("\n") == 1


def test_a_name_whose_lock_or_checkpoint_is_too_long(models, tmp_path):
    name = str(tmp_path / ("n" * 250))
    result = run("train", models / "text.txt", *QUICK, "--quiet", "-o", name, cwd=tmp_path, expect=1)
    assert "and the file system allows 255; choose a shorter one" in result.err and result.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "option, command",
    [
        ("--output", ["train", "text.txt", "--steps", 1, "-o"]),
        ("--checkpoint", ["train", "text.txt", "--steps", 1, "-o", "m", "--checkpoint"]),
        ("--metrics", ["train", "text.txt", "--steps", 1, "-o", "m", "--metrics"]),
        ("--output", ["export", "series.safetensors", "-o"]),
        ("--output", ["tune", "--shape", "1x2x2x2", "-o"]),
        ("--state", ["stream", "text.safetensors", "--state"]),
        ("--plot", ["bench", "layer", "--plot"]),
    ],
)
def test_standard_output_is_no_file(models, tmp_path, option, command):
    arguments = [models / word if str(word).endswith((".safetensors", ".txt")) else word for word in command]
    message = f"{option} must name a file, not '-': {option} does not write to standard output; ./- is a file of that name"
    refuses(*arguments, "-", message=message, status=2, verb=command[0], cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["", "now", "12.5", "-1", "1 ", "253402300800", "99999999999999999999"])
@pytest.mark.parametrize("command", [["train", "text.txt", *QUICK, "-o", "m"], ["report", "text.safetensors", "-o", "r.html"]])
def test_a_bad_time_of_reproducible_files(models, tmp_path, monkeypatch, value, command):
    given = {**program.environment(), "SOURCE_DATE_EPOCH": value}
    monkeypatch.setattr(program, "environment", lambda: given)
    arguments = [models / word if str(word).startswith("text.") else word for word in command]
    result = run(*arguments, cwd=tmp_path, expect=2)
    assert f"SOURCE_DATE_EPOCH must be 0 to 253402300799, in seconds since 1970, not \"{value}\": unset it" in result.err
    assert list(tmp_path.iterdir()) == []


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


def test_too_little_memory_to_train(models, tmp_path):
    """It says what is needed, what there is and which option lowers it; what was saved before stays."""
    shutil.copy(models / "text.safetensors", tmp_path)
    before = (tmp_path / "text.safetensors").read_bytes()
    giga = 1 << 30
    command = ["train", models / "text.txt", "--width", 64, "--blocks", 4, "--threads", 1, "--length", 2048, "--steps", 1]
    options = ["--output", "text.safetensors", "--force", "--quiet"]
    result = run(*command, "--batch", 512, *options, cwd=tmp_path, memory=2 * giga, expect=1)
    found = re.fullmatch(
        r"penstock train: training with batches of 512 x 2048 needs (\d+) MB of memory on cpu: the host cannot give "
        r"(\d+) MB: (\d+) MB are free; --batch lowers that, and so does --length\n",
        result.err,
    )
    assert found, result.err
    needed, refused, free = map(int, found.groups())
    assert needed >= refused > free and free < 2048
    assert (tmp_path / "text.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["text.safetensors"]
    run(*command, "--batch", 4, *options, cwd=tmp_path, memory=2 * giga)
    assert (tmp_path / "text.safetensors").read_bytes() != before
