"""What people type who do not know the program: it says what they meant, as a command where there is one."""

import datetime
import math
import shutil

import pytest

from program import TINY, refuses, run


@pytest.mark.parametrize("words", [["version"], ["-V"], ["--version"]])
def test_the_version(words):
    assert run(*words).out.startswith("penstock ")


def test_help_of_a_verb():
    assert run("help", "train").out == run("train", "--help").out


@pytest.mark.parametrize("typed, meant", [
    ("0.1-0.9", "0.1,0.9"), ("0.1:0.5:0.9", "0.1,0.5,0.9"), ("0.1 0.9", "0.1,0.9"), ("[0.1, 0.9]", "0.1,0.9"),
    ("0.1;0.9", "0.1,0.9"), ("low", "0.1,0.5,0.9"), ("10%,90%", "0.1,0.5,0.9"), ("", "0.1,0.5,0.9"),
])  # fmt: skip
@pytest.mark.parametrize("verb", ["predict", "stream", "evaluate"])
def test_quantiles(models, verb, typed, meant):
    message = f"--quantiles must be numbers with commas between them, such as {meant}, not '{typed}'"
    refuses(verb, "series.safetensors", "--quantiles", typed, message=message, status=2, verb=verb, cwd=models)


def test_quantiles_in_percent_and_without_commas(models):
    command = ["predict", "series.safetensors", "series.csv", "--last", "--quantiles"]
    message = "--quantiles must be 0.005 to 0.995, not 10; 10 % is 0.1"
    refuses(*command, "10,90", message=message, status=2, verb="predict", cwd=models)
    message = "one argument too many: '0.9'; a list has commas and no blanks, such as --quantiles 0.1,0.5,0.9"
    refuses(*command, "0.1", "0.9", message=message, status=2, verb="predict", cwd=models)


@pytest.mark.parametrize("option, typed, kind, meant", [
    ("--steps", "1e4", "a whole number", "; did you mean 10000?"), ("--steps", "1,000", "a whole number", "; did you mean 1000?"),
    ("--steps", "10k", "a whole number", "; did you mean 10000?"), ("--steps", "1.5", "a whole number", ""),
    ("--steps", "many", "a whole number", ""), ("--validation-fraction", "20%", "a number", "; did you mean 0.2?"),
    ("--learning-rate", "+0.01", "a number", "; did you mean 0.01?"), ("--seconds", "1m", "a number", ""),
])  # fmt: skip
def test_numbers(models, option, typed, kind, meant):
    message = f"{option} must be {kind}, not '{typed}'{meant}"
    refuses("train", "text.txt", option, typed, message=message, status=2, verb="train", cwd=models)


def test_blanks_between_names(models, tmp_path):
    run("train", models / "series.csv", "--columns", "level, flow", *TINY, "--steps", 1, cwd=tmp_path)
    assert run("info", "model.safetensors", "--json", cwd=tmp_path).json()["inputs"] == ["level", "flow"]


@pytest.mark.parametrize("verb, arguments, hint", [
    ("export", ["series.safetensors", "out.onnx"], "'out.onnx'; did you mean '-o out.onnx'?"),
    ("predict", ["series.safetensors", "series.csv", "next.csv"], "'next.csv'; did you mean '-o next.csv'?"),
    ("generate", ["text.safetensors", "In the"], "'In the'; did you mean '--prompt 'In the''?"),
])  # fmt: skip
def test_an_argument_too_many(models, verb, arguments, hint):
    refuses(verb, *arguments, message=f"one argument too many: {hint}", status=2, verb=verb, cwd=models)


@pytest.mark.parametrize("verb, arguments, message", [
    ("plan", ["--cell", "lstm", "--shape", "1x2x3x4", "--device", "h100"],
     "--device must be cpu, cuda or cuda:N, not 'h100'; '--chip h100' plans for one"),
    ("train", ["text.txt", "--device", "h100"], "--device must be cpu, cuda or cuda:N, not 'h100'; a GPU is 'cuda'"),
    ("train", ["text.txt", "--device", "gpu"],
     '--device must be cpu, cuda or cuda:N with the number of a GPU, not "gpu"; did you mean cuda?'),
    ("train", ["text.txt", "--device", "GPU:1"],
     '--device must be cpu, cuda or cuda:N with the number of a GPU, not "GPU:1"; did you mean cuda:1?'),
    ("train", ["text.txt", "--device", "0"],
     '--device must be cpu, cuda or cuda:N with the number of a GPU, not "0"; did you mean cuda:0?'),
    ("train", ["series.csv", "--device", "cdua"],
     '--device must be cpu, cuda or cuda:N with the number of a GPU, not "cdua"; did you mean cuda?'),
    ("train", ["text.txt", "--device", "mps"],
     '--device must be cpu, cuda or cuda:N with the number of a GPU, not "mps"; Penstock uses NVIDIA GPUs only'),
])  # fmt: skip
def test_devices(models, verb, arguments, message):
    refuses(verb, *arguments, message=message, status=2, verb=verb, cwd=models)


@pytest.mark.parametrize("verb, arguments, message", [
    ("predict", ["series.csv", "series.safetensors"],
     "series.csv is not a model, but series.safetensors is: 'penstock predict series.safetensors series.csv'"),
    ("evaluate", ["series.csv", "series.safetensors"],
     "series.csv is not a model, but series.safetensors is: 'penstock evaluate series.safetensors series.csv'"),
    ("predict", ["series.csv"], "MODEL is missing: 'penstock predict model.safetensors series.csv'"),
    ("predict", ["series.safetensors"],
     "DATA is missing: 'penstock predict series.safetensors FILE', where FILE is a table with the columns level, flow"),
    ("evaluate", ["labelled.safetensors"],
     "DATA is missing: 'penstock evaluate labelled.safetensors FILE', where FILE is a table with the columns x, y"),
    ("predict", ["text.safetensors"], "DATA is missing: 'penstock predict text.safetensors FILE', where FILE is a text"),
    ("predict", ["text.txt", "series.csv"], "text.txt is not a model: 'penstock train text.txt' trains one"),
    ("generate", ["text.txt"], "text.txt is not a model: 'penstock train text.txt' trains one"),
    ("export", ["series.csv"], "series.csv is not a model: 'penstock train series.csv' trains one"),
    ("stream", ["series.csv"], "series.csv is not a model: 'penstock train series.csv' trains one"),
    ("why", ["series.csv"], "series.csv is not a model: 'penstock train series.csv' trains one"),
    ("profile", ["series.csv"], "series.csv is not a model: 'penstock train series.csv' trains one"),
    ("stream", ["series.safetensors", "series.csv"], "series.safetensors is not a model of sound: it reads standard input, "
     "'penstock stream series.safetensors < series.csv'"),
    ("train", ["series.safetensors"],
     "series.safetensors is a model, not data: 'penstock train DATA --init series.safetensors' trains it further"),
    ("train", ["series.safetensors", "series.csv"],
     "series.safetensors is a model, not data: 'penstock train series.csv --init series.safetensors' trains it further"),
])  # fmt: skip
def test_models_and_data(models, verb, arguments, message):
    refuses(verb, *arguments, message=message, status=2, verb=verb, cwd=models)


@pytest.mark.parametrize("verb, arguments, message", [
    ("train", ["--data", "series.csv"], "there is no option '--data': give DATA without an option, 'penstock train DATA... [options]'"),
    ("predict", ["-m", "series.safetensors", "series.csv"],
     "there is no option '-m': give MODEL without an option, 'penstock predict MODEL DATA... [options]'"),
    ("predict", ["series.safetensors", "series.csv", "--horizon", 14], "there is no option '--horizon'; it is an option of 'penstock train'"),
    ("train", ["series.csv", "--temperature", 1], "there is no option '--temperature'; it is an option of 'penstock generate'"),
    ("", ["--train", "series.csv"], "there is no option '--train', did you mean 'train'?"),
    ("train", ["series.csv", "--target", "level"],
     "--target is the sound file that a model of series.csv is to produce; did you mean '--target-columns level'?"),
])  # fmt: skip
def test_options_of_other_verbs_and_programs(models, verb, arguments, message):
    refuses(*filter(None, [verb]), *arguments, message=message, status=2, verb=verb, cwd=models)


def test_a_folder_instead_of_a_model(models, tmp_path):
    (tmp_path / "runs").mkdir()
    message = "MODEL runs is a folder, not a model"
    refuses("generate", "runs", message=message, status=2, verb="generate", cwd=tmp_path)
    shutil.copy(models / "text.safetensors", tmp_path / "runs" / "book.safetensors")
    message = "MODEL runs is a folder, not a file such as runs/book.safetensors"
    refuses("generate", "runs", message=message, status=2, verb="generate", cwd=tmp_path)


def test_a_folder_of_data_where_a_file_is_read(models, tmp_path):
    for name in "ab":
        shutil.copy(models / "series.csv", tmp_path / f"{name}.csv")
    message = (
        f"DATA {tmp_path} is a folder of 2 files, and this model reads one: "
        f"'penstock predict series.safetensors {tmp_path}/a.csv'"
    )
    refuses("predict", "series.safetensors", tmp_path, message=message, status=2, verb="predict", cwd=models)


def test_addresses(models):
    page = "cannot read 'https://example.org/a.csv': No such file or directory"
    first = "; Penstock reads files, not addresses: first: curl -Lo a.csv 'https://example.org/a.csv'"
    refuses("train", "https://example.org/a.csv", message=page + first, status=1, verb="train", cwd=models)
    said = run("predict", "text.safetensors", "s3://bucket/b/text.txt", cwd=models, expect=1).err
    assert said.endswith("; Penstock reads files, not addresses: first: aws s3 cp s3://bucket/b/text.txt .\n")
    said = run("generate", "gs://bucket/m.safetensors", cwd=models, expect=1).err
    assert said.endswith("; Penstock reads files, not addresses: first: gcloud storage cp gs://bucket/m.safetensors .\n")
    said = run("predict", "hf://owner/model", "series.csv", cwd=models, expect=1).err
    assert said.endswith("; Penstock reads files, not addresses: copy it to a folder first\n")
    copy = "Penstock writes files, not addresses: write model.safetensors, then: aws s3 cp model.safetensors s3://b/model.safetensors"
    command = ["train", "text.txt", *TINY, "--steps", 1, "--length", 8]
    for option, more in (("--output", []), ("--checkpoint", ["-o", "x"])):
        said = run(*command, *more, option, "s3://b/model.safetensors", cwd=models, expect=1).err
        assert said == f"penstock train: {option} s3://b/model.safetensors: cannot write: No such file or directory; {copy}\n"
    for option in ("--metrics", "--tensorboard"):
        said = run(*command, "-o", "x", option, "s3://b/c", cwd=models, expect=1).err
        assert "; Penstock writes files, not addresses: write c, then: aws s3 cp c s3://b/c" in said
    assert not (models / "s3:").exists() and not (models / "x").exists()


STORES = ("Aachen", "Bonn", "Kiel")


def long_table(rows, head="date,store,sales"):
    return head + "\n" + "".join(f"{row}\n" for row in rows)


def dates(count=60):
    return [(datetime.date(2023, 1, 1) + datetime.timedelta(i)).isoformat() for i in range(count)]


BY_DATE = [f"{date},{store},{k + math.sin(i / 3):.3f}" for i, date in enumerate(dates()) for k, store in enumerate(STORES)]
BY_STORE = [f"{date},{store},{k + math.sin(i / 3):.3f}" for k, store in enumerate(STORES) for i, date in enumerate(dates())]
OF_TWO = [row for row in BY_DATE if "Kiel" not in row]
HOLES = [row for i, row in enumerate(BY_DATE) if i % 7]


@pytest.mark.parametrize("rows", [BY_DATE, BY_STORE, OF_TWO, HOLES], ids=["by date", "by store", "of two", "with holes"])
def test_a_long_table_names_the_column_of_its_series(tmp_path, rows):
    (tmp_path / "long.csv").write_text(long_table(rows))
    several = 2 if rows is OF_TWO else 3
    first, second = ("Bonn", "Kiel") if rows is HOLES else ("Aachen", "Bonn")
    message = (
        f'long.csv: the table holds {several} series: the dates of column "date" repeat for each "store", such as '
        f'"{first}" and "{second}"; --group store reads each by itself, --calendar none all rows as one series'
    )
    command = ["train", "long.csv", *TINY, "--steps", 1]
    for more in ([], ["--date-column", "date"]):
        refuses(*command, *more, message=message, status=1, verb="train", cwd=tmp_path)
    run(*command, "--group", "store", "--columns", "sales", cwd=tmp_path)
    run(*command, "--calendar", "none", "-o", "one", cwd=tmp_path)


def test_a_column_of_dates_that_is_not_there(models):
    message = '--date-column: series.csv has no column "when", only '
    assert message in run("train", "series.csv", "--date-column", "when", *TINY, cwd=models, expect=2).err


@pytest.mark.parametrize("option", ["--columns", "--target-columns", "--date-column", "--categories"])
def test_columns_with_nearly_this_name(models, option):
    said = run("train", "series.csv", option, "levl", *TINY, cwd=models, expect=2).err
    assert 'has no column "levl", only "day", "level", "flow"; did you mean \'level\'?' in said
    assert "did you mean" not in run("train", "series.csv", option, "zzzzzz", *TINY, cwd=models, expect=2).err


def test_numbers_name_series_where_their_column_says_so(tmp_path):
    rows = [row.replace("Aachen", "1").replace("Bonn", "2").replace("Kiel", "3") for row in BY_DATE]
    (tmp_path / "long.csv").write_text(long_table(rows, "date,Store ID,sales"))
    said = run("train", "long.csv", *TINY, "--steps", 1, cwd=tmp_path, expect=1).err
    assert "; --group 'Store ID' reads each by itself" in said
    rows = [f"{row},{item},{j}" for row in BY_DATE for j, item in enumerate(("tea", "milk"))]
    (tmp_path / "two.csv").write_text(long_table(rows, "date,store,sales,item,price"))
    said = run("train", "two.csv", *TINY, "--steps", 1, cwd=tmp_path, expect=1).err
    assert 'holds 6 series: the dates of column "date" repeat for each "item" of each "store"; put both into one' in said


def test_long_tables_of_years_and_of_rows_in_any_order(tmp_path):
    rows = [f"{1960 + i},{store},{k + i % 5}" for k, store in enumerate(STORES) for i in range(40)]
    (tmp_path / "years.csv").write_text(long_table(rows, "year,store,sales"))
    command = ["train", "years.csv", *TINY, "--steps", 1]
    said = run(*command, cwd=tmp_path, expect=1).err
    assert 'the dates of column "year" repeat for each "store", such as "Aachen" and "Bonn"; --group store reads' in said
    run(*command, "--group", "store", cwd=tmp_path)
    mixed = sorted(BY_DATE, key=lambda row: row[::-1])
    (tmp_path / "mixed.csv").write_text(long_table(mixed))
    said = run("train", "mixed.csv", *TINY, "--steps", 1, "-o", "other", cwd=tmp_path, expect=1).err
    assert '; sort the rows by "date"; then --group store reads each by itself' in said


@pytest.mark.parametrize("head, rows", [
    ("date,hour,load", [f"{date},{h},{h + i % 3}" for i, date in enumerate(dates(20)) for h in range(24)]),
    ("date,shift,load", [f"{date},{s},{len(s) + i % 3}" for i, date in enumerate(dates()) for s in ("early", "late")]),
    ("year,month,load", [f"{1990 + i},{m},{len(m) + i % 3}" for i in range(20) for m in ("January", "May", "July")]),
    ("date,weather,load", [f"{date},{'sun' if i % 3 else 'rain'},{i % 4}" for i, date in enumerate(dates())]),
    ("date,weather,load", [f"{date},{'sun' if i % 3 else 'rain'},{i % 4}" for i, date in enumerate(2 * dates()) if i != 60]),
])  # fmt: skip
def test_dates_that_come_again_for_another_reason(tmp_path, head, rows):
    (tmp_path / "one.csv").write_text(long_table(rows, head))
    run("train", "one.csv", *TINY, "--steps", 1, cwd=tmp_path)


def test_a_long_table_with_a_line_without_a_date(tmp_path):
    (tmp_path / "long.csv").write_text(long_table([*BY_DATE, "Total,Aachen,99"]))
    said = run("train", "long.csv", *TINY, "--steps", 1, cwd=tmp_path, expect=1).err
    assert "--group store reads each by itself" in said
