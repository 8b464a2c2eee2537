"""Completions and pages of the manual in the programs that they are for, where these are installed."""

import os
import pty
import select
import shutil
import subprocess
import time

import pytest
from program import BIN, PATIENCE, run

#: What is typed before the tab key, and what then stands there.
COMPLETED = [
    ("penstock tr", "penstock train"),
    ("penstock train --optimi", "penstock train --optimizer"),
    ("penstock train --optimizer ad", "penstock train --optimizer adamw"),
    ("penstock train --cell mingru-", "penstock train --cell mingru-log"),
    ("penstock train my", "penstock train my-data.csv"),
    ("penstock info my", "penstock info my-data.csv"),
    ("penstock completion fi", "penstock completion fish"),
    ("penstock man gen", "penstock man generate"),
]


def needs(program):
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my-data.csv").write_text("x\n1\n")
    for shell in ("bash", "zsh", "fish"):
        (tmp_path / f"completion.{shell}").write_text(run("completion", shell).out)
    return tmp_path


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self, command, folder):
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            environment = os.environ | {"HOME": str(folder), "TERM": "dumb", "HISTFILE": "/dev/null"}
            environment["PATH"] = f"{BIN.parent}:{environment['PATH']}"
            os.execvpe(command[0], command, environment)

    def read_until(self, text):
        seen, end = b"", time.monotonic() + PATIENCE
        while text.encode() not in seen:
            ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {text!r} in {seen!r}"
            seen += os.read(self.terminal, 4096)
        return seen.decode(errors="replace")

    def write(self, text):
        os.write(self.terminal, text.encode())

    def run(self, command):
        """Of a command whose output ends with a line that its text does not have."""
        self.write(command + "; echo en''d\n")
        return self.read_until("end\r\n")

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.process, 0)


def completions_on_a_terminal(command, folder, *setup):
    """What becomes of each line by the tab key: it is kept in a file instead of being run."""
    shell = Terminal(command, folder)
    try:
        for line in setup:
            shell.run(line)
        for number, (typed, line) in enumerate(COMPLETED):
            shell.write(typed + "\t")
            shell.read_until(line)  # it may throw away what comes in while it completes
            shell.write(f" > said.{number}\x01echo \n")  # Ctrl-A: to the start of the line
            shell.run("true")
        return [(folder / f"said.{number}").read_text().strip() for number in range(len(COMPLETED))]
    finally:
        shell.close()


@needs("bash")
def test_completion_of_bash(folder):
    setup = ("bind 'set enable-bracketed-paste off'", "source completion.bash")
    said = completions_on_a_terminal(["bash", "--norc", "--noprofile", "-i"], folder, *setup)
    assert said == [line for _, line in COMPLETED]


@needs("bash")
@pytest.mark.parametrize(
    "words, found",
    [
        (["info", "with"], ["with two spaces.csv"]),
        (["info", "with\\ two"], ["with two spaces.csv"]),
        (["info", '"with two'], ["with two spaces.csv"]),
        (["info", "'with two"], ["with two spaces.csv"]),
        (["info", "st"], ["star *.csv"]),
        (["train", "--output", "with"], ["with two spaces.csv"]),
    ],
)
def test_names_with_spaces_in_bash(folder, words, found):
    for name in ("with two spaces.csv", "star *.csv"):
        (folder / name).write_text("x\n1\n")
    script = (
        "source completion.bash; COMP_WORDS=(penstock \"$@\"); COMP_CWORD=$#; _penstock 2>/dev/null; "
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    result = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.splitlines() == found


@needs("zsh")
def test_completion_of_zsh(folder):
    (folder / "functions").mkdir()
    shutil.copy(folder / "completion.zsh", folder / "functions" / "_penstock")
    setup = ("fpath=($PWD/functions $fpath)", "autoload -U compinit", "compinit -u -D", "unsetopt prompt_cr prompt_sp")
    said = completions_on_a_terminal(["zsh", "-f", "-i", "-o", "emacs"], folder, *setup)
    assert said == [line for _, line in COMPLETED]


@needs("zsh")
def test_completion_of_zsh_by_sourcing(folder):
    setup = ("autoload -U compinit", "compinit -u -D", "source completion.zsh")
    said = completions_on_a_terminal(["zsh", "-f", "-i", "-o", "emacs"], folder, *setup)
    assert said == [line for _, line in COMPLETED]


@needs("fish")
def test_completion_of_fish(folder):
    script = "source completion.fish\n" + "".join(f"complete -C '{typed}'; echo ---\n" for typed, _ in COMPLETED)
    result = subprocess.run(
        ["fish", "--no-config", "-c", script], cwd=folder, capture_output=True, text=True, check=True
    )
    for (_, line), said in zip(COMPLETED, result.stdout.split("---\n")[:-1], strict=True):
        assert [word.split("\t")[0] for word in said.splitlines()] == [line.split()[-1]]


@needs("man")
def test_pages_of_the_manual(tmp_path):
    run("man", "--folder", "share/man1", cwd=tmp_path)
    folder = tmp_path / "share" / "man1"
    pages = sorted(page.name for page in folder.iterdir())
    assert "penstock.1" in pages and "penstock-train.1" in pages
    for page in pages:
        result = subprocess.run(["man", "--warnings", "-l", page], cwd=folder, capture_output=True, text=True, check=True,
                                env=os.environ | {"MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""})  # fmt: skip
        assert result.stderr == "", page
        described, _, examples = result.stdout.partition("EXAMPLES AND NOTES\n")
        assert described.startswith(page[:-2].upper()) and "penstock" in examples
        assert max(map(len, result.stdout.splitlines())) <= 80, page
