"""What penstock.jax refuses, and its handlers: their registration, and the code for GPUs on a machine without one."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402
from jax_checks import LENGTHS, MASK, ON_CPUS, ROOT, assert_alike, make, mixed  # noqa: E402

import penstock  # noqa: E402
import penstock.jax as pj  # noqa: E402

pytestmark = ON_CPUS
BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build" / "release"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": jnp.zeros((3, 5, 2))}, r"x must be \[B, T, I = 3\] or \[T, I\] of a single row"),
        ({"x": jnp.zeros((3, 0, 3))}, r"without empty axes, not \[3, 0, 3\]"),
        ({"x": jnp.zeros((3, 5, 3), int)}, "x must be float32, float64, bfloat16 or float16, not int64"),
        ({"state": jnp.zeros((1, 2, 4))}, r"states must be floats \[1, 3, 4\], not float64 \[1, 2, 4\]"),
        ({"state": (jnp.zeros((1, 3, 4)),) * 2}, "state must be one array, not 2"),
        ({"lengths": [1, 2]}, r"lengths must be \[B\] = \[3\] integers, not int64 \[2\]"),
        ({"lengths": [1.0, 2.0, 3.0]}, r"lengths must be \[B\] = \[3\] integers, not float64"),
        ({"reset_mask": jnp.zeros((5, 3), bool)}, r"reset_mask must be bool \[3, 5\], not bool \[5, 3\]"),
        ({"reset_mask": jnp.zeros((3, 5))}, r"not float64 \[3, 5\]: reset_mask != 0 is bool"),
        ({"weights": [jnp.zeros((12, 3))]}, "weights must be a dict of arrays by name, .*, not list"),
        ({"cell": "lstm"}, r"weight_hh_l0 must be \[12, 3\], not \[12, 4\]: .* 4 \* H with H = 3 for the cell lstm"),
        ({"reset_mask": MASK[0], "x": jnp.zeros((5, 3)), "reset_to": jnp.zeros((1, 3, 4))}, r"reset_to must be floats \[1, 4\] or \[1, 5, 4\]"),
        ({"reset_to": jnp.zeros((1, 4))}, "reset_to needs reset_mask"),
        ({"reset_mask": MASK, "lengths": LENGTHS, "reset_to": jnp.zeros((1, 4))}, "one direction and no lengths"),
        ({"reset_mask": MASK, "reset_to": jnp.zeros((3, 4))}, r"\[1, 4\] or \[1, 3, 4\] or \[1, 3, 5, 4\], not float64 \[3, 4\]"),
        ({"reset_mask": MASK, "reset_to": (jnp.zeros((1, 4)),) * 2}, "reset_to must be one array, not 2"),
        ({"reset_mask": MASK.T, "reset_to": jnp.zeros((1, 4)), "time_major": True}, r"reset_mask must be bool \[3, 5\]"),
        ({"every_state": True}, "every_state is for cells with more states than the output, not for gru"),
        ({"cell": "lstn"}, "lstn"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    x, weights = make("gru")
    with pytest.raises(penstock.InvalidArgument, match=message):
        pj.recurrent(**{"x": x, "weights": weights, "cell": "gru"} | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight_hh_l0": jnp.zeros((12, 5))}, r"weight_hh_l0 must be \[12, 4\], not \[12, 5\]"),
        ({"weight_ih_l0": jnp.zeros((11, 3))}, r"weight_ih_l0 must be \[3 \* H, I\], not \[11, 3\]"),
        ({"weight_ih_l1": jnp.zeros((12, 4))}, "weights lack bias_hh_l1"),
        ({"weight_hr_l0": jnp.zeros((2, 4))}, "named like PyTorch's, such as weight_ih_l0_reverse, not 'weight_hr_l0'"),
    ],
)
def test_wrong_weights_are_refused(change, message):
    x, weights = make("gru")
    with pytest.raises(penstock.InvalidArgument, match=message):
        pj.gru(x, weights | change)


def test_wrong_sizes_of_new_weights_are_refused():
    sizes = {"input_size": 3, "hidden_size": 4, "num_layers": 1, "num_heads": 1}
    for name in sizes:
        for value in (0, 3.0, "4"):
            with pytest.raises(penstock.InvalidArgument, match=f"{name} must be an integer of at least 1, not {value!r}"):
                pj.initial_weights(jax.random.key(0), "gru", **sizes | {name: value})


def test_words_of_other_libraries_lead_to_ours():
    x, weights = make("gru")
    for word in ("hx", "h0", "initial_state"):
        with pytest.raises(TypeError, match=f"{word}'.* did you mean 'state'"):
            pj.gru(x, weights, **{word: jnp.zeros((1, 3, 4))})


def test_wrong_scans_are_refused():
    a = jnp.ones((3, 5, 4))
    for call, message in (
        (lambda: pj.scan(a, a[:, :4]), r"not \[3, 5, 4\] and \[3, 4, 4\]"),
        (lambda: pj.scan(a, a, a[:, 0, :2]), r"h0 must be \[B, C\] = \[3, 4\], not \[3, 2\]"),
        (lambda: pj.scan(a.astype(int), a.astype(int)), "not int64"),
        (lambda: pj.scan(a, a, reset_mask=a > 0), r"reset_mask must be bool \[3, 5\]"),
    ):
        with pytest.raises(penstock.InvalidArgument, match=message):
            call()


@pytest.mark.parametrize(
    ("dones", "options", "message"),
    [
        (MASK * 1.0, {}, r"dones must be bool \[B, T\] or \[T\], not float64 \[3, 5\]"),
        (MASK[None], {"time_major": True}, r"dones must be bool \[T, B\] or \[T\], not bool \[1, 3, 5\]"),
        (MASK, {"first": MASK[0]}, r"first must be bool \[3\], a flag for each row, not bool \[5\]"),
        (MASK, {"first": MASK[0], "time_major": True, "extra": 1}, "extra"),
        (MASK.T, {"first": MASK[:, 0] * 1, "time_major": True}, r"first must be bool \[3\], a flag for each row, not int64 \[3\]"),
        (MASK[0], {"first": MASK[:1, 0]}, r"first must be bool \[\], a flag for each row, not bool \[1\]"),
    ],
)
def test_wrong_dones_are_refused(dones, options, message):
    with pytest.raises((penstock.InvalidArgument, TypeError), match=message):
        pj.episode_starts(dones, **options)


@pytest.mark.parametrize("length", [-1, 6])
def test_lengths_that_only_the_handler_sees_are_refused(length):
    x, weights = make("gru")
    layer = jax.jit(lambda lengths: pj.gru(x, weights, lengths=lengths)[0])
    with pytest.raises(Exception, match=f"lengths must be 0 to T = 5, not {length}"):
        jax.block_until_ready(layer(jnp.array([5, length, 0])))
    assert np.isfinite(layer(LENGTHS)).all()  # the process goes on


def test_calls_of_the_handlers_with_lying_shapes_are_refused():
    x, weights = make("gru", np.float32)
    arrays = [x, *weights.values()]
    numbers = [3, 4, 1, 1, 0, 2, 0, 0, 3, 5, 0, 0, 0, 1, 0, 0, -1, 0, 0]
    results = [((3, 5, 4), np.float32), ((1, 1, 3, 4), np.float32)]
    packed = [*numbers[:8], 15, 5, 15, *numbers[11:]]
    parts = {"numbers": packed, "results": [((15, 4), np.float32), ((1, 1, 15, 4), np.float32)]}
    flat, offsets = x.reshape(15, 3), jnp.stack([jnp.arange(16, dtype=np.int32), jnp.zeros(16, np.int32)], 1)

    def call(arrays=arrays, results=results, numbers=numbers, cell="gru", target="penstock_recurrent"):
        shapes = [jax.ShapeDtypeStruct(*each) for each in results]
        return jax.block_until_ready(
            jax.ffi.ffi_call(target, shapes)(*arrays, cell=cell, numbers=np.array(numbers, np.int64))
        )

    assert_alike(call()[0], pj.gru(x, weights)[0])
    for change, message in (
        ({"arrays": [x[:, :4], *arrays[1:]]}, r"x must be \[3, 5, 3\], not \[3, 4, 3\]"),
        ({"arrays": [*arrays[:2], arrays[2][:6], *arrays[3:]]}, "weight_hh_l0|weights"),
        ({"arrays": [x.astype(np.float64), *arrays[1:]]}, "f64"),
        ({"results": [((3, 5, 3), np.float32), results[1]]}, r"y must be \[3, 5, 4\], not \[3, 5, 3\]"),
        ({"arrays": arrays[:-1]}, "too few arguments: 4"),
        ({"results": results[:1]}, "too few results: 1"),
        ({"arrays": [*arrays, x]}, "must have 5 arguments and 2 results, not 6 and 2"),
        ({"numbers": numbers[:-1]}, "the attribute 'numbers' must be 19 integers"),
        ({"cell": "gro"}, "gro"),
        ({"numbers": [*numbers[:-1], 1], "results": [*results, ((10,), np.uint8)]}, r"the tape must be u8 \["),
        ({"numbers": [*numbers[:-3], 0, 0, 0]}, None),  # a GPU's number: the handler of CPUs ignores it
        ({"target": "penstock_scan"}, "numbers"),
        ({"numbers": [*numbers[:15], 2, *numbers[16:]]}, "restarts other than zeros need the flag reset"),
        ({"numbers": [*numbers[:15], 9, *numbers[16:]]}, "array::at"),
        ({"numbers": packed}, r"too few arguments: 5"),
        (parts | {"arrays": [flat, *arrays[1:], offsets[:9]]}, r"the offsets of packed rows must be i32 \[16, 2\]"),
        (parts | {"arrays": [x, *arrays[1:], offsets]}, r"x must be \[15, 3\], not \[3, 5, 3\]"),
        (parts | {"arrays": [flat, *arrays[1:], offsets.at[3, 0].set(1)]}, "batch.cu_seqlens must not fall"),
    ):
        if message is None:
            assert_alike(call(**change)[0], call()[0])
            continue
        with pytest.raises(Exception, match=message):
            call(**change)


def export_for(platform, dtype=np.float32):
    """Returns the text of a training pass of a stack and of a scan, compiled for a platform."""
    x, weights = make("gru", dtype)

    def loss(x):
        return mixed((pj.gru(x, weights, lengths=LENGTHS, reset_mask=MASK), pj.scan(x, x)))

    return jax.jit(jax.grad(loss)).trace(x).lower(lowering_platforms=(platform,)).as_text()


def test_other_devices_are_refused_in_words():
    for platform, dtype, message in (
        ("tpu", np.float32, "penstock.jax runs on CPUs and on NVIDIA's GPUs"),
        ("cuda", np.float64, "float64 runs on CPUs only"),
    ):
        with pytest.raises(penstock.Unsupported, match=message):
            export_for(platform, dtype)


def run_with_a_driver(name, tmp_path, *command):
    """Runs Python with a driver of tests/fake_cuda. Returns what the process was."""
    fake_cuda = BUILD / "tests" / "fake_cuda" / name
    if not (fake_cuda / "libcuda.so.1").exists():
        pytest.skip("the C++ tests are not built")
    environment = {
        **os.environ, "PENSTOCK_CUDA_PATH": str(fake_cuda), "PENSTOCK_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": f"{pathlib.Path(__file__).parent}:{pathlib.Path(penstock.__file__).parents[1]}",
    }  # fmt: skip
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)


def test_handlers_of_a_gpu(tmp_path):
    done = run_with_a_driver("", tmp_path, pathlib.Path(__file__).with_name("jax_gpu_worker.py"))
    assert done.returncode == 0, done.stderr


EXPORT = "import test_jax_errors; print(test_jax_errors.export_for('cuda'))"


def test_a_driver_that_does_not_serve(tmp_path):
    done = run_with_a_driver("old", tmp_path, "-c", EXPORT)
    assert "Unsupported: device cuda:0 is not there: " in done.stderr, done.stderr


def test_code_for_a_gpu(tmp_path):
    """A GPU that there is only for the library."""
    done = run_with_a_driver("", tmp_path, "-c", EXPORT)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    for name in ("recurrent", "recurrent_backward", "scan", "scan_backward"):
        calls = re.findall(rf"custom_call @penstock_{name}\(.*", text)
        assert calls and all(re.search(r"tensor<\d+xui8>\)$", call) for call in calls), calls  # the workspace
    assert "0x7FF8000000000000" in text  # NaN where a length is impossible


def test_declarations_equal_the_header_of_jaxlib(tmp_path):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler is installed")
    header = pathlib.Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text()
    pairs = {
        "Extension": ("InternalExtension" if "XLA_FFI_InternalExtension" in header else "Extension_Base", "struct_size type next"),
        "ApiVersion": ("Api_Version", "struct_size extension_start major_version minor_version"),
        "Metadata": ("Metadata", "struct_size api_version traits"),
        "MetadataExtension": ("Metadata_Extension", "extension_base metadata"),
        "ErrorArguments": ("Error_Create_Args", "struct_size extension_start message errc"),
        "StreamArguments": ("Stream_Get_Args", "struct_size stream"),
        "DeviceOrdinalArguments": ("DeviceOrdinal_Get_Args", "struct_size device_ordinal"),
        "Buffer": ("Buffer", "struct_size extension_start dtype data rank dims"),
        "Text": ("ByteSpan", "ptr len"),
        "Array": ("Array", "dtype size data"),
        "Attributes": ("Attrs", "struct_size extension_start size types names"),
        "Buffers": ("Args", "struct_size extension_start size types"),
        "CallFrame": ("CallFrame", "struct_size extension_start api stage args rets attrs"),
    }
    checks = [
        f"static_assert(offsetof(penstock::xla::{ours}, {field}) == offsetof(XLA_FFI_{theirs}, {field}));"
        for ours, (theirs, fields) in pairs.items()
        for field in fields.split()
    ]
    checks += [
        *(
            f"static_assert(offsetof(penstock::xla::Api, {ours}) == offsetof(XLA_FFI_Api, XLA_FFI_{theirs}));"
            for ours, theirs in (
                ("error_create", "Error_Create"),
                ("stream_get", "Stream_Get"),
                ("device_ordinal_get", "DeviceOrdinal_Get"),
            )
        ),
        "static_assert(penstock::xla::kCommandBufferCompatible == XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);",
        *(
            f"static_assert(int(penstock::xla::{name}) == XLA_FFI_DataType_{name.upper()});"
            for name in "pred s32 s64 u8 f16 f32 f64 bf16".split()
        ),
        "static_assert(penstock::xla::kMetadataExtension == XLA_FFI_Extension_Metadata);",
        "static_assert(penstock::xla::kBuffer == XLA_FFI_ArgType_BUFFER);",
        "static_assert(penstock::xla::kArrayAttribute == XLA_FFI_AttrType_ARRAY);",
        "static_assert(penstock::xla::kTextAttribute == XLA_FFI_AttrType_STRING);",
    ]
    source = tmp_path / "layout.cc"
    source.write_text('#include "xla/ffi/api/c_api.h"\n#include "jax/xla_ffi.h"\n' + "\n".join(checks))
    command = [
        compiler,
        "-std=c++20",
        "-fsyntax-only",
        f"-I{jax.ffi.include_dir()}",
        f"-I{ROOT / 'python/src'}",
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_jax_the_package_is_named(tmp_path):
    (tmp_path / "jax.py").write_text("raise ModuleNotFoundError(\"No module named 'jax'\", name='jax')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import penstock.jax"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "penstock.jax needs JAX 0.8 or later: pip install 'jax>=0.8'" in done.stderr
