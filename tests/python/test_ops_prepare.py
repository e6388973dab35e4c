"""kiln.prepare(): what it builds is what a later call needs."""

import importlib
import inspect
import typing

import pytest
from ops_cases import BF16, F32, ops, torch
from ops_device import device, launched  # noqa: F401

import kiln

pytest.importorskip("tvm_ffi")
from simulated_streams import capture  # noqa: E402

_prepare = importlib.import_module("kiln._prepare")

PREPARED = {
    "softmax": ((2, 3, 5, 24), {"causal": True}),
    "softmax of a mask": ((2, 3, 5, 24), {"mask": (2, 1, 5, 24), "masked_row": "uniform"}),
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


def call(name, shapes, arguments, dtype=F32):
    """The operation on tensors with these shapes, and its gradient."""
    kinds = {"target": torch.int64, "cu_seqlens": torch.int32, "mask": torch.bool}
    values = {}

    def tensor(name, shape):
        for kind, of_kind in kinds.items():
            if name.startswith(kind):
                ends = torch.arange(*shape) * 4 if kind == "cu_seqlens" else torch.zeros(shape)
                return ends.to(of_kind)
        wants_gradient = name not in ("cos", "sin", "attn_mask")
        return torch.randn(shape, dtype=dtype, requires_grad=wants_gradient)

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


@pytest.mark.parametrize("function", [ops.squared_relu, lambda x: ops.rms_norm(x, SCALE)])
def test_a_call_of_a_new_shape_asks_for_each_kernel_once(function):
    def backward(shape):
        """How often it asks for a kernel, and of how many launches."""
        output = function(torch.randn(shape, requires_grad=True))
        kernels, launches = kiln.statistics()["memory_hits"], len(launched())
        output.backward(torch.ones_like(output))
        return kiln.statistics()["memory_hits"] - kernels, len(launched()) - launches

    backward((5, 48))  # loads its kernels
    for _ in range(2):  # what is loaded needs no preparation
        kernels, launches = backward((6, 48))
        assert kernels == launches > 0


SCALE = torch.ones(48, requires_grad=True)


def test_prepare_refuses_what_the_call_would_refuse():
    with pytest.raises(kiln.InvalidArgument, match="'gelu' is none of kiln.ops; did you mean 'geglu'"):
        kiln.prepare("gelu", (5, 24), dtype=F32)
    with pytest.raises(kiln.InvalidArgument, match="'x' is none of kiln.ops; there are bias_gelu, "):
        kiln.prepare("x", (5, 24), dtype=F32)
    for other in ("copies", torch.nn.functional.layer_norm, None):
        with pytest.raises(kiln.InvalidArgument, match="is none of kiln.ops; "):
            kiln.prepare(other, (5, 24), (24,), dtype=F32)
    with pytest.raises(kiln.InvalidArgument, match="dtype is 'bfloat16', and not a dtype of torch"):
        kiln.prepare("squared_relu", (5, 24), dtype="bfloat16")
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


def captured():
    return [each.function for each in kiln.testing.launches() if each.is_captured]


@pytest.mark.parametrize("case", PREPARED)
def test_what_was_prepared_is_captured_in_both_passes(case):
    *shapes, arguments = PREPARED[case]
    name = case.split()[0]
    kiln.prepare(name, *shapes, dtype=F32, device=0, **arguments)
    before = len(captured())
    with capture():
        call(name, shapes, arguments)
    functions = captured()[before:]
    assert any("fwd" in each for each in functions), functions
    assert any("bwd" in each for each in functions), functions


@pytest.mark.parametrize("case", PREPARED)
def test_a_capture_of_what_was_not_prepared_is_refused_with_the_remedy(case):
    *shapes, arguments = PREPARED[case]
    before, counts = len(launched()), kiln.statistics()
    says = r"the stream is being captured, .* call kiln\.prepare\(\)"
    with capture(), pytest.raises(kiln.InvalidArgument, match=says):
        call(case.split()[0], shapes, arguments, torch.float16)
    assert (len(launched()), kiln.statistics()) == (before, counts)


def test_a_capture_goes_on_after_a_refusal_with_what_was_run_before():
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


def test_attention_is_prepared_for_the_thread_that_computes_gradients_too(monkeypatch):
    calls = []

    class Recorded:
        def __getattr__(self, name):
            calls.append(name)
            return getattr(library, name)

    def in_backward(device, run):
        calls.append(device)
        in_any_backward(torch.device("cpu"), run)

    library, in_any_backward = _prepare.library(), _prepare._in_backward
    monkeypatch.setattr(_prepare, "library", Recorded)
    monkeypatch.setattr(_prepare, "_in_backward", in_backward)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    kiln.prepare("scaled_dot_product_attention", *((1, 2, 3, 16),) * 3, dtype=F32, device=1)
    passes = ["attention_forward", "attention_backward"]
    assert calls == [*passes, torch.device("cuda", 1), *passes]
    calls.clear()
    kiln.prepare("squared_relu", (5, 24), dtype=F32, device=0)
    assert calls == ["activation_forward", "activation_backward"]


@pytest.mark.parametrize("name", [n for n in ops.__all__ if n not in ("CopyWarning", "copies")])
def test_each_parameter_has_a_type(name):
    function = getattr(ops, name)
    hinted = typing.get_type_hints(function)
    assert set(hinted) == {*inspect.signature(function).parameters, "return"}
