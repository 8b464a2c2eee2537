"""What writers.py attacks, how it is run, and what must hold afterwards."""

import ctypes
import dataclasses
import os
import resource
import shutil
import signal
import subprocess
import time

from written import like

from program import environment

PATIENCE = 120  # seconds of a run that takes a second
TEMPORARY = ".penstock-"
WITHOUT_ROOT = (1, 2)  # capabilities by which root may write and read whatever permissions say
PR_CAPBSET_DROP = 24


@dataclasses.dataclass
class Ended:
    status: int | None  # None: it hung
    err: str
    killed: bool = False

    def crashed(self):
        return not self.killed and self.status is not None and (self.status < 0 or self.status > 128 or "Traceback" in self.err)


def files(folder):
    """{name: content} of regular files, whatever leads to them, without locks and temporary files."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(TEMPORARY) and path.suffix != ".lock":
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def limits(file_size):
    """What a child does before it runs: a full disk, and root's permissions no more than anybody's."""

    def prepare_child():
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        for capability in WITHOUT_ROOT if os.geteuid() == 0 else ():
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)

    return prepare_child


class Subject:
    """One writer in a folder of its own."""

    def __init__(self, writer, folder):
        self.writer, self.folder, self.out = writer, folder, folder / "out"
        self.target = self.out / writer.target
        self.reset({})
        self.new = self.old = self.written(1)
        began = time.monotonic()
        self.new = self.written(2)
        self.seconds = time.monotonic() - began
        if self.new == self.old:
            before = b"what was there before\n" * 99
            self.old = {name: content + b"\n" if writer.accepts else before for name, content in self.new.items()}
        if writer.accepts is like:
            writer.accepts = like(self.new[writer.target])

    def written(self, v):
        """Lets the writer write. A function does so in this process, where the imports of PyTorch and others are done."""
        if self.writer.function:
            self.writer.function(v)
        else:
            ended = self.run(v=v)
            assert ended.status == 0, f"{self.writer.name}: {ended}"
        return files(self.out)

    def reset(self, content):
        for path in [self.out, *self.out.rglob("*")] if self.out.exists() else []:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        for name, data in content.items():
            (self.out / name).write_bytes(data)
            (self.out / name).chmod(0o600)

    def run(self, v=2, tracer=(), kill=None, file_size=None, umask=-1):
        """Runs the writer; `kill` waits until it is to be killed."""
        for name, source in self.writer.before.items():
            shutil.copy(self.folder / source, self.folder / name)
        command = [*tracer, *(str(word).replace("{v}", str(v)) for word in self.writer.command)]
        with open(self.folder / self.writer.stdin, "rb") as source:
            process = subprocess.Popen(command, cwd=self.folder, stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                       env=environment(), umask=umask, preexec_fn=limits(file_size))  # fmt: skip
        try:
            if kill is not None:
                kill(process)
                process.kill()
            _, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return Ended(None, "")
        return Ended(process.returncode, err.decode(errors="replace"), process.returncode == -signal.SIGKILL)

    # Conditions that must hold after each trial

    def sound(self, name, content, old, killed):
        """Whether a file is a whole one."""
        if content in (old.get(name), self.old.get(name), self.new.get(name)):
            return True
        if self.writer.accepts is None:
            return False
        if self.writer.appends:
            before = old.get(name, b"")
            if not content.startswith(before):
                return False
            content = content.removeprefix(before).removeprefix(b"\n")
        try:
            end = self.writer.accepts(content)
        except Exception:
            return False
        return not self.writer.grows or killed or end == len(content)

    def judge(self, ended, old=None, skip=(), mode=0o600, leftovers=False):
        """What is wrong after a run that began with the files `old`."""
        old = self.old if old is None else old
        found, wrong = files(self.out), []
        if self.writer.whole is not None:
            wrong = [] if skip else self.judge_set(found, ended)
            return wrong if ended.killed or leftovers else wrong + self.left()
        for name in sorted({*old, *self.new, *found} - set(skip)):
            if name not in found:
                wrong += [f"{name} is gone"] * (name in old)
                continue
            if not self.sound(name, found[name], old, ended.killed):
                wrong.append(f"{name} is torn: {len(found[name])} bytes of {len(self.new.get(name, b''))}")
            if ended.status == 0 and not self.writer.side and found[name] == old.get(name) != self.new.get(name):
                wrong.append(f"{name} is old, with status 0")
            if name in old and (self.out / name).stat().st_mode & 0o7777 != mode:
                wrong.append(f"{name} has mode {(self.out / name).stat().st_mode:o}")
        return wrong if ended.killed or leftovers else wrong + self.left()

    def left(self):
        return [f"{path.name} is left" for path in self.out.rglob(TEMPORARY + "*")]

    def judge_set(self, found, ended):
        """What is wrong with files that are one thing together."""
        whole = self.writer.whole
        try:
            held = whole(found)
        except (KeyError, ValueError) as error:
            return [f"no whole set: {error!r}"]
        if held == whole(self.new):
            return []
        return [] if held == whole(self.old) and ended.status != 0 else ["a mixture of old and new files, or status 0"]

    def refused(self, ended):
        return [] if ended.status != 0 or self.writer.side else ["status 0"]

    def trial(self, **how):
        self.reset(self.old)
        ended = self.run(**how)
        return ended, self.judge(ended)
