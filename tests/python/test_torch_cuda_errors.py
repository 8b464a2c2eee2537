"""What penstock.torch refuses on a GPU, and how."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")


def test_devices_are_not_mixed():
    mine = ours.LSTM(4, 8, device="cuda")
    with pytest.raises(RuntimeError, match="same device"):
        mine(torch.randn(3, 2, 4))


def test_too_little_memory_is_said_with_a_remedy():
    layer = ours.LSTM(64, 256, device="cuda")
    x = torch.zeros(64, 512, 64, device="cuda")  # whose tape has 100 MB
    torch.cuda.empty_cache()
    limit = torch.cuda.memory_reserved() + (20 << 20)
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    try:
        with pytest.raises(RuntimeError, match="CUDA out of memory: penstock.torch got no tensor of .* nvidia-smi lists"):
            layer(x)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    layer(x)
