"""Losses of sound against PyTorch's: forward by evaluate(), and gradients by one step of gradient descent."""

import json
import wave

import numpy as np
import pytest

import penstock

torch = pytest.importorskip("torch")

QUIET = 1e-4
LOSSES = ("esr", "esr_dc", "stft", "esr_stft")


def write(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.round(8000 * np.asarray(samples)).astype("<i2").tobytes())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sound")


@pytest.fixture(scope="module")
def data(folder):
    samples = np.random.default_rng(1).normal(size=12000) / 3
    write(folder / "in.wav", samples)
    write(folder / "out.wav", np.tanh(3 * np.roll(samples, 40)) + 0.05)
    try:
        return penstock.open_sound(folder / "in.wav", folder / "out.wav")
    except penstock.Unsupported as missing:
        pytest.skip(str(missing))


def esr(y, target, emphasis):
    def filtered(x):
        return x - emphasis * torch.nn.functional.pad(x, (1, 0))[:-1]

    return filtered(y - target).square().sum() / (filtered(target).square().sum() + QUIET * len(y))


def dc(y, target):
    return (y - target).mean().square() / (target.square().mean() + QUIET)


def stft(y, target):
    parts = []
    for size in (256, 512, 1024):
        window = torch.hann_window(size, dtype=torch.float64)

        def magnitude(x):
            spectrum = torch.stft(x, size, size // 4, window=window, center=False, return_complex=True)
            return spectrum.abs().square().clamp(min=1e-7).sqrt()

        a, b = magnitude(y), magnitude(target)
        quiet = QUIET * window.square().sum() * a.numel()
        parts.append(torch.sqrt((a - b).square().sum() / (b.square().sum() + quiet)) + (a.log() - b.log()).abs().mean())
    return sum(parts) / len(parts)


def loss_of(name, y, target):
    if name == "stft":
        return stft(y, target)
    emphasis = 0.0 if name == "esr" else 0.85
    result = esr(y, target, emphasis)
    if name != "esr":
        result = result + dc(y, target)
    return result + stft(y, target) if name == "esr_stft" else result


def sounds(data, folder):
    """Returns input and target as the data have them: lined up, divided by their root mean square."""

    def read(name, scale):
        with wave.open(str(folder / name)) as file:
            return np.frombuffer(file.readframes(12000), "<i2") / 32768 / scale

    assert data.description["latency"] == 40
    of = data.description
    return read("in.wav", of["inputs"][0]["scale"])[:-40], read("out.wav", of["targets"][0]["scale"])[40:]


def small(data):
    return penstock.Model(data, cell="lstm", width=8, blocks=1, seed=3)


def outputs(model, features):
    return model.forward(features[None, :, None].astype(np.float32))[0].reshape(-1).astype(np.float64)


@pytest.mark.parametrize("name", LOSSES)
def test_values_are_those_of_pytorch(data, folder, name):
    model = small(data)
    features, target = sounds(data, folder)
    held_out = data.held_out_steps
    y = torch.from_numpy(outputs(model, features[-held_out:]))
    want = float(loss_of(name, y, torch.from_numpy(target[-held_out:])))
    found = penstock.evaluate(model, data, batch=1, length=held_out, loss=name).loss
    assert found == pytest.approx(want, rel=1e-5)  # targets and outputs are floats


def bias_of(model, path):
    """Returns the bias of the last layer, whose gradient is the sum of those by the outputs."""
    model.save(path)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    entry = json.loads(content[8 : 8 + size])["head.bias"]
    begin, end = entry["data_offsets"]
    return float(np.frombuffer(content[8 + size + begin : 8 + size + end], "<f4")[0])


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_pytorch(folder, tmp_path, name):
    data = penstock.open_sound(folder / "in.wav", folder / "out.wav")  # at its first window
    model = small(data)
    features, target = sounds(data, folder)
    y = torch.from_numpy(outputs(model, features[:1500])).requires_grad_()
    loss_of(name, y, torch.from_numpy(target[:1500])).backward()
    before = bias_of(model, tmp_path / "before.safetensors")
    # The only step is the last of its schedule, whose rate is 0.05 of the highest.
    penstock.train(model, data, steps=1, batch=1, length=1500, optimizer="sgd", learning_rate=20.0, weight_decay=0.0, warmup=0.0,
                   clip=0.0, loss=name, keep_best=False, progress=False)  # fmt: skip
    slope = before - bias_of(model, tmp_path / "after.safetensors")
    # Floats of the gradients add up, and of the bias before and after.
    tolerance = 1e-5 * float(y.grad.abs().sum()) + 2e-7 * abs(before)
    assert slope == pytest.approx(float(y.grad.sum()), abs=tolerance)


def test_losses_of_sound_are_refused_elsewhere(data, tmp_path):
    model = small(data)
    with pytest.raises(penstock.InvalidArgument, match="length must be at least 1024 for the loss stft"):
        penstock.train(model, data, steps=1, length=512, loss="stft", progress=False)
    with pytest.raises(penstock.Unsupported, match="the loss esr is computed on CPUs only"):
        penstock.evaluate(model, data, loss="esr", device="cuda")
    (tmp_path / "t.csv").write_text("x\n" + "".join(f"{i * i % 17}\n" for i in range(100)))
    series = penstock.open_series(tmp_path / "t.csv")
    with pytest.raises(penstock.InvalidArgument, match="loss esr_dc is for sound"):
        penstock.evaluate(penstock.Model(series, width=4, blocks=1), series, loss="esr_dc")


def test_fit_of_pytorch_refuses_losses_of_sound(data):
    ours = pytest.importorskip("penstock.torch", reason="PyTorch is too old")
    with pytest.raises(penstock.Unsupported, match="penstock.torch.fit has no loss esr: penstock.train has it"):
        ours.fit(small(data), data, steps=1, loss="esr", progress=False)


def test_a_latency_can_be_given(data, folder):
    given = penstock.open_sound(folder / "in.wav", folder / "out.wav", latency=3)
    assert given.description["latency"] == 3
    assert given.reading == ["latency 3 samples (0.375 ms), as given; the last 3 samples of the input are cut; the first 3 samples of the target are cut"]  # fmt: skip
    assert "latency 40 samples (5 ms), by cross-correlation: its peak is" in data.reading[0]
    assert small(data).data["latency"] == 40
