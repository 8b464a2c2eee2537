"""Wrong use: exit status 2 and one line that names the mistake."""

import pytest

from program import TINY, refuses, run

VERBS = ["train", "generate", "predict", "evaluate", "report", "export", "quantize", "import", "stream", "bench", "info", "profile", "csp", "plan", "why",
         "tune", "demo", "completion", "man"]  # fmt: skip


def test_alone_it_prints_its_help_as_an_error():
    result = run(expect=2)
    assert result.out == ""
    assert result.err.startswith("Penstock trains gated recurrent networks")
    for verb in VERBS:
        assert f"\n  {verb} " in result.err


def test_help_has_examples_for_every_verb():
    assert run("--help").out == run(expect=2).err
    for verb in VERBS:
        help_text = run(verb, "--help").out
        assert f"Usage: penstock {verb} " in help_text
        examples = help_text.split("Examples:\n")[1].splitlines()
        assert len([line for line in examples if f"penstock {verb} " in line or line.endswith(verb)]) >= 3
        assert max(map(len, help_text.splitlines())) <= 90
        assert run("help", verb).out == help_text


def test_version():
    assert run("--version").out.startswith("penstock 0.")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["trian"], "there is no command 'trian', did you mean 'train'?"),
        (["sing"], "there is no command 'sing', only " + ", ".join(VERBS)),
        (["--colour"], "there is no option '--colour'"),
    ],
)
def test_misuse_of_the_program(arguments, message):
    refuses(*arguments, message=message, status=2, verb="")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "DATA is missing"),
        (["text.txt", "--widht", 3], "there is no option '--widht', did you mean '--width'?"),
        (["text.txt", "--width"], "--width needs a value"),
        (["text.txt", "--width", "wide"], "--width must be a whole number, not 'wide'"),
        (["text.txt", "--width", "1.5"], "--width must be a whole number, not '1.5'"),
        (["text.txt", "--width", "99999999999999999999"], "--width is out of range: 99999999999999999999"),
        (["text.txt", "--width", 0], "--width must be 1 to 65536, not 0"),
        (["text.txt", "--width", -4], "--width must be 1 to 65536, not -4"),
        (["text.txt", "--blocks", 0], "--blocks must be 1 to 1024, not 0"),
        (["text.txt", "--hidden-size", -1], "--hidden-size must be 0 to 65536, not -1"),
        (["text.txt", "--conv", -1], "--conv must be 0 to 1024, not -1"),
        (["text.txt", "--ffn", 1000], "--ffn must be 0 to 64, not 1000"),
        (["text.txt", "--dropout", 1], "--dropout must be in [0, 1), not 1"),
        (["text.txt", "--norms", "none"], '--norms must be one of all, between, not "none"'),
        (["text.txt", "--learning-rate", "nan"], "--learning-rate must be a finite number, not 'nan'"),
        (["text.txt", "--learning-rate", -1], "--learning-rate must be greater than 0, not -1"),
        (["text.txt", "--batch", 0], "--batch must be at least 1, not 0"),
        (["text.txt", "--length", 0], "--length must be at least 1, not 0"),
        (["text.txt", "--warmup", 2], "--warmup must be 0 to 1, not 2"),
        (["text.txt", "--clip", -1], "--clip must be at least 0, not -1"),
        (["text.txt", "--seed", -1], "--seed must be a whole number from 0, not '-1'"),
        (["text.txt", "--steps", 0], "--steps, --seconds or --epochs must be above 0"),
        (["text.txt", "--optimizer", "adam"], '--optimizer must be one of adamw, sgd, lion, rmsprop, muon, not "adam"; '
         "did you mean 'adamw'?"),
        (["text.txt", "--schedule", "cosin"], '--schedule must be one of cosine, onecycle, plateau, not "cosin"; '
         "did you mean 'cosine'?"),
        (["text.txt", "--patience", 2, "--validation-fraction", 0, "--validate-steps", 5],
         "--patience counts validations on held-out data: hold some out, or set it to 0"),
        (["text.txt", "--schedule", "plateau", "--validation-fraction", 0, "--validate-steps", 5],
         "--schedule plateau goes by the loss of held-out data: hold some out, or choose another schedule"),
        (["text.txt", "--horizon", 3], "--horizon does not apply to a text: text.txt is read as a text"),
        (["text.txt", "--no-changes"], "--no-changes does not apply to a text: text.txt is read as a text"),
        (
            ["labelled.csv", "--no-changes"],
            "--no-changes does not apply to labelled sequences: labelled.csv is read as labelled sequences",
        ),
        (["text.txt", "--modulus", 3], "--modulus does not apply to a text: text.txt is read as a text"),
        (["text.txt", "--validation-fraction", 0.9], "--validation-fraction must be in [0, 0.5], not 0.9"),
        (["series.csv", "--horizon", 0], "--horizon must be 1 to 1000000, not 0"),
        (["series.csv", "--delimiter", "::"], "--delimiter must be one character or 'tab', not '::'"),
        (
            ["labelled.csv", "--length", 9],
            "--length does not apply to labelled sequences: labelled.csv is read as labelled sequences",
        ),
        (["task:chess"], 'task must be one of parity, modular, s3, a5, s5, copying, recall, not "chess"'),
        (["task:partiy"], 'task must be one of parity, modular, s3, a5, s5, copying, recall, not "partiy"; did you mean \'parity\'?'),
        (["task:parity", "--modulus", 3], "--modulus does not apply to the task parity"),
        (["task:modular", "--copy-tokens", 3], "--copy-tokens does not apply to the task modular"),
        (["task:parity", "--task-length", 0], "--task-length must be 1 to 16777216, not 0"),
        (["task:parity", "--epochs", 3], "--epochs needs data that end, and these are generated without end"),
        (["text.txt", "-o", "a", "--checkpoint", "a"], "--output and --checkpoint must be different files, not both a"),
    ],
)
def test_misuse_of_train(models, tmp_path, arguments, message):
    for name in ("text.txt", "series.csv", "labelled.csv"):
        (tmp_path / name).write_bytes((models / name).read_bytes())
    before = sorted(tmp_path.iterdir())
    refuses("train", *arguments, message=message, status=2, verb="train", cwd=tmp_path)
    assert sorted(tmp_path.iterdir()) == before


A_LAYER = ["--shape", "1x2x3x4"]


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("plan", [*A_LAYER, "--chip", "h200", "--threads", 2], "--threads is for a plan on the CPU"),
        ("plan", [*A_LAYER, "--chip", "h200", "--device", "cpu"], "--device cpu and --chip exclude each other: h200 is a GPU"),
        ("why", ["text.safetensors", "--chip", "h200", "--threads", 2], "--threads is for a plan on the CPU"),
        ("profile", ["text.safetensors", "--heads", 2], "--heads is for a layer, not for a model: --cell names one"),
        ("profile", ["text.safetensors", "--layers", 2], "--layers is for a layer, not for a model: --cell names one"),
        ("tune", ["text.safetensors", "--cell", "gru"], "--cell is for a layer, not for a model"),
        ("tune", ["text.safetensors", "--reset"], "--reset is for a layer, not for a model"),
        ("tune", ["text.safetensors", "--compare"], "MODEL and --compare exclude each other"),
        ("tune", ["--heads", 2, "--compare"], "--heads and --compare exclude each other: it has layers of its own"),
        ("info", ["--as", "text"], "--as is for data: 'info FILE --as text'"),
        ("info", ["text.txt", "--precision", "bf16"], "--precision is for a model: 'info MODEL --shape BxT'"),
        ("info", ["text.safetensors", "--device", "cpu"], "--device is for the memory of a model: give --shape BxT, too"),
        ("stream", ["text.safetensors", "--target", "a.wav"], "--target is for sound: 'penstock stream MODEL IN.wav OUT.wav'"),
        ("report", ["text.safetensors", "--missing", "carry"], "--missing is for the data of --data"),
        ("predict", ["text.safetensors", "text.txt", "--seed", 3], "--seed is for built-in tasks, such as task:parity, and DATA is text.txt"),
    ],
)
def test_options_that_do_not_apply_are_refused(models, command, arguments, message):
    refuses(command, *arguments, message=message, status=2, verb=command, cwd=models)


def test_a_cell_that_does_not_exist_is_answered_with_the_list(models):
    result = run("train", "text.txt", "--cell", "lstn", cwd=models, expect=2)
    assert "lstn" in result.err and "minlstm-log" in result.err and result.err.count("\n") == 1


@pytest.mark.parametrize(
    "verb, arguments, message",
    [
        ("generate", [], "MODEL is missing"),
        ("generate", ["text.safetensors", "--bytes", -1], "--bytes must not be negative, not -1"),
        ("generate", ["text.safetensors", "--streams", 0], "--streams must be at least 1, not 0"),
        ("generate", ["text.safetensors", "--temperature", -1], "--temperature must be at least 0, not -1"),
        ("generate", ["text.safetensors", "--top-k", -1], "--top-k must be at least 0, not -1"),
        ("generate", ["text.safetensors", "--top-p", 0], "--top-p must be in (0, 1], not 0"),
        (
            "generate",
            ["text.safetensors", "-p", "a", "--prompt-file", "b"],
            "--prompt and --prompt-file cannot be given both",
        ),
        (
            "generate",
            ["series.safetensors"],
            "this command is for language models, and series.safetensors is a forecast model: "
            "'penstock predict series.safetensors FILE'",
        ),
        (
            "predict",
            ["text.safetensors", "text.txt", "--last"],
            "--last is for forecast models, and text.safetensors is a language model",
        ),
        (
            "predict",
            ["series.safetensors", "series.csv", "--per-byte"],
            "--per-byte is for language models, and series.safetensors is a forecast model",
        ),
        ("predict", ["series.safetensors", "series.csv", "series.csv"], "one argument too many: 'series.csv'"),
        (
            "predict",
            ["text.safetensors", "text.txt", "--keep", "a"],
            "--keep is for models that read the rows of a CSV file",
        ),
        (
            "predict",
            ["series.safetensors", "series.csv", "--keep", "month"],
            'the header of series.csv has no column "month"',
        ),
        ("stream", [], "MODEL is missing"),
        (
            "stream",
            ["series.safetensors", "--bits"],
            "--bits is for language models, and series.safetensors is a forecast model",
        ),
        (
            "generate",
            ["text.safetensors", "--precision", "bf8"],
            '--precision must be one of f32, full, bf16-weights, bf16, f16, tf32, not "bf8"',
        ),
        ("info", ["a", "b"], "one argument too many: 'b'"),
    ],
)
def test_misuse_of_the_other_verbs(models, verb, arguments, message):
    refuses(verb, *arguments, message=message, status=2, verb=verb, cwd=models)


def test_the_last_of_an_option_given_twice_counts(models, tmp_path):
    result = run(
        "train", models / "text.txt", "--width", 99, *TINY, "--steps", 1, "--length", 4, "--json", cwd=tmp_path
    )
    assert result.json()["model"]["width"] == 16
