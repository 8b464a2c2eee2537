"""How the tests call the penstock program, and the data that they give it.

The program is PENSTOCK_BIN, or the one in build/release. Without it every test fails; none is skipped.
"""

import fcntl
import json
import math
import mmap
import os
import pathlib
import pty
import resource
import signal
import struct
import subprocess
import termios

BIN = pathlib.Path(
    os.environ.get("PENSTOCK_BIN", pathlib.Path(__file__).parents[2] / "build" / "release" / "penstock")
).absolute()

# Seconds without an end after which a run counts as hung: many times what any takes on a machine with other work.
PATIENCE = 300

# Small enough for a test to take a second, even where the machine is busy.
TINY = ["--width", "16", "--blocks", "1", "--batch", "4", "--threads", "1"]


def environment():
    return {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm", "OMP_NUM_THREADS": "2",
            "OMP_DYNAMIC": "false", "SOURCE_DATE_EPOCH": "0"}  # fmt: skip


def start(*arguments, cwd=".", file_size=None, memory=None, **options):
    """Starts the program; `file_size` limits what it may write into one file, which then behaves like a full disk, and
    `memory` the bytes of addresses that it may have."""
    assert BIN.exists(), f"there is no program {BIN}: build it, or say where it is in PENSTOCK_BIN"

    def prepare():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell may have had it ignored for all of us
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    command = [str(word) for word in (BIN, *arguments)]
    return subprocess.Popen(command, cwd=cwd, env=environment(), preexec_fn=prepare, **pipes)


class Result:
    def __init__(self, status, out, err):
        self.status = status
        self.bytes = out
        self.out = out.decode(errors="replace")
        self.err = err.decode()

    def json(self):
        return json.loads(self.out)

    def json_lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


def run(*arguments, cwd=".", stdin=b"", expect=0, timeout=PATIENCE, **options):
    """Runs the program to its end and checks its exit status."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    process = start(*arguments, cwd=cwd, stdin=subprocess.PIPE, **options)
    out, err = process.communicate(data, timeout=timeout)
    result = Result(process.returncode, out, err)
    assert result.status == expect, f"status {result.status}, not {expect}: {result.err}"
    return result


def read_terminal(columns, *arguments, cwd="."):
    """Everything that the program writes to a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = start(*arguments, cwd=cwd, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # how Linux says that the other side is closed
            break
        text += part
    os.close(ours)
    assert process.wait(PATIENCE) == 0
    return text.decode()


class FullPipe:
    """A pipe that takes `room` bytes and one write more, or nothing. A program that writes more into it waits until it is read, so a
    run is still at work when a test interrupts it, however busy the machine is."""

    def __init__(self, room=None):
        self.ours, self.theirs = os.pipe()
        size = fcntl.fcntl(self.ours, fcntl.F_SETPIPE_SZ, 4 * mmap.PAGESIZE)
        # poll() says that it may be written while one of its pages is free, however little is in the others.
        self.filler = bytes(size if room is None else size - mmap.PAGESIZE - room)
        os.write(self.theirs, self.filler)
        self.path = f"/proc/{os.getpid()}/fd/{self.theirs}"

    def written(self):
        """How many bytes of the program's it holds."""
        return struct.unpack("i", fcntl.ioctl(self.ours, termios.FIONREAD, bytes(4)))[0] - len(self.filler)

    def rest(self):
        """All that is written until the program ends."""
        os.close(self.theirs)
        with open(self.ours, "rb") as file:
            return file.read().removeprefix(self.filler)

    def close(self):
        os.close(self.theirs)
        os.close(self.ours)


def refuses(*arguments, message, status, verb, **options):
    """The program must end with this status, print nothing, and say exactly this in one line."""
    result = run(*arguments, expect=status, **options)
    hint = f" (see 'penstock{verb and ' ' + verb} --help')" if status == 2 else ""
    assert result.err == f"penstock{verb and ' ' + verb}: {message}{hint}\n"
    assert result.out == ""
    return result


TEXT = b"In the beginning was the word, and the word was with the maker of words.\n" * 60

SERIES = "day,level,flow\n" + "".join(
    f"{i},{10 + 5 * math.sin(i / 3):.3f},{2 + math.cos(i / 3):.3f}\n" for i in range(300)
)


def labelled_csv(count=40):
    """Rising and falling sequences of different lengths."""
    rows = ["sequence,label,x,y"]
    for i in range(count):
        for t in range(4 + i % 5):
            x = t if i % 2 else -t
            rows.append(f"s{i},{'up' if i % 2 else 'down'},{x + 0.1 * (i % 3)},{1 + t % 2}")
    return "\n".join(rows) + "\n"


LABELLED = labelled_csv()

#: h = tanh(W x + R h + p h) with a learnt vector p.
CELL = {
    "format": "penstock-cell",
    "version": 1,
    "name": "leaky-elman",
    "kind": "dense",
    "gates": 1,
    "states": ["h"],
    "learnt": [{"name": "p", "initial": 0.5}],
    "nodes": [
        {"op": "input", "index": 0},
        {"op": "recurrent", "index": 0},
        {"op": "state", "index": 0},
        {"op": "learnt", "index": 0},
        {"op": "add", "of": [0, 1]},
        {"op": "multiply_add", "of": [2, 3, 4]},
        {"op": "tanh", "of": [5]},
    ],
    "outputs": [6],
}
