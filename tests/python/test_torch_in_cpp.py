"""Models exported from PyTorch, in a C++ process that has LibTorch and Penstock's library of ops but no Python."""

import pathlib
import shutil
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")
if shutil.which("g++") is None:
    pytest.skip("there is no C++ compiler", allow_module_level=True)

SOURCE = pathlib.Path(__file__).parents[2] / "examples" / "run_exported_model.cc"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    root = pathlib.Path(torch.__path__[0])
    result = tmp_path_factory.mktemp("program") / "run_exported_model"
    compiler = ["ccache", "g++"] if shutil.which("ccache") else ["g++"]
    objects = result.with_suffix(".o")
    subprocess.run([*compiler, "-std=c++20", "-O0", "-w", f"-I{root}/include", "-c", SOURCE, "-o", objects], check=True)
    libraries = [f"-L{root}/lib", f"-Wl,--no-as-needed,-rpath,{root}/lib", "-ltorch", "-ltorch_cpu", "-lc10", "-ldl"]
    subprocess.run(["g++", objects, "-o", result, *libraries], check=True)
    return result


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = ours.LSTM(3, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.mingru = ours.MinGRU(10, 4, batch_first=True)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.mingru(self.lstm(x)[0])[0])


def run(program, model, x):
    command = [program, ours.library_path, model, *map(str, x.shape)]
    result = subprocess.run(command, input=x.numpy().tobytes(), capture_output=True)
    assert result.returncode == 0, result.stderr.decode()
    return torch.frombuffer(bytearray(result.stdout), dtype=torch.float32)


@pytest.mark.parametrize("kind", ["traced", "packaged"])
def test_runs_without_python(kind, program, tmp_path):
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(3, 7, 3)
    with torch.no_grad():
        expected = model(x)
        if kind == "traced":
            path = tmp_path / "model.pt"
            torch.jit.trace(model, (x,)).save(path)
        else:
            path = tmp_path / "model.pt2"
            sizes = {"x": {0: torch.export.Dim("rows", min=2, max=64), 1: torch.export.Dim("steps", min=2, max=512)}}
            torch._inductor.aoti_compile_and_package(
                torch.export.export(model, (x,), dynamic_shapes=sizes),
                package_path=str(path),
                inductor_configs={"aot_inductor.compile_wrapper_opt_level": "O0"},
            )
    torch.testing.assert_close(run(program, path, x).view_as(expected), expected)
    other = torch.randn(2, 12, 3)
    with torch.no_grad():
        expected = model(other)
    torch.testing.assert_close(run(program, path, other).view_as(expected), expected)


def test_says_what_is_wrong(program, tmp_path):
    for library, reason in ((tmp_path / "nothing.so", b"nothing.so"), (ours.library_path, b"model.pt")):
        command = [program, library, tmp_path / "model.pt", "1", "1", "1"]
        result = subprocess.run(command, input=bytes(4), capture_output=True)
        assert result.returncode == 2 and reason in result.stderr
