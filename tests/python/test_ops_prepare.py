"""kiln.prepare(): what it builds is what a later call needs."""

import contextlib
import ctypes
import inspect

import pytest
from ops_cases import BF16, F32, ops, torch
from ops_device import device, launched  # noqa: F401

import kiln

tvm_ffi = pytest.importorskip("tvm_ffi")

PREPARED = {
    "softmax": ((2, 3, 5, 24), {"causal": True}),
    "softmax of a mask": ((2, 3, 5, 24), {"mask": (2, 1, 5, 24)}),
    "layer_norm": ((5, 48), (48,), {"bias": (48,)}),
    "layer_norm of a residual": ((5, 48), (48,), {"bias": (48,), "residual": (5, 48)}),
    "layer_norm from y": (
        (5, 48), (48,), {"bias": (48,), "residual": (5, 48), "memory_efficient": True},
    ),
    "rms_norm": ((5, 48), (48,), {}),
    "rms_norm without a weight": ((5, 48), {"memory_efficient": True}),
    "rope": ((2, 6, 3, 8), (2, 6, 1, 8), (6, 8), (6, 8), {}),
    "bias_gelu": ((5, 24), (24,), {}),
    "squared_relu": ((5, 24), {}),
    "swiglu": ((5, 48), {}),
    "geglu": ((5, 48), {}),
    "cross_entropy": ((4, 33), (4,), {}),
    "scaled_dot_product_attention": ((2, 4, 5, 16), (2, 4, 5, 16), (2, 4, 5, 16), {}),
    "scaled_dot_product_attention of a mask": (
        *((2, 4, 5, 16),) * 3, {"attn_mask": (4, 5, 5)},
    ),
    "varlen_attention": (*((9, 4, 16),) * 3, (3,), (3,), {"max_seqlen_q": 5, "max_seqlen_k": 5}),
}


def kernels_of(function):
    """The kernels that the launches of function() are of."""
    before = len(kiln.testing.launches())
    function()
    return {launch.kernel for launch in kiln.testing.launches()[before:]}


def call(name, shapes, arguments):
    """The operation on tensors with these shapes, and its gradient."""
    kinds = {"target": torch.int64, "cu_seqlens": torch.int32, "mask": torch.bool}
    values = {}

    def tensor(name, shape):
        for kind, dtype in kinds.items():
            if name.startswith(kind):
                ends = torch.arange(*shape) * 4 if kind == "cu_seqlens" else torch.zeros(shape)
                return ends.to(dtype)
        return torch.randn(shape, requires_grad=name not in ("cos", "sin", "attn_mask"))

    bound = inspect.signature(getattr(ops, name)).bind(*shapes, **arguments)
    for parameter, value in bound.arguments.items():
        values[parameter] = tensor(parameter, value) if isinstance(value, tuple) else value
    outputs = getattr(ops, name)(**values)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    sum(each.sum() for each in outputs).backward()


@pytest.mark.parametrize("case", PREPARED)
def test_after_prepare_a_call_asks_for_no_kernel(case):
    *shapes, arguments = PREPARED[case]
    name = case.split()[0]
    before = len(launched())
    kiln.prepare(name, *shapes, dtype=F32, device=0, **arguments)
    assert len(launched()) == before
    counts = kiln.statistics()
    call(name, shapes, arguments)
    assert len(launched()) >= before + 2
    after = kiln.statistics()
    assert [after[each] for each in ("compiled", "disk_hits", "loaded")] == [
        counts[each] for each in ("compiled", "disk_hits", "loaded")
    ]


def test_prepare_takes_tensors_of_any_device_for_their_strides():
    q = torch.empty(2, 5, 4, 16, dtype=BF16, device="meta").transpose(1, 2)
    before = len(launched())
    kiln.prepare(ops.scaled_dot_product_attention, q, q, q, device="cuda:0", is_causal=True)
    assert len(launched()) == before


def test_prepare_takes_large_shapes_without_their_memory():
    kiln.prepare("softmax", (64, 128, 4096, 24), dtype=BF16, device=0)
    kiln.prepare("rms_norm", (1 << 20, 48), (48,), dtype=BF16, device=0,
                 dtypes={"weight": F32}, casting="none")


def test_prepare_without_backward_needs_the_forward_kernels_alone():
    from kiln.ops._launch import handled_by

    names = []
    with handled_by(lambda name, args: names.append(name)):
        ops.squared_relu(torch.empty(5, 24))
    assert names == ["activation_forward"]
    before = kiln.statistics()["loaded"]
    kiln.prepare("swiglu", (5, 48), dtype=torch.float16, device=1, backward=False)
    assert kiln.statistics()["loaded"] == before + 1


def test_prepare_refuses_what_the_call_would_refuse():
    with pytest.raises(kiln.InvalidArgument, match="none of kiln.ops: "):
        kiln.prepare("gelu", (5, 24), dtype=F32)
    with pytest.raises(kiln.InvalidArgument, match="dtype is missing"):
        kiln.prepare("squared_relu", (5, 24))
    with pytest.raises(kiln.InvalidArgument, match="not a CUDA device"):
        kiln.prepare("squared_relu", (5, 24), dtype=F32, device="cpu")
    with pytest.raises(kiln.InvalidArgument, match="x is float64"):
        kiln.prepare("squared_relu", (5, 24), dtype=torch.float64, device=0)
    with pytest.raises(kiln.InvalidArgument, match="device 7"):
        kiln.prepare("squared_relu", (5, 24), dtype=F32, device=7)
    with pytest.raises(kiln.InvalidArgument, match="bias has the shape"):
        kiln.prepare("bias_gelu", (5, 24), (23,), dtype=F32, device=0)


@contextlib.contextmanager
def capture():
    """A stream of device 0 is torch's current one, and is being captured."""
    driver = kiln.testing.driver()
    context, stream, graph = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    assert driver.cuStreamBeginCapture_v2(stream, 0) == 0
    try:
        with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), stream.value):
            yield
    finally:
        assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0  # not broken
        assert driver.cuStreamDestroy_v2(stream) == 0
        assert driver.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0


def captured():
    return [each.function for each in kiln.testing.launches() if each.is_captured]


def test_what_was_prepared_is_captured_with_its_workspaces():
    q = torch.randn(1, 2, 3, 16, requires_grad=True)
    x, weight = torch.randn(3, 48), torch.randn(48, requires_grad=True)
    kiln.prepare("scaled_dot_product_attention", *((1, 2, 3, 16),) * 3, dtype=F32, device=0)
    kiln.prepare("rms_norm", (3, 48), (48,), dtype=F32, device=0)
    before = len(captured())
    with capture():
        o = ops.scaled_dot_product_attention(q, q, q)
        torch.autograd.grad(o, q, torch.ones_like(o))
        y = ops.rms_norm(x, weight)
        torch.autograd.grad(y, weight, torch.ones_like(y))
    functions = captured()[before:]
    assert "attention_plain_bwd" in functions and "rmsnorm_bwd" in functions, functions


def test_a_capture_of_what_was_not_prepared_is_refused_and_goes_on():
    q = torch.randn(1, 2, 4, 16, requires_grad=True)
    o = ops.scaled_dot_product_attention(q, q, q)  # the forward pass alone
    x = torch.randn(3, 24)
    ops.squared_relu(x)
    before = len(captured())
    with capture():
        with pytest.raises(kiln.InvalidArgument, match="attention_backward: the stream is"):
            torch.autograd.grad(o, q, torch.ones_like(o))
        ops.squared_relu(x)
    assert captured()[before:] == ["squared_relu_fwd"]
