"""Attacks every writer of the program and of the Python package, and prints a table of what comes of it.

    python tests/faults/writers.py                     # all writers, 200 kills each
    python tests/faults/writers.py --only stream --kills 20
    python tests/faults/writers.py --sample 5          # so many trials of each writer

Each trial begins with a whole old file of mode 0600. It counts as lost if the file is afterwards neither the old one nor
the new one, byte for byte. Where the bytes differ from run to run, its reader must accept the new one; a log may end in a
torn line after a kill. It also counts as lost if a run ended with status 0 and its file is not new, if permissions, links
or other files changed, or if a temporary file is left by a run that was not killed.
"""

import argparse
import collections
import contextlib
import fcntl
import functools
import os
import pathlib
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

from judged import TEMPORARY, Ended, Subject
from written import prepare, program_writers, python_writers

CALLS = "openat,write,pwrite64,fsync,rename,fchmod,fchown,ftruncate,close,flock,unlink,unlinkat,mkdir"
STRACE = ["strace", "-f", "--seccomp-bpf", "-qq"]
FAULTS = ("full disk", "kill", "kill in a call", "failing call", "torn file", "planted link", "link", "FIFO, device", "permissions")
drawn = random.Random(1)


class Attack(Subject):
    """Faults of each kind: functions that yield trials, which return how a run ended and what is wrong."""

    def full_disk(self, _):
        whole = len(self.new[self.writer.target]) if self.writer.target else max(map(len, self.new.values()))
        for size in (0, whole // 2, whole - 1):
            yield lambda size=size: self.trial(file_size=size)

    def kill(self, count):
        for _ in range(count):
            yield self.kill_forked if self.writer.function else lambda: self.trial(kill=self.moment)

    def moment(self, process):
        """Waits for a random moment: of the whole run, or, every other time, of the writing."""
        if self.writer.grows or drawn.random() < 0.5:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(drawn.uniform(0, self.seconds))
            return
        while process.poll() is None and not any(name.startswith(TEMPORARY) for name in os.listdir(self.out)):
            pass
        time.sleep(drawn.uniform(0, 0.002))

    def kill_forked(self):
        """Kills a process that writes the old and the new file in turn, at a random moment."""
        self.reset(self.old)
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                for turn in range(1 << 20):
                    self.writer.function(1 + turn % 2)
                    os.write(theirs, b".")
            os._exit(1)
        os.close(theirs)
        os.read(ours, 1)
        os.close(ours)
        time.sleep(drawn.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        ended = Ended(os.waitstatus_to_exitcode(status), "", killed=True)
        if ended.status != -signal.SIGKILL:
            return ended, ["the writer ended by itself"]
        return ended, self.judge(ended)

    @functools.cached_property
    def system_calls(self):
        """(name, which of that name) of the calls that the process makes while it writes."""
        if shutil.which("strace") is None:
            return []
        trace = self.folder / "trace"
        self.reset(self.old)
        self.run(tracer=[*STRACE, "-o", trace, "-e", f"trace={CALLS}"])
        seen, calls, begin = collections.Counter(), [], None
        for line in trace.read_text(errors="replace").splitlines():
            match = re.match(r"(\d+) +(\w+)\((.*)", line)
            if match is None:
                continue
            seen[match[1], match[2]] += 1
            calls.append((match[2], seen[match[1], match[2]]))
            writes = f"out/{TEMPORARY}" in match[3] or ("out/" in match[3] and "O_WRONLY" in match[3])
            if writes:
                begin = len(calls) - 1 if begin is None else begin
                end = len(calls)
        return [] if begin is None else calls[begin : end + 8]  # until the folder is synced and closed

    def injected(self, count, effect):
        """Lets a call kill the process, or fail; after a kill the next run must work, and leave nothing."""
        for name, which in drawn.sample(self.system_calls, min(count, len(self.system_calls))):
            tracer = [*STRACE, "-o", os.devnull, "-e", f"trace={name}", "-e", f"inject={name}:{effect}:when={which}"]

            def attempt(tracer=tracer, leftovers=name.startswith("unlink")):
                self.reset(self.old)
                ended = self.run(tracer=tracer)
                wrong = self.judge(ended, leftovers=leftovers)
                if ended.killed:
                    again = self.run()
                    wrong += [f"the next run ended with {again.status}: {again.err}"] * (again.status != 0) + self.left()
                return ended, wrong

            yield attempt

    def kill_in_a_call(self, count):
        return self.injected(count, "signal=KILL")

    def failing_call(self, count):
        return self.injected(count, "error=EIO")

    def torn_file(self, _):
        """A temporary file of an earlier crash lies about, or half of a file."""
        if not self.writer.target:
            return
        # Pictures of the other run, which have names of their own, are not written again.
        again = {name for name, content in self.old.items() if self.new.get(name) != content}
        half = {name: content[: len(content) // 2] if name in again else content for name, content in self.old.items()}

        def stale():
            self.reset(self.old)
            left = self.out / f"{TEMPORARY}{self.target.name}-0123456789abcdef"
            left.write_bytes(b"half of a fi")
            ended = self.run()
            return ended, self.judge(ended, leftovers=self.writer.grows)

        def torn():
            self.reset(half)
            ended = self.run()
            return ended, self.judge(ended, old=half)

        yield stale
        yield torn

    def planted_link(self, _):
        """Links lie where a careless writer would write first."""
        if not self.writer.target:
            return
        secret = self.folder / "secret"
        for name in ("{}.tmp", TEMPORARY + "{}-0123456789abcdef", "{}.lock"):

            def attempt(name=name):
                self.reset(self.old)
                secret.write_bytes(b"precious")
                (self.out / name.format(self.target.name)).symlink_to("../secret")
                ended = self.run()
                wrong = self.judge(ended, skip=[name.format(self.target.name)], leftovers=True)
                return ended, wrong + ["a planted link was followed"] * (secret.read_bytes() != b"precious")

            yield attempt

    def link(self, _):
        """The file is a link to another, to one that is not there, or to a folder."""
        if not self.writer.target:
            return
        behind, name = self.folder / "behind", self.writer.target

        def attempt(make, skip, check):
            self.reset(self.old)
            shutil.rmtree(behind, ignore_errors=True)
            behind.unlink(missing_ok=True)
            make()
            self.target.symlink_to("../behind")
            ended = self.run()
            wrong = self.judge(ended, skip=skip) + ["the link is gone"] * (not self.target.is_symlink())
            return ended, wrong + check(ended)

        def behind_it(ended):
            if not behind.exists():
                return ["nothing is behind the link"] * (ended.status == 0 and not self.writer.side)
            return ["the file behind the link is torn"] * (not self.sound(name, behind.read_bytes(), {}, ended.killed))

        yield lambda: attempt(lambda: self.target.rename(behind), [], lambda ended: [])
        yield lambda: attempt(self.target.unlink, [name], behind_it)
        yield lambda: attempt(lambda: (self.target.unlink(), behind.mkdir()), [name],
                              lambda ended: self.refused(ended) + ["something is in the folder"] * bool(list(behind.iterdir())))  # fmt: skip

    def fifo_device(self, _):
        if not self.writer.target:
            return
        name = self.writer.target

        def fifo():
            self.reset(self.old)
            self.target.unlink()
            os.mkfifo(self.target)
            reader = os.open(self.target, os.O_RDWR | os.O_NONBLOCK)
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
            ended = self.run()
            with contextlib.suppress(BlockingIOError), open(reader, "rb", buffering=0) as file:
                content = file.read(1 << 20) or b""
            wrong = self.judge(ended, skip=[name]) + ["the FIFO is gone"] * (not stat.S_ISFIFO(self.target.stat().st_mode))
            if content == b"":
                return ended, wrong + self.refused(ended)
            return ended, wrong + ["the FIFO got a torn file"] * (not self.sound(name, content, {}, ended.killed))

        def device():
            self.reset(self.old)
            self.target.unlink()
            self.target.symlink_to("/dev/full")
            ended = self.run()
            wrong = self.judge(ended, skip=[name]) + self.refused(ended)
            return ended, wrong + ["the link is gone"] * (not self.target.is_symlink())

        yield fifo
        yield device

    def permissions(self, _):
        name = self.writer.target

        def protected_file():
            self.reset(self.old)
            self.target.chmod(0o444)
            ended = self.run()
            others = [other for other in {*self.old, *self.new} if other != name]
            wrong = ["a protected file was replaced"] * (self.target.read_bytes() != self.old[name])
            wrong += ["its mode is another"] * (self.target.stat().st_mode & 0o7777 != 0o444)
            return ended, wrong + self.refused(ended) + self.judge(ended, skip=[name, *others])

        def protected_folder():
            self.reset(self.old)
            self.out.chmod(0o555)
            ended = self.run()
            return ended, self.judge(ended) + self.refused(ended)

        def new_file():
            self.reset({})
            ended = self.run(umask=0o027)
            modes = {path.stat().st_mode & 0o7777 for path in self.out.rglob("*") if path.suffix != ".lock"}
            return ended, self.judge(ended, old={}) + [f"modes {modes}, not 0640"] * (modes - {0o640} != set())

        if name:
            yield protected_file
        yield protected_folder
        yield new_file


def attack(writer, folder, faults, kills, calls, sample):
    """({fault: trials}, {outcome: trials}, what was wrong)"""
    attacked = Attack(writer, folder)
    counts = {"kill": kills, "kill in a call": calls, "failing call": calls}
    trials = []
    for fault in faults if sample is None else drawn.sample(faults, len(faults)):
        trials += [(fault, trial) for trial in getattr(attacked, re.sub(r"\W+", "_", fault).lower())(counts.get(fault, 0))]
        if sample is not None and len(trials) >= sample:
            break
    if sample is not None and sample < len(trials):
        trials = drawn.sample(trials, sample)
    outcomes, wrong = collections.Counter(), []
    for fault, trial in trials:
        ended, lost = trial()
        kinds = ["lost"] * bool(lost) + ["crashed"] * ended.crashed() + ["hung"] * (ended.status is None)
        outcomes.update(kinds)
        if kinds:
            wrong.append(f"{writer.name}, {fault}: {', '.join(kinds + lost)}; status {ended.status}: {ended.err[-300:]}")
    attacked.reset({})
    return collections.Counter(fault for fault, _ in trials), outcomes, wrong


def campaign(writers, faults=FAULTS, kills=200, calls=40, sample=None, out=sys.stdout):
    """Prints the table, and returns what was wrong."""
    print("| writer | " + " | ".join(FAULTS) + " | lost | crashed | hung |", file=out)
    print("|---" + "|---:" * (len(FAULTS) + 3) + "|", file=out)
    wrong, sums, here = [], collections.Counter(), os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder)
        os.chdir(folder)  # where the functions of Python writers find their models
        try:
            for writer in writers:
                trials, outcomes, complaints = attack(writer, folder, faults, kills, calls, sample)
                print_row(writer.name, trials | outcomes, out)
                sums.update(trials | outcomes)
                wrong += complaints
                for complaint in complaints:
                    print(complaint, file=sys.stderr, flush=True)
        finally:
            os.chdir(here)
    print_row("sum", sums, out)
    return wrong


def print_row(name, counts, out):
    print(f"| {name} | " + " | ".join(f"{counts[column]:,}" for column in (*FAULTS, "lost", "crashed", "hung")) + " |", file=out, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="at random moments, of each writer [200]")
    parser.add_argument("--calls", type=int, default=40, help="system calls of each writer that kill, and that fail [40]")
    parser.add_argument("--sample", type=int, help="trials of each writer, of kinds of faults that are drawn [all]")
    parser.add_argument("--only", default="", help="writers whose names contain this")
    arguments = parser.parse_args()
    writers = [writer for writer in program_writers() + python_writers() if arguments.only in writer.name]
    wrong = campaign(writers, kills=arguments.kills, calls=arguments.calls, sample=arguments.sample)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
