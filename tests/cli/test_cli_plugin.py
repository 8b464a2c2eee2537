"""A trained model of sound as an LV2 plug-in (examples/lv2), run by lv2apply, which is a host without a screen."""

import math
import os
import pathlib
import shutil
import struct
import subprocess
import wave

import pytest

from program import BIN, run

ROOT = pathlib.Path(__file__).parents[2]
LIBRARY = BIN.parent / "libpenstock_runtime.a"
RATE = 8000

pytestmark = pytest.mark.skipif(
    not (shutil.which("lv2apply") and pathlib.Path("/usr/include/lv2.h").exists() and LIBRARY.exists()),
    reason="needs lv2-dev, lilv-utils and the C runtime beside the program",
)


def write(path, values, rate=RATE):
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(b"".join(round(20000 * value).to_bytes(2, "little", signed=True) for value in values))


def read(path):
    """Returns samples in steps of 16 bits, also those of a file with floats, which "penstock stream" writes."""
    content = path.read_bytes()
    assert content[:4] == b"RIFF" and content[8:16] == b"WAVEfmt "
    kind, begin = int.from_bytes(content[20:22], "little"), content.index(b"data") + 8
    size = int.from_bytes(content[begin - 4 : begin], "little")
    if kind == 3:
        return [32768 * value for (value,) in struct.iter_unpack("<f", content[begin : begin + size])]
    return [value for (value,) in struct.iter_unpack("<h", content[begin : begin + size])]


def tone(count):
    return [0.6 * math.sin(t * t / 4e4) * math.sin(t / 900) for t in range(count)]


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    write(folder / "in.wav", tone(6000))
    write(folder / "out.wav", [math.tanh(3 * value) * 0.8 for value in tone(6000)])
    run("train", "in.wav", "--target", "out.wav", "--width", 8, "--blocks", 1, "--steps", 30, "--quiet", "-o", "amp.safetensors",
        cwd=folder)
    flags = f"-I{ROOT / 'include'} {LIBRARY} -lstdc++"
    subprocess.run(["sh", ROOT / "examples/lv2/build.sh", "amp.safetensors", "amp", "lv2"], cwd=folder, check=True,
                   env={**os.environ, "PENSTOCK_FLAGS": flags})  # fmt: skip
    return folder


def apply(folder, source, *options):
    command = ["lv2apply", "-i", source, "-o", "played.wav", *map(str, options), "urn:penstock:amp"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                          env={**os.environ, "LV2_PATH": f"{folder / 'lv2'}:/usr/lib/lv2"})  # fmt: skip


def test_plays_what_a_stream_answers(plugins):
    music = tone(3000)
    write(plugins / "music.wav", music)
    write(plugins / "quiet_first.wav", [0.0] * (RATE // 2) + music)  # as activate() settles the state
    run("stream", "amp.safetensors", "quiet_first.wav", "wanted.wav", cwd=plugins)
    done = apply(plugins, "music.wav")
    assert done.returncode == 0, done.stderr
    wanted, played = read(plugins / "wanted.wav")[RATE // 2 :], read(plugins / "played.wav")
    assert len(played) == len(wanted) and max(map(abs, wanted)) > 1000
    assert max(abs(mine - theirs) for mine, theirs in zip(played, wanted)) <= 1


def test_controls(plugins):
    write(plugins / "soft.wav", [value / 4 for value in tone(2000)])
    write(plugins / "loud.wav", tone(2000))
    apply(plugins, "loud.wav")
    loud = read(plugins / "played.wav")
    done = apply(plugins, "soft.wav", "-c", "gain", 20 * math.log10(4))
    assert done.returncode == 0, done.stderr
    # The soft file has a quarter of the steps of 16 bits.
    assert max(abs(mine - theirs) for mine, theirs in zip(read(plugins / "played.wav"), loud)) <= 60
    apply(plugins, "loud.wav", "-c", "level", -20)
    assert max(abs(10 * mine - theirs) for mine, theirs in zip(read(plugins / "played.wav"), loud)) <= 6


def test_a_host_at_another_rate_is_refused(plugins):
    write(plugins / "fast.wav", tone(500), rate=48000)
    done = apply(plugins, "fast.wav")
    assert done.returncode != 0
    assert "the model was trained at 8000 Hz; the host runs at 48000 Hz" in done.stderr
