"""The handlers of python/jax on a CUDA device: stages, streams, scratch memory, capture.

XLA is tests/support/simulated_xla, and the devices are those of the simulated driver. Needs no JAX.
"""

import contextlib
import ctypes
import functools

import numpy as np
import pytest
from by_name import in_order
from conftest import KIT
from jax_device import device  # noqa: F401  the fixture

import kiln
import kiln.testing
from kiln._library import library

INITIALIZE, EXECUTE = 2, 3  # XLA_FFI_ExecutionStage_...
TYPES = {"float16": 10, "float32": 11}  # XLA_FFI_DataType_...


class Buffer(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int32),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        ("call", ctypes.c_char_p),
        ("stage", ctypes.c_int32),
        ("ordinal", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
        ("args", ctypes.POINTER(Buffer)),
        ("arg_count", ctypes.c_int64),
        ("results", ctypes.POINTER(Buffer)),
        ("result_count", ctypes.c_int64),
        ("allocated", ctypes.c_int64),
        ("freed", ctypes.c_int64),
        ("said", ctypes.c_char * 1024),
    ]


@functools.cache
def libraries():
    """Those of the handlers and of their caller."""
    library()  # which the handlers are linked with
    assert kiln.testing.driver().cuInit(0) == 0
    handlers, xla = (
        ctypes.CDLL(str(KIT / name)) for name in ("libkiln_jax.so", "libkiln-simulated-xla.so")
    )
    xla.kiln_xla_run.restype = None
    xla.kiln_xla_run.argtypes = (ctypes.c_void_p, ctypes.POINTER(Call))
    xla.kiln_xla_traits.restype = ctypes.c_uint32
    xla.kiln_xla_traits.argtypes = (ctypes.c_void_p,)
    return handlers, xla


def address(handler):
    return ctypes.cast(getattr(libraries()[0], handler), ctypes.c_void_p)


def buffers(arrays):
    made = (Buffer * len(arrays))()
    for buffer, array in zip(made, arrays):
        dims = (ctypes.c_int64 * array.ndim)(*array.shape)
        buffer.type, buffer.data = TYPES[array.dtype.name], array.ctypes.data
        buffer.rank, buffer.dims = array.ndim, dims
    return made


def run(handler, stage, call, args, results, ordinal=0, stream=None):
    """What the handler says, and how often it allocated scratch memory, which it must free."""
    frame = Call(
        call.encode(), stage, ordinal, stream,
        buffers(args), len(args), buffers(results), len(results),
    )  # fmt: skip
    libraries()[1].kiln_xla_run(address(handler), ctypes.byref(frame))
    assert frame.allocated == frame.freed
    return frame.said.decode(), frame.allocated


@contextlib.contextmanager
def stream_of(ordinal, captures=False):
    driver = kiln.testing.driver()
    context, stream, graph = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    if captures:
        assert driver.cuStreamBeginCapture_v2(stream, 0) == 0
    try:
        yield stream.value
    finally:
        if captures:
            assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0  # not broken
        assert driver.cuStreamDestroy_v2(stream) == 0
        assert driver.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0


def words(function, **values):
    return " ".join([function, *(each or "n" for each in in_order(function, **values))])


def softmax(dtype, columns):
    """The call, its argument and its result, and the right one."""
    x = np.linspace(-2, 2, 3 * columns).astype(dtype).reshape(1, 1, 3, columns)
    right = np.exp(x.astype(np.float64))
    right /= right.sum(-1, keepdims=True)
    return words("softmax_forward", y="r0", x="a0", scale="d1.0"), x, np.zeros_like(x), right


def test_what_was_initialized_is_captured_and_loads_nothing():
    call, x, y, _ = softmax(np.float32, 60)
    assert run("kiln_jax_prepare", INITIALIZE, call, [x], [y]) == ("", 0)
    first, counts = len(kiln.testing.launches()), kiln.statistics()
    with stream_of(0, captures=True) as stream:
        assert run("kiln_jax_launch", EXECUTE, call, [x], [y], stream=stream) == ("", 0)
    (launch,) = kiln.testing.launches()[first:]
    assert launch.is_captured and launch.stream == stream
    now = kiln.statistics()
    assert all(now[each] == counts[each] for each in ("loaded", "compiled", "disk_hits"))


@pytest.mark.parametrize("name", ["softmax", "attention"])
def test_what_was_not_initialized_is_refused_in_a_capture(name):
    call, x, y, _ = softmax(np.float32, 28)
    handler, args, result = "kiln_jax_launch", [x], y
    if name == "attention":
        q, result = np.ones((1, 3, 2, 16), np.float32), np.zeros((1, 3, 2, 16), np.float32)
        handler, args = "kiln_jax_launch_with_workspace", [q, q, q]
        call = words("attention_forward", o="r0", q="a0", k="a1", v="a2", layout="sbshd",
                     longest_q="i0", longest_kv="i0", workspace="w")
    first = len(kiln.testing.launches())
    with stream_of(0, captures=True) as stream:
        said, _ = run(handler, EXECUTE, call, args, [result], stream=stream)
    assert f"kiln.InvalidArgument: {name}_forward: the stream is being captured" in said
    assert kiln.testing.launches()[first:] == []


def test_a_launch_is_in_xlas_stream_on_xlas_device():
    call, x, y, right = softmax(np.float16, 24)
    first = len(kiln.testing.launches())
    for ordinal in (1, 0):
        y[:] = 0
        with stream_of(ordinal) as stream:
            said = run("kiln_jax_launch", EXECUTE, call, [x], [y], ordinal, stream)
        assert said == ("", 0)
        assert np.abs(y - right).max() < 1e-3
        launch = kiln.testing.launches()[-1]
        assert (launch.device, launch.stream) == (ordinal, stream)
    assert len(kiln.testing.launches()) == first + 2


def test_scratch_memory_is_xlas_and_freed():
    x, dy = (np.random.default_rng(i).normal(size=(5, 48)).astype(np.float32) for i in (0, 1))
    weight, rstd = np.ones(48, np.float32), (1 / np.sqrt((x * x).mean(-1))).astype(np.float32)
    dx, dweight = np.zeros_like(x), np.zeros_like(weight)
    call = words("rmsnorm_backward", dx="r0", dweight="r1", dy="a0", x="a1", weight="a2",
                 rstd="a3", workspace="w")
    arrays = ([dy, x, weight, rstd], [dx, dweight])
    assert run("kiln_jax_prepare", INITIALIZE, call, *arrays) == ("", 0)
    said = run("kiln_jax_launch_with_workspace", EXECUTE, call, *arrays)
    assert said == ("", 1)
    np.testing.assert_allclose(dweight, (dy * x * rstd[:, None]).sum(0), rtol=1e-4, atol=1e-5)


def test_only_the_handler_for_calls_without_scratch_memory_may_be_captured():
    compatible = 1  # XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE
    traits = libraries()[1].kiln_xla_traits
    assert traits(address("kiln_jax_launch")) == compatible
    for other in ("launch_with_workspace", "launch_on_host", "prepare"):
        assert traits(address(f"kiln_jax_{other}")) == 0, other


@pytest.mark.parametrize(
    "given, says",
    [
        ({"x": "a7"}, "3: kiln.InvalidArgument: "),
        ({"scale": "dx"}, "has the number 'x'"),
        ({"scale": "q"}, "has the word 'q'"),
        ({"scale": " "}, "an empty word"),
        ({"mask_bytes": "a0"}, "elements of one byte"),
        ({"y": "sy"}, "softmax_forward: y is of the type"),
        ("softmax_sideways r0", "3: kiln.InvalidArgument: libkiln_ffi.so has no function"),
        ("softmax_forward r0 a0", "softmax_forward takes "),
        ("", "an empty word"),
    ],
)
def test_a_call_that_makes_no_sense_is_an_error_of_xla(given, says):
    _, x, y, _ = softmax(np.float32, 60)
    if isinstance(given, dict):
        given = words("softmax_forward", **({"y": "r0", "x": "a0", "scale": "d1.0"} | given))
    said, _ = run("kiln_jax_launch", EXECUTE, given, [x], [y])
    assert says in said, said
