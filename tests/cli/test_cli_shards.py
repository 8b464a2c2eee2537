"""Texts beyond the memory, in shards, and token ids."""

import array
import json
import struct
import subprocess
import sys

from program import BIN, refuses, run

QUICK = ("--width", 8, "--blocks", 1, "--conv", 0, "--ffn", 0, "--batch", 4, "--length", 16, "-q")


def ids(count, largest=300):
    return array.array("H", [i * i % largest for i in range(count - 1)] + [largest])


def npy(numbers):
    header = f"{{'descr': '<u2', 'fortran_order': False, 'shape': ({len(numbers)},), }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + numbers.tobytes()


def test_a_text_of_10_gb_takes_less_than_200_mb(tmp_path):
    path = tmp_path / "huge"
    with open(path, "wb") as file:
        file.truncate(10 << 30)  # sparse
    command = [BIN, "train", path, "--bytes", "--steps", "3", "--validation-fraction", "1e-5", "--threads", "1", "--json"]
    # By a small process: what a child takes at most includes what its parent had when it was forked.
    measure = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); " \
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", measure, *map(str, command)], cwd=tmp_path, capture_output=True, check=True)
    assert json.loads(done.stdout)["validation"]["scored"] == int((10 << 30) * 1e-5)
    assert int(done.stderr.split()[-1]) < 200 << 10  # kilobytes


def test_token_ids_are_trained_on_and_resumed(tmp_path):
    shards = tmp_path / "shards"
    shards.mkdir()
    for number in range(3):
        (shards / f"{number}.npy").write_bytes(npy(ids(2000)))
        (shards / f"{number}.bin").write_bytes(ids(2000).tobytes())
    options = (*QUICK, "--seed", 3, "--checkpoint", "c", "--checkpoint-every", 0)
    raw = ("--tokens", "uint16", "--vocabulary", 301)
    whole = json.loads(run("train", "shards/*.npy", *options, "--steps", 6, "--json", "-o", "a", cwd=tmp_path).out)
    assert whole["validation"]["bits_per_step"] > 0 and "bits_per_byte" not in whole["validation"]
    other = run("train", "shards/*.bin", *options, *raw, "--steps", 6, "--force", "--json", "-o", "b", cwd=tmp_path)
    assert json.loads(other.out)["validation"] == whole["validation"]
    more = run("train", "shards/*.bin", *options, *raw, "--steps", 8, "--resume", "--force", "--json", "-o", "b", cwd=tmp_path)
    assert json.loads(more.out)["steps"] == 8
    shown = run("train", "shards/*.npy", *QUICK[:-1], "--steps", 2, "--force", cwd=tmp_path).err
    assert "shards/*.npy: 6,000 tokens, ids 0 to 300, the last 5 % held out" in shown and " bits/token" in shown
    assert "tokens: integers 0 to 300" in run("info", "a", cwd=tmp_path).out
    for verb in ("generate", "predict", "evaluate", "stream"):
        given = ["shards/0.bin"] if verb in ("predict", "evaluate") else []
        refuses(verb, "a", *given, cwd=tmp_path, status=2, verb=verb,
                message="a reads token ids, not bytes: in Python, penstock.Session reads and generates them")  # fmt: skip


def test_bad_shards(tmp_path):
    (tmp_path / "a.bin").write_bytes(ids(100).tobytes())
    (tmp_path / "b.bin").write_bytes(ids(100).tobytes()[:-1])
    (tmp_path / "c.txt").write_text("a text\n" * 20)
    (tmp_path / "d.npy").write_bytes(npy(ids(100)))
    raw = ("--tokens", "uint16")
    for files, options, words in [
        (["a.bin", "b.bin"], raw, "b.bin: 199 bytes are no whole number of token ids of 2 bytes each: the file is cut, or "
         "its tokens have another type"),
        (["a.bin"], (), "a.bin: this is binary data (byte 1 is 0), not a text; --bytes reads it anyway; --tokens uint16 "
         "reads token ids of two bytes"),
        (["c.txt", "d.npy"], (), "d.npy holds token ids of 2 bytes each, but c.txt holds a text: train on files of one kind"),
        (["d.npy"], ("--vocabulary", 200), "d.npy: token 16 is 225, outside of 0 to 199; --vocabulary has to be larger than "
         "every id"),
    ]:  # fmt: skip
        refuses("train", *files, *options, *QUICK, "--steps", 2, cwd=tmp_path, status=1, verb="train", message=words)
