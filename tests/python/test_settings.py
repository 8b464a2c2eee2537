"""The options of training are declared once, in C++; train() has the same arguments, defaults and words."""

import inspect
import re

import pytest

import penstock
from penstock import _core

SETTINGS = {name: (default, text) for name, default, text, _ in _core.train_settings()}
#: Settings whose default depends on the data, which train() writes as None.
OPEN = {"steps", "seconds", "epochs", "patience", "batch", "length", "learning_rate", "validate_every", "validate_steps"}


def entries():
    """Returns the text of each argument in the docstring of train()."""
    section = inspect.getdoc(penstock.train).split("Args:\n")[1].split("\n\nRaises:")[0]
    texts = {}
    for line in section.splitlines():
        if line.startswith(" " * 8):
            texts[name] += " " + line.strip()
        else:
            name, _, texts[name] = line.strip().partition(": ")
    return texts


def test_defaults_are_those_of_the_library():
    assert len(SETTINGS) > 15
    signature = inspect.signature(penstock.train).parameters
    for name, (default, _) in SETTINGS.items():
        expected = None if name in OPEN or default == "" else default
        assert signature[name].default == expected, name


@pytest.mark.parametrize("name", SETTINGS)
def test_docstring_begins_with_the_text_of_the_help(name):
    assert entries()[name].startswith(SETTINGS[name][1]), name


@pytest.mark.parametrize("name, choices", [(name, choices) for name, *_, choices in _core.train_settings() if choices])
def test_docstring_has_every_choice(name, choices):
    assert re.findall(r'``"(\w+)"``', entries()[name]) == choices


def test_error_has_the_fields_of_the_setting(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question\n" * 50)
    data = penstock.open_text(text)
    with pytest.raises(penstock.errors.InvalidArgument, match="clip must be at least 0, not -1") as raised:
        penstock.train(penstock.Model(data, width=8, blocks=1), data, steps=1, clip=-1.0, progress=False)
    error = raised.value
    assert (error.argument, error.value, error.allowed, error.remedy) == ("clip", "-1", "at least 0", None)
    with pytest.raises(penstock.errors.InvalidArgument, match="steps must be at least 0, not -3") as raised:
        penstock.train(penstock.Model(data, width=8, blocks=1), data, steps=-3, progress=False)
    assert raised.value.argument == "steps", "the name in Python of max_steps"


def test_error_of_a_file_has_a_remedy(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a\n" + "".join(f"{i % 7}\n" for i in range(40)) + "\"\"\n" + "1\n2\n")
    with pytest.raises(penstock.errors.BadInput, match="the value is missing; the option 'missing'") as raised:
        penstock.open_series(table)
    assert raised.value.argument is None
    assert raised.value.remedy == "the option 'missing' (carry, interpolate or mask) accepts such values"
