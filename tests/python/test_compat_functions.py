"""The functions of kiln.compat against the unfused code of their frameworks: formulas,
of any type, whose gradients torch makes.

Each is computed twice: by Kiln, and by what is computed where Kiln cannot.
"""

import importlib
import inspect

import pytest
from ops_cases import BF16, F32, rotate_half, torch
from ops_device import check_as_good_as_torch, device, worst_error  # noqa: F401

from kiln import compat, errors
from kiln.compat import _finder, _table, _warm_up

F16 = torch.float16
HALVES = [F16, BF16]
ALL = [F16, BF16, F32]
SCALE = torch.tensor([0.5])[0]  # as the frameworks hand it over


def module_of(framework, name):
    """The extension as the framework would import it."""
    finder = _finder.Finder()
    for each in _table.FRAMEWORKS[framework]:
        finder.add(each)
    spec = finder.find_spec(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """What Kiln is to compute is not computed by a formula unnoticed."""
    monkeypatch.setenv("KILN_PYTHON_STRICT", "1")


@pytest.fixture(params=["kiln", "formula"])
def path(request):
    """Of a function: itself, or its own path."""
    if request.param == "kiln":
        return lambda function: function
    return lambda function: function.unfused


def wide(x):
    return x if x.dtype == torch.float64 else x.float()


def check(result, inputs, reference, gradients=None, dy=None, what=""):
    """Results and gradients are as near to float64 as those of ``reference``."""
    own = [each.detach().clone().requires_grad_() for each in inputs]
    exact = [each.detach().double().requires_grad_() for each in inputs]
    same, true = reference(*own), reference(*exact)
    check_as_good_as_torch(result, same, true, f"{what} forward")
    if gradients is None:
        return
    same = torch.autograd.grad(same, own, dy.to(same.dtype))
    true = torch.autograd.grad(true, exact, dy.double())
    for i, triple in enumerate(zip(gradients, same, true, strict=True)):
        check_as_good_as_torch(*triple, f"{what} gradient {i}")


# ---- Softmax


def softmax(mask, fill):
    """The unfused path, with softmax_in_fp32."""

    def reference(x):
        scores = wide(x) * 0.5
        if mask is not None:
            scores = scores.masked_fill(mask, fill)
        return torch.softmax(scores, -1).to(x.dtype)

    return reference


def later(size):
    return torch.ones(size, size, dtype=torch.bool).triu(1)


def some_masked(batch):
    mask = torch.rand(batch, 1, 5, 24) < 0.4
    mask[..., 3] = False  # no row is masked as a whole
    return mask


SOFTMAX = {
    "neox causal": ("neox", "scaled_upper_triang_masked_softmax_cuda", None),
    "neox masked": ("neox", "scaled_masked_softmax_cuda", 2),
    "apex causal": ("apex", "scaled_upper_triang_masked_softmax_cuda", None),
    "apex masked": ("apex", "scaled_masked_softmax_cuda", 2),
    "apex masked alike": ("apex", "scaled_masked_softmax_cuda", 1),
    "apex generic": ("apex", "generic_scaled_masked_softmax_cuda", 2),
    "apex plain": ("apex", "scaled_softmax_cuda", 0),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", SOFTMAX)
def test_softmax_and_its_gradient_are_those_of_the_unfused_path(case, dtype, path):
    framework, name, masks = SOFTMAX[case]
    module = module_of(framework, name)
    x = torch.randn((6, 24, 24) if masks is None else (2, 3, 5, 24)).to(dtype)
    mask = later(24) if masks is None else some_masked(masks) if masks else None
    given = (mask,) if masks else ()
    y = path(module.forward)(x, *given, SCALE)
    dy = torch.randn(x.shape).to(dtype)
    before = dy.clone()
    dx = path(module.backward)(dy, y, SCALE)
    fill = torch.finfo(dtype).min if framework == "neox" else -10000.0
    check(y, [x], softmax(mask, fill), [dx], before, case)
    if framework == "neox":
        assert dx is dy, "GPT-NeoX computes in place"
    else:
        assert dx is not dy and torch.equal(dy, before)


def test_a_gradient_that_is_not_contiguous_is_not_written_to(path):
    module = module_of("neox", "scaled_upper_triang_masked_softmax_cuda")
    y = module.forward(torch.randn(6, 24, 24).half(), SCALE)
    dy = torch.randn(24, 6, 24).half().transpose(0, 1)
    before = dy.clone()
    dx = path(module.backward)(dy, y, SCALE)
    assert torch.equal(dy, before)
    torch.testing.assert_close(dx, path(module.backward)(before, y, SCALE))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("framework", ["neox", "apex"])
def test_rows_that_are_masked_as_a_whole_are_the_frameworks(framework, dtype, path):
    module = module_of(framework, "scaled_masked_softmax_cuda")
    mask = some_masked(2)
    mask[1, 0, 2] = True
    x, dy = (torch.randn(2, 3, 5, 24).to(dtype) for _ in range(2))
    y = path(module.forward)(x, mask, SCALE)
    dx = path(module.backward)(dy.clone(), y, SCALE)
    row = (1, slice(None), 2)
    if framework == "apex":
        assert (y[row] == 0).all() and (dx[row] == 0).all()
        return
    check(y, [x], softmax(mask, torch.finfo(dtype).min))
    true_y, true_dy = y[row].double(), dy[row].double()
    weighted = true_y * true_dy
    expected = 0.5 * (weighted - true_y * weighted.sum(-1, keepdim=True))
    assert worst_error(dx[row], expected) < 2 * torch.finfo(dtype).eps


def test_a_mask_of_bytes_is_one_of_bools(path):
    forward = path(module_of("apex", "scaled_masked_softmax_cuda").forward)
    x, mask = torch.randn(2, 3, 5, 24).half(), some_masked(2)
    assert torch.equal(forward(x, mask.byte(), SCALE), forward(x, mask, SCALE))


@pytest.mark.parametrize("keys", [17, 33, 64, 127])
def test_rows_have_any_length_and_a_block_one_batch(keys):
    module = module_of("apex", "scaled_masked_softmax_cuda")
    assert module.get_batch_per_block(6, keys, 3, 1) == 1
    x, mask = torch.randn(1, 2, 3, keys).half(), torch.rand(1, 1, 3, keys) < 0.3
    mask[..., 0] = False
    check(module.forward(x, mask, 0.5), [x], softmax(mask, -10000.0))


def test_a_mask_of_another_shape_is_refused():
    forward = module_of("neox", "scaled_masked_softmax_cuda").forward
    with pytest.raises(errors.InvalidArgument, match="does not broadcast"):
        forward(torch.randn(2, 3, 5, 24), torch.zeros(2, 1, 5, 23).bool(), 1.0)


# ---- Rope

ANGLES = torch.outer(torch.arange(6.0), torch.tensor([1.0, 0.1, 0.03]))
FREQS = torch.cat([ANGLES, ANGLES], -1)[:, None, None]


def rotated(freqs):
    """apply_rotary_pos_emb of Megatron-LM, of the first elements of a head."""

    def reference(t):
        cos, sin = freqs.double().cos().to(t.dtype), freqs.double().sin().to(t.dtype)
        t, rest = t[..., : freqs.shape[-1]], t[..., freqs.shape[-1] :]
        return torch.cat([t * cos + rotate_half(t) * sin, rest], -1)

    return reference


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("framework", ["neox", "apex"])
def test_rope_is_that_of_the_unfused_path(framework, dtype, transposed, path):
    module = module_of(framework, "fused_rotary_positional_embedding")
    t = torch.randn(6, 2, 3, 8).to(dtype)
    dy = torch.randn(2, 6, 3, 8).to(dtype).transpose(0, 1)
    out = path(module.forward)(t, FREQS, transposed)
    dt = path(module.backward)(dy, FREQS, transposed)
    check(out, [t], rotated(FREQS), [dt], dy)
    for each in (out, dt):
        assert (each.transpose(0, 1) if transposed else each).is_contiguous()
    for kept in {F32, dtype}:
        cos, sin = FREQS.cos().to(kept), FREQS.sin().to(kept)
        out = path(module.forward_cached)(t, cos, sin, transposed)
        dt = path(module.backward_cached)(dy, cos, sin, transposed)
        check(out, [t], rotated(FREQS), [dt], dy, f"cached {kept}")
        assert (dt.transpose(0, 1) if transposed else dt).is_contiguous()


@pytest.mark.parametrize("dtype", ALL)
def test_rope_of_packed_sequences_begins_anew_with_each(dtype, path):
    module = module_of("apex", "fused_rotary_positional_embedding")
    ends = torch.tensor([0, 2, 2, 8], dtype=torch.int32)
    t, dy = (torch.randn(8, 3, 8).to(dtype) for _ in range(2))
    positions = torch.cat([torch.arange(2), torch.arange(6)])
    out = path(module.forward_thd)(t, ends, FREQS)
    dt = path(module.backward_thd)(dy, ends, FREQS)
    check(out, [t], rotated(FREQS[positions].squeeze(1)), [dt], dy)


@pytest.mark.parametrize("dtype", ALL)
def test_rope_of_images_has_a_table_of_rows_and_one_of_columns(dtype, path):
    module = module_of("apex", "fused_rotary_positional_embedding")
    t = torch.randn(2, 2, 3, 2, 12).to(dtype)
    t = torch.cat([t, t], 4)[..., 6:18] if dtype == F32 else t  # not contiguous
    dy = torch.randn(2, 6, 2, 12).to(dtype)
    rows, columns = FREQS[:4].transpose(0, 1), FREQS[1:].transpose(0, 1)  # 4 and 5

    def reference(t):
        tables = rows[0, :2, None], columns[0, :3]
        return torch.cat(
            [rotated(each)(half) for each, half in zip(tables, t.chunk(2, -1))], -1
        ).flatten(1, 2)

    for kept in {F32, dtype}:
        tables = [
            table.to(kept)
            for angles in (rows, columns)
            for table in (angles.cos(), angles.sin())
        ]
        out = path(module.forward_2d)(t, *tables)
        dt = path(module.backward_2d)(dy.view(t.shape), *tables)
        assert out.shape == dt.shape == dy.shape
        check(out, [t], reference, [dt.view(t.shape)], dy, f"{kept}")


def test_what_is_not_provided_is_no_attribute():
    module = module_of("apex", "fused_rotary_positional_embedding")
    with pytest.raises(AttributeError, match="kiln does not provide it"):
        module.forward_3d


# ---- Norms

SHAPE = (2, 5, 48)


def layer_norm(x, weight=None, bias=None):
    out = torch.nn.functional.layer_norm(
        wide(x),
        (48,),
        None if weight is None else wide(weight),
        None if bias is None else wide(bias),
        1e-5,
    )
    return out.to(x.dtype if weight is None else weight.dtype)


def rms_norm(x, weight=None):
    rows = wide(x)
    out = rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + 1e-5)
    out = out if weight is None else out * wide(weight)
    return out.to(x.dtype if weight is None else weight.dtype)


# Of each: forward, backward, how many weights, whether there is a mean.
NORMS = {
    "layer": ("forward_affine", "backward_affine", 2, True),
    "layer without weights": ("forward", "backward", 0, True),
    "rms": ("rms_forward_affine", "rms_backward_affine", 1, False),
    "rms without weight": ("rms_forward", "rms_backward", 0, False),
}


def run_norm(module, path, case, x, weights, dy, from_y):
    """y, and the gradients of x and the weights."""
    forward, backward, _, has_mean = NORMS[case]
    made = path(getattr(module, forward))(x, torch.Size([48]), *weights, 1e-5)
    assert isinstance(made, list) and len(made) == (3 if has_mean else 2)
    y, *statistics = made
    assert all(each.dtype == F32 and each.shape == (10,) for each in statistics)
    if from_y and has_mean:
        statistics[0] = None
    given = (y if from_y else x, [48], *weights, 1e-5, from_y)
    gradients = path(getattr(module, backward))(dy, *statistics, *given)
    if not weights:
        return y, [gradients]  # a tensor
    assert isinstance(gradients, list)
    return y, gradients


# The simulated device has norms without weights of float32 alone.
NORMS_AND_TYPES = [
    (case, dtype)
    for case, (*_, weights, _) in NORMS.items()
    for dtype in (ALL if weights else [F32])
]


@pytest.mark.parametrize("from_y", [False, True], ids=["from_x", "from_y"])
@pytest.mark.parametrize("case, dtype", NORMS_AND_TYPES)
def test_norms_are_those_of_torch(case, dtype, from_y, path):
    module = module_of("apex", "fused_layer_norm_cuda")
    count, has_mean = NORMS[case][2:]
    x, dy = torch.randn(SHAPE).to(dtype), torch.randn(SHAPE).to(dtype)
    weights = [(torch.rand(48) + 0.5).to(dtype) for _ in range(count)]
    y, gradients = run_norm(module, path, case, x, weights, dy, from_y)
    reference = layer_norm if has_mean else rms_norm
    if not from_y:
        check(y, [x, *weights], reference, gradients, dy)
        return
    exact = [each.double().requires_grad_() for each in (x, *weights)]
    true = torch.autograd.grad(reference(*exact), exact, dy.double())
    for gradient, expected, like in zip(gradients, true, (x, *weights), strict=True):
        assert gradient.dtype == like.dtype and gradient.shape == like.shape
        # y is rounded, and then divided by the weight.
        assert worst_error(gradient, expected) < 16 * torch.finfo(dtype).eps


@pytest.mark.parametrize("case", ["layer without weights", "rms without weight"])
def test_norms_without_weights_take_several_dimensions(case, path):
    module = module_of("apex", "fused_layer_norm_cuda")
    forward, backward, _, has_mean = NORMS[case]
    x, dy = torch.randn(5, 2, 24), torch.randn(5, 2, 24)
    y, *statistics = path(getattr(module, forward))(x, (2, 24), 1e-5)
    dx = path(getattr(module, backward))(dy, *statistics, x, (2, 24), 1e-5, False)
    flat, flat_dy = (each.flatten(1).double() for each in (x, dy))
    flat.requires_grad_()
    expected = (layer_norm if has_mean else rms_norm)(flat)
    expected.backward(flat_dy)
    assert worst_error(y.flatten(1), expected) < 16 * torch.finfo(F32).eps
    assert worst_error(dx.flatten(1), flat.grad) < 16 * torch.finfo(F32).eps


@pytest.mark.parametrize("from_y", [False, True], ids=["from_x", "from_y"])
def test_norms_of_two_types_have_the_type_of_the_weight(from_y, path):
    module = module_of("apex", "fused_layer_norm_cuda")
    x, dy = torch.randn(SHAPE).to(BF16), torch.randn(SHAPE)
    weight, bias = torch.rand(48) + 0.5, torch.randn(48)
    y, mean, rstd = path(module.forward_affine_mixed_dtypes)(
        x, (48,), weight, bias, 1e-5
    )
    check(y, [x, weight, bias], layer_norm)
    dx, dweight, dbias = path(module.backward_affine)(
        dy, mean, rstd, y if from_y else x, (48,), weight, bias, 1e-5, from_y
    )
    exact = [each.double().requires_grad_() for each in (x, weight, bias)]
    true = torch.autograd.grad(layer_norm(*exact), exact, dy.double())
    assert dx.dtype == (F32 if from_y else BF16) and dweight.dtype == dbias.dtype == F32
    for gradient, expected in zip((dx, dweight, dbias), true, strict=True):
        rounding = torch.finfo(gradient.dtype).eps
        assert worst_error(gradient, expected) < 32 * rounding
    y, rstd = path(module.rms_forward_affine_mixed_dtypes)(x, (48,), weight, 1e-5)
    check(y, [x, weight], rms_norm)


def test_a_weight_of_nothing_leaves_numbers_where_y_is_kept(path):
    module = module_of("apex", "fused_layer_norm_cuda")
    weight = torch.rand(48) + 0.5
    weight[:3] = torch.tensor([0.0, 1e-9, -1e-9])
    y, gradients = run_norm(
        module, path, "rms", torch.randn(SHAPE), [weight], torch.randn(SHAPE), True
    )
    assert all(each.isfinite().all() for each in (y, *gradients))
    with pytest.raises(errors.InvalidArgument, match="normalized shape"):
        module.rms_forward_affine(torch.randn(SHAPE), (47,), torch.rand(47), 1e-5)


@pytest.mark.parametrize("from_y", [False, True], ids=["from_x", "from_y"])
def test_fast_layer_norm_is_torchs(from_y, path):
    module = module_of("apex", "fast_layer_norm")
    x, dy = torch.randn(10, 48).to(BF16), torch.randn(10, 48).to(BF16)
    gamma, beta = (torch.rand(48) + 0.5).to(BF16), torch.randn(48).to(BF16)
    z, mu, rsigma = path(module.ln_fwd)(x, gamma, beta, 1e-5)
    kept = (z, None, rsigma, gamma, beta) if from_y else (x, mu, rsigma, gamma, None)
    gradients = path(module.ln_bwd)(dy, *kept, from_y)
    assert len(gradients) == 5, "two are partial sums"
    if not from_y:
        check(z, [x, gamma, beta], layer_norm, gradients[:3], dy)


@pytest.mark.parametrize("from_y", [False, True], ids=["from_x", "from_y"])
def test_the_functions_of_apex_are_there_without_apex(from_y):
    compat.install("apex")
    from apex.normalization.fused_layer_norm import (
        FusedLayerNormAffineFunction,
        FusedRMSNormAffineFunction,
    )

    for function, reference, count in (
        (FusedLayerNormAffineFunction, layer_norm, 2),
        (FusedRMSNormAffineFunction, rms_norm, 1),
    ):
        parameters = inspect.getfullargspec(function.forward).args
        assert parameters[-3:] == ["normalized_shape", "eps", "memory_efficient"]
        x, dy = torch.randn(SHAPE, requires_grad=True), torch.randn(SHAPE)
        weights = [(torch.rand(48) + 0.5).requires_grad_() for _ in range(count)]
        y = function.apply(x, *weights, torch.Size([48]), 1e-5, from_y)
        gradients = torch.autograd.grad(y, [x, *weights], dy)
        true = torch.autograd.grad(reference(x, *weights), [x, *weights], dy)
        for gradient, expected in zip(gradients, true, strict=True):
            torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=1e-5)


# ---- Cross-entropy


@pytest.mark.parametrize("half_to_float", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", ALL)
def test_xentropy_is_torchs(dtype, smoothing, half_to_float, path):
    module = module_of("apex", "xentropy_cuda")
    logits = (torch.randn(4, 33) * 8 + 20).to(dtype)
    labels = torch.tensor([3, 0, 32, 7])

    def reference(x):
        return torch.nn.functional.cross_entropy(
            wide(x), labels, reduction="none", label_smoothing=smoothing
        )

    losses, lse = path(module.forward)(logits, labels, smoothing, half_to_float)
    assert losses.dtype == F32
    assert lse.dtype == (F32 if half_to_float else dtype) and lse.shape == (4,)
    dloss = torch.randn(4)
    dlogits = path(module.backward)(dloss, logits, lse, labels, smoothing)
    check(losses, [logits], reference)
    exact = logits.double().requires_grad_()
    (true,) = torch.autograd.grad(reference(exact), exact, dloss.double())
    assert dlogits.dtype == dtype
    # As in the original, what is kept is log(sum(exp)): about 40, with its rounding.
    bound = max(2 * torch.finfo(dtype).eps, 2e-5)
    assert worst_error(dlogits, true) < bound


# ---- The warm-ups of GPT-NeoX and Megatron-LM


class Arguments:
    params_dtype = torch.float16
    seq_length = 24
    scaled_masked_softmax_fusion = False
    masked_softmax_fusion = True


def counts():
    import kiln

    return [kiln.statistics()[each] for each in ("compiled", "disk_hits", "loaded")]


def test_after_load_a_call_asks_for_no_kernel():
    _warm_up.load_neox(Arguments())
    before = counts()
    module = module_of("neox", "scaled_upper_triang_masked_softmax_cuda")
    y = module.forward(torch.randn(6, 24, 24).half(), SCALE)
    module.backward(torch.randn(6, 24, 24).half(), y, SCALE)
    rope = module_of("neox", "fused_rotary_positional_embedding")
    t, cos, sin = torch.randn(6, 2, 3, 8).half(), FREQS.cos(), FREQS.sin()
    rope.backward(rope.forward(t, FREQS, False), FREQS, False)
    rope.backward_cached(rope.forward_cached(t, cos, sin, True), cos, sin, True)
    assert counts() == before
    _warm_up.load_megatron(Arguments())
    before = counts()
    x, mask = torch.randn(2, 3, 5, 24).half(), some_masked(2)
    module = module_of("apex", "scaled_masked_softmax_cuda")
    module.backward(x, module.forward(x, mask, SCALE), SCALE)
    module = module_of("apex", "scaled_softmax_cuda")
    module.backward(x, module.forward(x, SCALE), SCALE)
    assert counts() == before


def test_load_neither_hangs_nor_fails(monkeypatch):
    import threading

    over = threading.Event()
    monkeypatch.delenv("KILN_PYTHON_STRICT")
    monkeypatch.setattr(_warm_up, "WARM_UP_SECONDS", 0.05)
    monkeypatch.setattr(_warm_up, "prepare", lambda *_, **__: over.wait(20))
    monkeypatch.setattr("kiln.compat._own_path._warned", set())
    with pytest.warns(compat.FallbackWarning, match="while the program goes on"):
        _warm_up.load_neox(Arguments())
    over.set()

    def fail(*_, **__):
        raise errors.Timeout("a build took too long")

    monkeypatch.setattr(_warm_up, "WARM_UP_SECONDS", 20)
    monkeypatch.setattr(_warm_up, "prepare", fail)
    monkeypatch.setattr("kiln.compat._own_path._warned", set())
    with pytest.warns(compat.FallbackWarning, match="a build took too long"):
        _warm_up.load_neox(None)
    monkeypatch.setenv("KILN_PYTHON_STRICT", "1")
    with pytest.raises(errors.Timeout):
        _warm_up.load_neox(None)
