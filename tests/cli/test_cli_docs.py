"""What README and docs tell people to type: every option is one that the program has, and the README's commands run."""

import pathlib
import re
import shlex

import pytest

from program import TINY, run

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def commands(page):
    """The commands of a page as lists of words, without comments and what other programs do."""
    text = page.read_text().replace("\\\n", " ")
    for line in re.findall(r"^(?: {4,}|\$ |)((?:[A-Z_]+=\S+ |[^`\n]*\| )?penstock [a-z]+(?!:)\b.*)$", text, re.M):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
        lexer.whitespace_split = True
        words = list(lexer)
        words = words[words.index("penstock") + 1 :]
        end = next((i for i, word in enumerate(words) if set(word) <= set("|>")), len(words))
        yield words[:end]


ALL = [pytest.param(words, id=f"{page.name}-{i}") for page in PAGES for i, words in enumerate(commands(page))]
HELP = {}


def options_of(verb):
    if verb not in HELP:
        HELP[verb] = set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", run(verb, "--help").out))
    return HELP[verb]


def test_commands_are_found():
    assert len(ALL) > 30


@pytest.mark.parametrize("words", ALL)
def test_options_exist(words):
    verb, *rest = words
    assert {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)} <= options_of(verb)


def test_the_commands_of_the_readme_run(tmp_path):
    (tmp_path / "data").symlink_to(ROOT / "data")
    ran = []
    for verb, *rest in commands(ROOT / "README.md"):
        stdin = b""
        if verb == "train":
            if "--steps" in rest:
                del rest[rest.index("--steps") : rest.index("--steps") + 2]
            rest += ["--steps", 2, "--quiet", *TINY]
        elif verb == "stream":
            stdin = (ROOT / "data" / "sensors.csv").read_text()
        elif verb == "bench":  # its peers are not here, and its shapes are long
            rest = [*rest[: rest.index("--python")], "--peers", "none", "--shapes", "1x2x3x4", "--seconds", 0.001]
        run(verb, *rest, cwd=tmp_path, stdin=stdin)
        ran.append(verb)
    assert {"train", "generate", "stream", "bench", "info"} <= set(ran)
