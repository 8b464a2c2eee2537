"""A sample of the campaign of readers.py: damaged files are accepted or refused, and nothing else happens."""

import io
import sys

import pytest

pytest.importorskip("penstock", reason="penstock is not installed")

import readers  # noqa: E402


def test_damaged_files():
    table = io.StringIO()
    faults = readers.run(sample=30, mutations=50, out=table)
    sys.stdout.write(table.getvalue())
    assert faults == []


def test_faults_are_found(tmp_path):
    """Readers that misbehave on purpose, each in one way."""
    import os
    import signal
    import time

    import penstock

    def misbehave(path):
        content = path.read_bytes()
        if content == b"":
            raise KeyError("none")
        if len(content) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if len(content) == 2:
            time.sleep(1000)
        if len(content) == 3:
            bytes(2 * readers.LIMIT_BYTES)
        if len(content) == 4:
            raise penstock.BadInput("refused")

    form = readers.Format("bad", "bad", misbehave, checksum=True)
    old, readers.LIMIT_SECONDS = readers.LIMIT_SECONDS, 1
    try:
        counts = readers.campaign(form, bytes(6), lambda content, case: content[:case], range(7), tmp_path)
    finally:
        readers.LIMIT_SECONDS = old
    assert dict(counts) == {"accepted": 2, "refused": 1, "exceptions": 2, "crashes": 1, "hangs": 1}
    assert len(counts.faults) == 5  # the damage that is accepted too
