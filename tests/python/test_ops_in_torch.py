"""kiln.ops as parts of torch: the dispatcher, autocast, autograd."""

import pytest
from ops_cases import (
    BF16,
    F32,
    ONE_EACH,
    Recorder,
    calls_of,
    gradients_of,
    id_of,
    ops,
    outputs_of,
    torch,
)
from ops_device import device, launched, worst_error  # noqa: F401

import kiln
from kiln.ops import _define


def test_every_operation_is_in_one_of_the_cases_of_each():
    calls = [call for case in ONE_EACH for call in calls_of(case, F32)]
    names = {function._opname for function, _ in calls}
    assert names == {operation.name for operation in _define.OPERATIONS}


@pytest.mark.parametrize("case", ONE_EACH, ids=id_of)
def test_a_second_derivative_is_refused_in_words(case):
    inputs = case.inputs(F32)
    outputs = outputs_of(case.kiln(*inputs))
    total = sum(each.square().sum() for each in outputs)
    gradients = torch.autograd.grad(total, inputs, create_graph=True)
    with pytest.raises(kiln.Unavailable, match="differentiated once"):
        torch.autograd.grad(gradients[0].sum(), inputs)


def test_plain_tensors_pass_the_dispatcher_by_and_observed_calls_do_not():
    x = torch.randn(5, 24, requires_grad=True)
    assert type(ops.squared_relu(x).grad_fn).__name__ == "KilnActivationFwdBackward"
    with Recorder() as recorder:
        ops.squared_relu(x)
    assert [function.name() for function, _ in recorder.calls] == ["kiln::activation_fwd"]
    with torch.profiler.profile() as profile:
        ops.squared_relu(x)
    assert "kiln::activation_fwd" in [event.key for event in profile.key_averages()]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("case", ONE_EACH, ids=id_of)
def test_a_trace_of_torchs_jit_has_the_call_and_not_its_numbers(case):
    traced = torch.jit.trace(case.kiln, case.inputs(F32, requires_grad=False), check_trace=False)
    other = case.inputs(F32)
    expected, result = outputs_of(case.kiln(*other)), outputs_of(traced(*other))
    for a, b in zip(result, expected, strict=True):
        assert torch.equal(a, b)
    for a, b in zip(gradients_of(result, other), gradients_of(expected, other), strict=True):
        assert torch.equal(a, b)


def test_fake_and_meta_tensors_are_computed_without_a_launch():
    before = len(launched())
    with torch._subclasses.FakeTensorMode():
        fake = ops.softmax(torch.empty(2, 3, 5, 24, dtype=BF16))
    meta = ops.softmax(torch.empty(2, 3, 5, 24, dtype=BF16, device="meta"))
    for y in (fake, meta):
        assert (y.shape, y.dtype) == ((2, 3, 5, 24), BF16)
    assert len(launched()) == before


def test_every_operation_is_in_torch_ops_with_a_schema():
    names = {operation.name for operation in _define.OPERATIONS}
    assert names == {
        *("softmax_fwd", "softmax_bwd", "layer_norm_fwd", "add_layer_norm_fwd"),
        *("layer_norm_bwd", "rms_norm_fwd", "add_rms_norm_fwd", "rms_norm_bwd"),
        *("rope_fwd", "rope_bwd", "activation_fwd", "activation_bwd", "glu_fwd", "glu_bwd"),
        *("cross_entropy_fwd", "cross_entropy_bwd", "attention_fwd", "attention_bwd"),
    }
    for name in names:
        schema = getattr(torch.ops.kiln, name).default._schema
        assert not schema.is_mutable


IS_2_6 = torch.__version__.startswith("2.6.")
QKV = ((2, 4, 5, 16),) * 3
SOME = torch.tensor([1, 2])
ENDS = torch.tensor([0, 4, 9], dtype=torch.int32)
# Of first inputs of one type and others of float32, under autocast to bfloat16: the types of
# the first input and of the result, and torch's operation that CUDA's autocast casts, if any.
AUTOCAST = {
    "softmax": (ops.softmax, ((2, 3, 5, 24),), BF16, F32, "softmax.int"),
    "layer_norm": (ops.layer_norm, ((5, 48), (48,)), BF16, F32, "layer_norm"),
    "rms_norm": (ops.rms_norm, ((5, 48), (48,)), BF16, F32, "rms_norm"),
    "cross_entropy": (lambda x: ops.cross_entropy(x, SOME), ((2, 33),), BF16, F32, "nll_loss"),
    "scaled_dot_product_attention": (ops.scaled_dot_product_attention, QKV, F32, BF16,
                                     "scaled_dot_product_attention"),
    "layer_norm of a residual": (
        lambda x, w, b, r: ops.layer_norm(x, w, b, residual=r),
        ((5, 48), (48,), (48,), (5, 48)), BF16, F32, "layer_norm",
    ),
    "rms_norm of a residual": (
        lambda x, w, r: ops.rms_norm(x, w, residual=r), ((5, 48), (48,), (5, 48)), BF16, F32,
        "rms_norm",
    ),
    "varlen_attention": (
        lambda q, k, v: ops.varlen_attention(q, k, v, ENDS, ENDS), ((9, 4, 16),) * 3, F32, BF16,
        None,
    ),
    "rope": (
        lambda q, k: ops.rope(q, k, torch.ones(6, 8), torch.zeros(6, 8)),
        ((2, 6, 3, 8), (2, 6, 1, 8)), BF16, BF16, None,
    ),
    "bias_gelu": (ops.bias_gelu, ((5, 24), (24,)), BF16, BF16, None),
    "squared_relu": (ops.squared_relu, ((5, 24),), F32, F32, None),
    "swiglu": (ops.swiglu, ((5, 48), (48,)), BF16, BF16, None),
    "geglu": (ops.geglu, ((5, 48), (48,)), BF16, BF16, None),
}


def test_the_types_under_autocast_of_every_operation_are_in_the_table():
    functions = {name for name in ops.__all__ if name not in ("CopyWarning", "copies")}
    assert {name.split()[0] for name in AUTOCAST} == functions


@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_gives_the_type_that_torchs_operation_gives(name):
    function, shapes, first, expected, cast = AUTOCAST[name]
    if cast is not None and not (cast == "rms_norm" and IS_2_6):  # which did not cast it yet
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        assert has_kernel(f"aten::{cast}", "AutocastCUDA")
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    inputs[0] = inputs[0].detach().to(first).requires_grad_()
    with torch.autocast("cpu", dtype=BF16):
        results = outputs_of(function(*inputs))
    assert {result.dtype for result in results} == {expected}
    total = sum(result.float().sum() for result in results)
    for gradient, of in zip(torch.autograd.grad(total, inputs), inputs, strict=True):
        assert gradient.dtype == of.dtype


def test_activation_checkpointing_gives_the_same_gradients():
    from torch.utils.checkpoint import checkpoint

    x, weight = torch.randn(5, 48, requires_grad=True), torch.randn(48)
    (expected,) = torch.autograd.grad(ops.rms_norm(x, weight).square().sum(), x)
    y = checkpoint(ops.rms_norm, x, weight, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(y.square().sum(), x)[0], expected)


def test_threads_launch_at_once():
    from concurrent.futures import ThreadPoolExecutor

    x = torch.randn(8, 5, 24)
    expected = torch.softmax(x, -1)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda each: ops.softmax(each, 1.0), x))
    assert worst_error(torch.stack(results), expected) < 1e-6
