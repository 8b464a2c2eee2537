"""What comes from outside is not obeyed: names on a terminal, and variables where the program has more rights."""

import os
import pathlib
import shutil
import subprocess

import pytest
from program import BIN, PATIENCE, TINY, environment, run, start

ESCAPE = "\x1b[31m\x9b1m"


def said(*arguments, cwd, expect=None):
    """Everything that is printed, with no control characters but the ends of lines and tabs."""
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=PATIENCE)
    text = out.decode() + err.decode()
    assert expect in (None, process.returncode), text
    bad = sorted({c for c in text if (ord(c) < 0x20 and c not in "\n\t\r") or 0x7F <= ord(c) < 0xA0})
    assert bad == [], text
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trust")
    rows = "".join(f"2024-01-{day + 1:02},{day % 5}.5,{'uv'[day % 2]}{ESCAPE}\n" for day in range(28))
    (folder / "plain.csv").write_text(f"day,level{ESCAPE},kind{ESCAPE}\n" + rows)
    (folder / f"name{ESCAPE}.csv").write_text((folder / "plain.csv").read_text())
    (folder / "labelled.csv").write_text(
        f"sequence,label,value{ESCAPE}\n"
        + "".join(f"{s},{'ab'[s % 2]}{ESCAPE},{s}.{t}\n" for s in range(12) for t in range(6))
    )
    (folder / "bad.csv").write_text(f"day,level\n1,2\n2,x{ESCAPE}\n3,4{ESCAPE},5\n" * 5)
    (folder / f"p{ESCAPE}.csp").write_text("x in 1..3\nx > 5\n")
    (folder / "p.csp").write_text(f"x in 1..3\nx > {ESCAPE}\n")
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", f"name{ESCAPE}.csv"),
        ("info", "plain.csv"),
        ("info", "labelled.csv"),
        ("info", f"nothing{ESCAPE}"),
        ("train", f"nothing{ESCAPE}.csv"),
        ("train", "bad.csv", "--steps", "1", *TINY),
        ("train", "plain.csv", "--target", f"none{ESCAPE}", *TINY),
        ("predict", f"nothing{ESCAPE}.safetensors", "plain.csv"),
        ("evaluate", "plain.csv", "plain.csv"),
        ("report", f"nothing{ESCAPE}"),
        ("csp", f"p{ESCAPE}.csp"),
        ("csp", "p.csp"),
        ("csp", f"nothing{ESCAPE}"),
        (f"verb{ESCAPE}",),
        ("train", f"--option{ESCAPE}"),
    ],
)
def test_nothing_on_a_terminal_is_obeyed(folder, arguments):
    said(*arguments, cwd=folder)


@pytest.mark.parametrize("data, target", [(f"name{ESCAPE}.csv", f"level{ESCAPE}"), ("labelled.csv", None)])
def test_training_prints_names_that_are_harmless(folder, data, target):
    chosen = ["--target-columns", target] if target else []
    model = f"model{ESCAPE}.safetensors"
    text = said("train", data, *chosen, "--steps", "2", "-o", model, "--force", *TINY, cwd=folder, expect=0)
    assert "\\x1b[31m\\xc2\\x9b1m" in text
    for verb in ("info", "evaluate", "predict"):
        arguments = [model] if verb == "info" else [model, data]
        if verb == "predict":
            arguments += ["-o", "answers.csv", "--force"]  # data themselves are written as they are
        said(verb, *arguments, cwd=folder, expect=0)


def test_variables_are_named_where_they_are_wrong(tmp_path, monkeypatch):
    command = ["plan", "--cell", "gru", "--shape", "1x8x4x4"]
    monkeypatch.setenv("PENSTOCK_PLANS", "/etc")
    found = run(*command, cwd=tmp_path)
    warning = "penstock: warning: PENSTOCK_PLANS: /etc: it is a folder, not a file; plans are made by estimates\n"
    assert found.err == warning
    monkeypatch.delenv("PENSTOCK_PLANS")
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))
    (tmp_path / "plans.json").write_text("{}")
    (tmp_path / "plans.json").chmod(0o666)
    assert 'plans.json: others may write to it (mode 0666): chmod go-w; plans are made by estimates' in run(*command).err
    for threads in ("99999999999", "1025"):
        variables = {**environment(), "OMP_NUM_THREADS": threads}
        result = subprocess.run([BIN, *command], capture_output=True, text=True, env=variables, timeout=60, check=False)
        message = f"OMP_NUM_THREADS must be 1 to 1024, not '{threads}': unset it for all cores"
        assert result.returncode == 2 and message in result.stderr and "--threads" not in result.stderr


def test_variables_are_ignored_where_the_program_has_more_rights(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can make a program of another user")
    program = tmp_path / "penstock"
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o755)
    shutil.copy(BIN, program)
    variables = {**environment(), "PENSTOCK_PLANS": "/nothing/plans.json", "PENSTOCK_ISA": "baseline"}

    def asked():
        command = [program, "plan", "--cell", "gru", "--shape", "1x8x4x4"]
        return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=60, check=False).stderr

    program.chmod(0o755)
    assert 'PENSTOCK_PLANS: /nothing/plans.json: there is nothing to read' in asked()
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    if os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("programs here get no rights")
    assert "PENSTOCK_PLANS" not in asked()
