"""Tests with any input take the same examples in every run; `pytest --hypothesis-profile=explore` looks for others."""

import pathlib
import runpy
import signal
import sys
import types

import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "cli"))  # program.py calls the penstock program

try:
    from hypothesis import HealthCheck, settings
except ModuleNotFoundError:
    pass  # the tests that need it say so
else:
    settings.register_profile(
        "repeatable", max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.register_profile("explore", settings.get_profile("repeatable"), max_examples=5000, derandomize=False)
    settings.load_profile("repeatable")


@pytest.fixture
def ctrl_c_is_heard():
    """A shell starts background jobs with SIGINT ignored, and Python then leaves it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def run_script(monkeypatch, tmp_path, capsys):
    """Runs a script as `python script arguments`, in this process: another would import PyTorch again, for seconds."""

    def run(path, *arguments):
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        monkeypatch.syspath_prepend(path.parent)
        monkeypatch.chdir(tmp_path)
        torch = sys.modules.get("torch")
        threads = torch and torch.get_num_threads()
        capsys.readouterr()
        try:
            runpy.run_path(str(path), run_name="__main__")
            status = 0
        except SystemExit as end:
            status = end.code or 0
        if torch:
            torch.set_num_threads(threads)
        printed = capsys.readouterr()
        return types.SimpleNamespace(returncode=status, stdout=printed.out, stderr=printed.err)

    return run
