"""Functions that kiln.compat replaces in installed frameworks: in Liger itself, and in
packages of a few lines; and the framework's own path, wherever Kiln cannot."""

import importlib
import inspect
import sys
import types
import warnings

import no_triton
import pytest
from conftest import needs_torch
from ops_cases import (
    ANGLES,
    BF16,
    F32,
    F,
    gemma,
    later,
    llama,
    outputs_of,
    rotate_half,
    torch,
)
from ops_device import check_as_good_as_torch, device, launched  # noqa: F401

from kiln import compat, errors, ops
from kiln.compat import _finder, _own_path

# Of each module: functions that say that they were called.
PACKAGES = {
    "transformer_engine_torch": ("scaled_masked_softmax_forward", "another"),
    "transformer_engine": (),
    "transformer_engine.pytorch": (),
    "transformer_engine.pytorch.attention": (),
    "transformer_engine.pytorch.attention.rope": ("apply_rotary_pos_emb",),
    "transformer_engine.pytorch.cross_entropy": ("parallel_cross_entropy",),
    "xformers": (),
    "xformers.ops": (),
    "xformers.ops.fmha": ("memory_efficient_attention",),
    "megatron": (),
    "megatron.fused_kernels": ("load", "load_fused_kernels"),
}


# As TransformerEngine loads its extension.
LOADING = """
import importlib.util, pathlib, sys
path = pathlib.Path(__file__).parents[3] / "transformer_engine_torch.py"
spec = importlib.util.spec_from_file_location("transformer_engine_torch", path)
module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""


@pytest.fixture(scope="module", autouse=True)
def frameworks(tmp_path_factory):
    """On sys.path, with kiln.compat installed."""
    folder = tmp_path_factory.mktemp("packages")
    for name, functions in PACKAGES.items():
        lines = [f"def {each}(*_, **__): return '{each}'\n" for each in functions]
        if name.endswith("rope"):
            lines.append(LOADING)
        if name == "xformers.ops":
            lines.append("from .fmha import memory_efficient_attention\n")
        is_package = any(other.startswith(name + ".") for other in PACKAGES)
        path = folder / name.replace(".", "/") / "__init__.py"
        path = path if is_package else path.parent.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines))
    sys.path.insert(0, str(folder))
    no_triton.stand_in()
    compat.install("transformer_engine", "liger", "neox", "xformers")
    yield
    sys.path.remove(str(folder))


@pytest.fixture(autouse=True)
def fresh_warnings(monkeypatch):
    monkeypatch.setattr(_own_path, "_warned", set())


def check(call, reference, *inputs):
    """Results and gradients, of the types of the inputs."""

    def outputs(function, tensors):
        made = function(*tensors)
        made = made if isinstance(made, tuple) else (made,)
        towards = [
            torch.linspace(-1, 1, each.numel()).view(each.shape).to(each.dtype)
            for each in made
        ]
        return (*made, *torch.autograd.grad(made, tensors, towards))

    own = [each.detach().clone().requires_grad_() for each in inputs]
    exact = [each.detach().double().requires_grad_() for each in inputs]
    triples = (outputs(call, own), outputs(reference, own), outputs(reference, exact))
    for i, triple in enumerate(zip(*triples, strict=True)):
        check_as_good_as_torch(*triple, f"{i}")


# ---- Replacing


def test_functions_are_replaced_as_their_module_is_imported_and_others_stay():
    rope = importlib.import_module("transformer_engine.pytorch.attention.rope")
    extension = sys.modules["transformer_engine_torch"]
    assert rope.apply_rotary_pos_emb.is_of_kiln
    assert extension.scaled_masked_softmax_forward.is_of_kiln
    assert extension.another() == "another"
    assert not hasattr(extension, "scaled_softmax_forward"), "this version has none"
    x = torch.randn(6, 24, 24).half()
    module = importlib.import_module("scaled_upper_triang_masked_softmax_cuda")
    expected = torch.softmax(x.masked_fill(later(24, 24), -torch.inf).float(), -1)
    torch.testing.assert_close(module.forward(x, 1.0), expected.half())


def test_a_version_without_any_of_the_functions_is_warned_of(monkeypatch):
    name = "xformers.ops.fmha"  # it has imported them from another package
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    with pytest.warns(compat.FallbackWarning, match=f"{name} stays.*it has no memory_eff"):
        _finder.FINDER.replace_loaded(module)
    assert not hasattr(module, "memory_efficient_attention")


def test_an_import_of_a_name_gives_the_replaced_function():
    sys.modules.pop("megatron.fused_kernels", None)
    from megatron.fused_kernels import load, load_fused_kernels

    assert load.is_of_kiln and load.__wrapped__.__name__ == "load_neox"
    assert load_fused_kernels() == "load_fused_kernels"
    compat.install("neox")
    assert importlib.import_module("megatron.fused_kernels").load is load


# Of TransformerEngine d0067d0d and xformers bed3978b.
PARAMETERS = {
    "transformer_engine.apply_rotary_pos_emb": "t, freqs, tensor_format='sbhd', "
    "start_positions=None, interleaved=False, fused=False, cu_seqlens=None, cp_size=1, "
    "cp_rank=0",
    "transformer_engine.parallel_cross_entropy": "inp, target, label_smoothing=0.0, "
    "reduce_loss=False, dist_process_group=None, ignore_idx=-100, "
    "is_cg_capturable=False, *, _input=None",
    "xformers.memory_efficient_attention": "query, key, value, attn_bias=None, p=0.0, "
    "scale=None, *, op=None, output_dtype=None",
    "xformers.memory_efficient_attention_forward": "query, key, value, attn_bias=None, "
    "p=0.0, scale=None, *, op=None, output_dtype=None",
}


@pytest.mark.parametrize("where", PARAMETERS)
def test_a_function_has_the_parameters_and_defaults_of_the_frameworks(where):
    file, _, name = where.partition(".")
    ours = getattr(importlib.import_module(f"kiln.compat.{file}"), name)
    theirs = eval(f"lambda {PARAMETERS[where]}: None")
    assert _finder._takes_what(theirs, ours), "it would not be replaced"
    known = inspect.signature(ours).parameters
    for each in inspect.signature(theirs).parameters.values():
        if each.name in known:
            assert known[each.name].default == each.default, each.name


def test_a_function_of_other_parameters_stays_with_a_warning(monkeypatch):
    module = types.ModuleType("liger_kernel.ops.swiglu")
    module.LigerSiLUMulFunction = autograd_function(lambda ctx, a, b, of_the_next: a)
    module.LigerFusedGateUpSiLUMulFunction = autograd_function(lambda ctx, y: y)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.warns(compat.FallbackWarning, match="SiLUMulFunction.apply stays as it"):
        compat.install("liger")
    assert module.LigerSiLUMulFunction.apply(torch.ones(1), 2, 3) == 1
    assert module.LigerFusedGateUpSiLUMulFunction.apply.is_of_kiln


def autograd_function(forward):
    return type("Function", (torch.autograd.Function,), {"forward": staticmethod(forward)})


# ---- The framework's own path


def unavailable(*_):
    raise errors.Unavailable("no NVRTC was found")


def test_the_original_takes_the_place_of_what_kiln_cannot_do_with_one_warning():
    call = _own_path.guarded("module.f", unavailable, lambda: lambda *_: "original")
    with pytest.warns(compat.FallbackWarning, match=r"module\.f.*no NVRTC was found"):
        assert call(1) == "original"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call(1) == "original"


def test_a_formula_takes_it_where_there_is_no_original():
    function = _own_path.unfused(lambda x: x + 1)(lambda x: unavailable())
    with pytest.warns(compat.FallbackWarning):
        assert _own_path.guarded("module.f", function, lambda: None)(1) == 2
    with pytest.raises(errors.Unavailable):
        _own_path.guarded("module.f", unavailable, lambda: None)()


def test_where_it_must_be_kiln_it_is_an_error(monkeypatch):
    call = _own_path.guarded("module.f", unavailable, lambda: lambda *_: "original")
    monkeypatch.setenv("KILN_PYTHON_STRICT", "1")
    with pytest.raises(errors.Unavailable, match="no NVRTC was found"):
        call(1)


def test_what_kiln_refuses_is_left_to_the_original_and_other_errors_are_not_hidden():
    def fail(error):
        raise error

    call = _own_path.guarded("module.f", fail, lambda: lambda _: "original")
    with pytest.warns(compat.FallbackWarning, match="float64"):
        assert call(errors.InvalidArgument("there is no float64")) == "original"
    for error in (TypeError("a wrong type"), errors.Corrupt("a wrong file")):
        with pytest.raises(type(error)):
            call(error)


@needs_torch
def test_kernels_that_are_switched_off_leave_their_path_to_the_framework(nvrtc, python):
    said = python(
        """
        import os, warnings, torch
        import kiln, kiln.compat, kiln.testing
        kiln.testing.use_simulated_device()
        kiln.compat.install("apex")
        import scaled_softmax_cuda as module
        x = torch.randn(1, 1, 4, 24).half()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            y = module.forward(x, 1.0)
            assert torch.equal(module.forward(x, 1.0), y)
        torch.testing.assert_close(y, torch.softmax(x.float(), -1).half())
        assert len(caught) == 1 and "KILN_DISABLE" in str(caught[0].message), caught
        os.environ["KILN_PYTHON_STRICT"] = "1"
        try:
            module.forward(x, 1.0)
        except kiln.Unavailable as error:
            print("KILN_DISABLE" in str(error), not kiln.testing.launches())
        """,
        torch=True,
        KILN_DISABLE="*",
    )
    assert said == "True True"


# ---- TransformerEngine

ANGLES = torch.outer(torch.arange(9.0), torch.tensor([1.0, 0.1, 0.03]))


def rotated(interleaved, sequence_at):
    """apply_rotary_pos_emb of TransformerEngine, unfused."""
    of_halves, of_pairs = torch.cat([ANGLES] * 2, -1), ANGLES.repeat_interleave(2, -1)
    angles = of_pairs if interleaved else of_halves

    def reference(t):
        table = angles[: t.shape[sequence_at], None, None]
        if sequence_at == 1:
            table = table.transpose(0, 1)
        cos, sin = table.cos().to(t.dtype), table.sin().to(t.dtype)
        t, rest = t[..., :6], t[..., 6:]
        half = rotate_half(t)
        if interleaved:
            half = torch.stack([-t[..., 1::2], t[..., ::2]], -1).flatten(-2)
        return torch.cat([t * cos + half * sin, rest], -1)

    return angles[:, None, None], reference


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("layout", ["sbhd", "bshd"])
def test_rope_of_transformer_engine_is_its_unfused_one(layout, interleaved):
    from transformer_engine.pytorch.attention.rope import apply_rotary_pos_emb

    freqs, reference = rotated(interleaved, layout.index("s"))
    t = torch.randn(6, 2, 3, 8) if layout == "sbhd" else torch.randn(2, 6, 3, 8)

    def call(t):
        return apply_rotary_pos_emb(t, freqs, layout, None, interleaved, True)

    check(call, reference, t)
    check(call, reference, t.to(BF16))
    transposed = t.transpose(1, 2).contiguous().transpose(1, 2)
    assert call(transposed).is_contiguous()
    torch.testing.assert_close(call(transposed), call(t))


def test_rope_of_transformer_engine_takes_packed_sequences_and_leaves_the_rest():
    from transformer_engine.pytorch.attention.rope import apply_rotary_pos_emb

    freqs, reference = rotated(False, 0)
    t, ends = torch.randn(8, 3, 8), torch.tensor([0, 2, 8], dtype=torch.int32)
    out = apply_rotary_pos_emb(t, freqs, "thd", fused=True, cu_seqlens=ends)
    parts = [reference(each[:, None])[:, 0] for each in t.split([2, 6])]
    torch.testing.assert_close(out, torch.cat(parts))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert apply_rotary_pos_emb(t, freqs) == "apply_rotary_pos_emb", "not fused"
    with pytest.warns(compat.FallbackWarning, match="start positions"):
        starts = torch.zeros(2)
        own = apply_rotary_pos_emb(t, freqs, start_positions=starts, fused=True)
    assert own == "apply_rotary_pos_emb"


def test_cross_entropy_of_transformer_engine_is_torchs_in_float32():
    from transformer_engine.pytorch.cross_entropy import parallel_cross_entropy

    logits = torch.randn(2, 5, 33)
    target = torch.randint(33, (2, 5))
    target[1, 2] = -100
    for smoothing, is_mean in ((0.0, False), (0.1, True)):

        def reference(x):
            wide = x if x.dtype == torch.float64 else x.float()
            reduction = "mean" if is_mean else "none"
            loss = F.cross_entropy(
                *(wide.flatten(0, 1), target.flatten()),
                reduction=reduction,
                label_smoothing=smoothing,
            )
            return loss if is_mean else loss.view(2, 5)

        def call(x):
            return parallel_cross_entropy(x, target, smoothing, is_mean, None)

        check(call, reference, logits)
        check(call, reference, logits.to(BF16))
    ignored = torch.full((2, 5), -100)
    loss = parallel_cross_entropy(logits.requires_grad_(), ignored, 0.0, True)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss == 0 and not gradient.any()


# ---- Liger


def launches_of(call, *inputs):
    """What the device launched in a call and its backward pass."""
    before = len(launched())
    sum(each.float().sum() for each in outputs_of(call(*inputs))).backward()
    return launched()[before:]


def test_modules_and_functions_of_liger_launch_kilns_kernels():
    from liger_kernel import transformers as liger
    from liger_kernel.transformers import functional

    def x():
        return torch.randn(2, 5, 48, requires_grad=True)

    config = types.SimpleNamespace(hidden_size=48, intermediate_size=48, hidden_act="silu")
    heads = [torch.randn(2, n, 6, 8, requires_grad=True) for n in (3, 1)]
    cos, sin = (torch.cat([t, t], -1)[None] for t in (ANGLES.cos(), ANGLES.sin()))
    target = torch.tensor([3, -100, 0, 23, 1])
    flat = x().detach()[0].requires_grad_()
    calls = {
        "rms_norm": (liger.LigerRMSNorm(48), x()),
        "layer_norm": (liger.LigerLayerNorm(48), x()),
        "rope": (lambda q, k: liger.liger_rotary_pos_emb(q, k, cos, sin), *heads),
        "swiglu": (liger.LigerSwiGLUMLP(config), x()),
        "cross_entropy": (lambda t: liger.LigerCrossEntropyLoss()(t, target), flat),
        "rms_norm by keyword": (
            lambda t: functional.liger_rms_norm(X=t, W=torch.ones(48), eps=1e-6), x()
        ),
        "squared_relu": (functional.liger_relu_squared, x()),
        "geglu": (functional.liger_geglu, x(), x()),
        "fused_add_rms_norm": (
            lambda t, r: functional.liger_fused_add_rms_norm(t, r, torch.ones(48), 1e-6),
            *(x(), x()),
        ),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", compat.FallbackWarning)
        counts = {name: len(launches_of(*call)) for name, call in calls.items()}
    assert all(counts.values()), counts


def test_liger_chooses_kilns_implementation_unless_it_is_told_another(monkeypatch):
    from liger_kernel import backends, functional

    monkeypatch.setattr(backends.registry, "_REGISTRY", dict(backends.registry._REGISTRY))
    register = backends.register_impl("rms_norm", impl_name="nvidia-cutedsl", preference_rank=1)
    register(lambda *_, **__: "cutedsl")
    x, weight = torch.randn(5, 48, requires_grad=True), torch.ones(48)
    assert launches_of(lambda x: functional.rms_norm(x, weight, 1e-6), x)
    assert backends.resolve_impl("softmax").impl_name == "nvidia-triton", "Kiln has none"
    monkeypatch.setenv("LIGER_KERNEL_IMPL_RMS_NORM", "nvidia-cutedsl")
    assert functional.rms_norm(x, weight, 1e-6) == "cutedsl"


def test_norms_of_liger_are_those_of_their_models():
    from liger_kernel.transformers import functional as liger

    x, weight, bias = torch.randn(5, 48), torch.rand(48), torch.randn(48)
    half = [each.to(BF16) for each in (x, weight)]
    check(lambda x, w: liger.liger_rms_norm(x, w, 1e-6), llama, *half)
    check(
        lambda x, w: liger.liger_rms_norm(x, w, 1e-6, 1.0, "gemma", False),
        gemma,
        x,
        weight,
    )
    check(
        lambda x: liger.liger_rms_norm(x, None, 1e-6),
        lambda x: F.rms_norm(x, (48,), None, 1e-6),
        x,
    )
    check(
        lambda x, w, b: liger.liger_layer_norm(x, w, b, 1e-5),
        lambda x, w, b: F.layer_norm(x, (48,), w, b),
        *(x, weight, bias),
    )
    check(
        lambda x, r, w: liger.liger_fused_add_rms_norm(x, r, w, 1e-6),
        lambda x, r, w: (llama(x + r, w), x + r),
        *(half[0], half[0].flip(0), half[1]),
    )


def test_the_other_functions_of_liger_are_their_formulas():
    from liger_kernel.ops import LigerFusedGateUpSiLUMulFunction
    from liger_kernel.transformers import functional as liger

    a, b = torch.randn(5, 24), torch.randn(5, 24)
    for dtype in (F32, BF16):
        both = a.to(dtype), b.to(dtype)
        check(liger.liger_swiglu, lambda a, b: F.silu(a) * b, *both)
        check(liger.liger_geglu, lambda a, b: F.gelu(a, approximate="tanh") * b, *both)
        check(liger.liger_relu_squared, lambda a: F.relu(a).square(), both[0])
    check(
        LigerFusedGateUpSiLUMulFunction.apply,
        lambda y: F.silu(y[:, :12]) * y[:, 12:],
        a,
    )
    angles = torch.cat([ANGLES, ANGLES], -1)[None, :5]

    def reference(q, k):
        cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
        return tuple(each * cos + rotate_half(each) * sin for each in (q, k))

    q, k = torch.randn(2, 4, 5, 6), torch.randn(2, 1, 5, 6)
    cos, sin = angles.cos(), angles.sin()
    check(lambda q, k: liger.liger_rope(q, k, cos, sin), reference, q, k)
    target = torch.tensor([3, -100, 0, 23, 1])
    check(
        lambda x: liger.liger_cross_entropy(x, target, label_smoothing=0.1),
        lambda x: F.cross_entropy(x, target, label_smoothing=0.1),
        a,
    )
    assert liger.liger_cross_entropy(a, torch.full((5,), -100)) == 0, "and not nan"


def test_what_kiln_has_not_is_left_to_liger():
    from liger_kernel.transformers import functional as liger

    a, target = torch.randn(5, 24), torch.tensor([3, -100, 0, 23, 1])
    calls = {
        "offset": lambda: liger.liger_rms_norm(a, torch.rand(24), 1e-6, 1.0),
        "softcap": lambda: liger.liger_cross_entropy(a, target, softcap=30.0),
        "float64": lambda: liger.liger_relu_squared(a.double()),
    }
    for why, call in calls.items():
        # Its own kernel would run now, if Triton were here.
        with pytest.warns(compat.FallbackWarning, match=why):
            with pytest.raises(Exception, match="Triton|triton|callable|Anything"):
                call()


def test_functions_of_liger_keep_their_types_under_autocast():
    from liger_kernel.transformers import functional

    x, weight = torch.randn(5, 48).to(BF16), torch.rand(48).to(BF16)
    with torch.autocast("cpu", dtype=BF16):
        assert functional.liger_rms_norm(x, weight, 1e-6).dtype == BF16
        assert ops.rms_norm(x, weight).dtype == F32


# ---- xformers


def test_attention_of_xformers_is_replaced_and_what_kiln_has_not_is_left_to_it():
    from xformers.ops import fmha, memory_efficient_attention

    assert fmha.memory_efficient_attention is memory_efficient_attention
    q, k, v = (torch.randn(2, 5, 4, 16) for _ in "qkv")
    expected = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)))
    result = memory_efficient_attention(q, k, v)
    torch.testing.assert_close(result, expected.transpose(1, 2))
    paged = type("PagedBlockDiagonalPaddedKeysMask", (), {})()
    with pytest.warns(compat.FallbackWarning, match="of the class PagedBlockDiagonal"):
        own = memory_efficient_attention(q, k, v, paged)
    assert own == "memory_efficient_attention"
