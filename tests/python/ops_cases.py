"""Each operation once or more: what kiln computes, what torch says, and of what.

The shapes are small, and so are the kinds of kernel: the simulated device computes one
thread at a time, and runs their PTX.
"""

import dataclasses
from typing import Callable

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402

from kiln import ops  # noqa: E402

F32, BF16 = torch.float32, torch.bfloat16


@dataclasses.dataclass
class Case:
    name: str
    kiln: Callable
    torch: Callable  # of any type, float64 too
    shapes: tuple  # of the inputs, which are random, and have gradients
    dtypes: tuple = (F32, BF16)

    def inputs(self, dtype, requires_grad=True):
        made = [torch.randn(shape).to(dtype) for shape in self.shapes]
        return [each.requires_grad_(requires_grad) for each in made]


def masked(x, mask, scale):
    return torch.softmax((x * scale).masked_fill(mask, float("-inf")), -1)


def later(queries, keys):
    """Key j of query i with j > i + keys - queries."""
    return torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)


SOME = torch.arange(2 * 5 * 24).view(2, 1, 5, 24) % 7 == 3


def rms(x, weight=None, eps=1e-6):
    return F.rms_norm(x, x.shape[-1:] if weight is None else weight.shape, weight, eps)


def llama(x, weight):
    """LlamaRMSNorm of transformers, which rounds the normalized x; of any type."""
    wide = x.double() if x.dtype == torch.float64 else x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * wide.to(x.dtype)


def gemma(x, weight):
    """GemmaRMSNorm of transformers; of any type."""
    wide = x.double() if x.dtype == torch.float64 else x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (wide * (1.0 + weight.to(wide.dtype))).to(x.dtype)


def far_from_0(weight):
    """From 0.5 to 1.5. Out of y = x * weight + bias, x has y's rounding over the weight."""
    return 1 + weight.tanh() / 2


def layer_norm_from_y(x, weight, bias, **options):
    weight = far_from_0(weight)
    return ops.layer_norm(x, weight, bias, memory_efficient=True, **options)


def layer(x, weight, bias):
    return F.layer_norm(x, weight.shape, far_from_0(weight), bias)


def summed(norm):
    """A norm of x + residual, which is returned, too."""

    def call(x, residual, *others):
        total = x + residual
        return norm(total, *others), total

    return call


ANGLES = torch.outer(torch.arange(6.0), torch.tensor([1.0, 0.1, 0.03, 0.01]))


def tables(per_pair):
    """cos and sin of 6 positions: for each pair, or for each of 8 elements."""
    angles = ANGLES if per_pair else torch.cat([ANGLES, ANGLES], -1)
    return angles.cos(), angles.sin()


def angles_of_halves(positions, dim):
    """Of each element of a head, as Llama has them."""
    steps = 10000 ** (-torch.arange(0, dim, 2) / dim)
    at = torch.outer(torch.arange(float(positions)), steps)
    return torch.cat([at, at], -1)


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


def rotated_by_halves(x, heads_at):
    """apply_rotary_pos_emb of transformers."""
    cos, sin = (t.to(x.dtype).unsqueeze(heads_at - 1) for t in tables(per_pair=False))
    return x * cos + rotate_half(x) * sin


def rotated_by_pairs(x):
    """apply_rotary_pos_emb of GPT-J, of [batch, sequence, heads, dim]."""
    cos, sin = (
        t.to(x.dtype).repeat_interleave(2, -1)[:, None] for t in tables(per_pair=True)
    )
    every_two = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * cos + every_two * sin


def rope(layout, style="half"):
    def call(q, k):
        cos, sin = tables(per_pair=style == "interleaved")
        return ops.rope(q, k, cos, sin, style, layout=layout, rotary_dim=8)

    return call


def both(function):
    return lambda q, k: (function(q), function(k))


def glu(activation):
    def call(x, bias=None):
        gate, linear = (x if bias is None else x + bias).chunk(2, -1)
        return activation(gate) * linear

    return call


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


TARGET = torch.tensor([3, -100, 0, 32])
TARGET_OF_3D = torch.tensor([[3, -100, 0], [6, 2, 2]])


def attention(**options):
    return lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, **options)


def torch_attention(**options):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)


SEEN = torch.arange(5 * 7).view(5, 7) % 3 != 1
QKV = ((2, 4, 5, 16), (2, 4, 7, 16), (2, 4, 7, 16))

CASES = [
    Case("softmax", lambda x: ops.softmax(x, 0.5), lambda x: masked(x, x.new_zeros(1) > 0, 0.5),
         ((2, 3, 5, 24),)),
    Case("softmax_masked", lambda x: ops.softmax(x, 2.0, SOME[: len(x)]),
         lambda x: masked(x, SOME, 2.0), ((2, 3, 5, 24),)),
    Case("softmax_causal", lambda x: ops.softmax(x, causal=True),
         lambda x: masked(x, later(5, 24), 1.0), ((3, 5, 24),)),
    Case("layer_norm", ops.layer_norm, lambda x, w, b: F.layer_norm(x, w.shape, w, b),
         ((2, 5, 48), (48,), (48,))),
    Case("layer_norm_without_bias", ops.layer_norm, lambda x, w: F.layer_norm(x, w.shape, w),
         ((5, 48), (48,)), (F32,)),
    Case("layer_norm_of_two_dimensions", ops.layer_norm,
         lambda x, w, b: F.layer_norm(x, w.shape, w, b), ((5, 6, 8), (6, 8), (6, 8)), (F32,)),
    Case("layer_norm_residual", lambda x, r, w, b: ops.layer_norm(x, w, b, residual=r),
         summed(lambda x, w, b: F.layer_norm(x, w.shape, w, b)),
         ((5, 48), (5, 48), (48,), (48,))),
    # Of so many columns that the device has the kernels.
    Case("layer_norm_without_weight", ops.layer_norm, lambda x: F.layer_norm(x, x.shape[-1:]),
         ((3, 520),), (F32,)),
    Case("layer_norm_from_y", layer_norm_from_y, layer, ((5, 48), (48,), (48,))),
    Case("layer_norm_from_y_residual", lambda x, r, w, b: layer_norm_from_y(x, w, b, residual=r),
         summed(layer), ((5, 48), (5, 48), (48,), (48,)), (F32,)),
    Case("layer_norm_from_y_without_weight", lambda x: ops.layer_norm(x, memory_efficient=True),
         lambda x: F.layer_norm(x, x.shape[-1:]), ((5, 48),), (F32,)),
    Case("rms_norm", ops.rms_norm, rms, ((2, 5, 48), (48,))),
    Case("rms_norm_residual", lambda x, r, w: ops.rms_norm(x, w, residual=r), summed(rms),
         ((5, 48), (5, 48), (48,)), (F32, torch.float16)),
    Case("rms_norm_llama", lambda x, w: ops.rms_norm(x, w, casting="llama"), llama,
         ((5, 48), (48,)), (BF16,)),
    Case("rms_norm_gemma", lambda x, w: ops.rms_norm(x, w, casting="gemma"), gemma,
         ((5, 48), (48,))),
    Case("rms_norm_residual_without_weight", lambda x, r: ops.rms_norm(x, residual=r), summed(rms),
         ((5, 48), (5, 48)), (BF16,)),
    Case("rms_norm_from_y", lambda x, w: ops.rms_norm(x, w, memory_efficient=True), rms,
         ((5, 48), (48,))),
    Case("rms_norm_from_y_residual",
         lambda x, r, w: ops.rms_norm(x, w, residual=r, memory_efficient=True), summed(rms),
         ((5, 48), (5, 48), (48,)), (F32,)),
    Case("rms_norm_from_y_without_weight", lambda x: ops.rms_norm(x, memory_efficient=True), rms,
         ((5, 48),), (F32,)),
    Case("rope", rope("bshd"), both(lambda x: rotated_by_halves(x, 2)),
         ((2, 6, 3, 8), (2, 6, 1, 8))),
    Case("rope_of_bhsd", rope("bhsd"), both(lambda x: rotated_by_halves(x, 1)),
         ((2, 3, 6, 8), (2, 1, 6, 8)), (F32,)),
    Case("rope_interleaved", rope("bshd", "interleaved"), both(rotated_by_pairs),
         ((2, 6, 3, 8), (2, 6, 1, 8))),
    Case("bias_gelu", ops.bias_gelu, lambda x, b: gelu_tanh(x + b), ((3, 5, 24), (24,))),
    Case("bias_gelu_erf", lambda x, b: ops.bias_gelu(x, b, approximate="none"),
         lambda x, b: F.gelu(x + b), ((3, 5, 24), (24,))),
    Case("squared_relu", ops.squared_relu, lambda x: F.relu(x).square(), ((3, 5, 24),)),
    Case("swiglu", ops.swiglu, glu(F.silu), ((3, 5, 48),)),
    Case("swiglu_bias", ops.swiglu, glu(F.silu), ((15, 48), (48,)), (F32,)),
    Case("swiglu_split", lambda g, l: ops.swiglu(g, linear=l), lambda g, l: F.silu(g) * l,
         ((15, 24), (15, 24)), (F32,)),
    Case("geglu", ops.geglu, glu(gelu_tanh), ((15, 48),)),
    Case("geglu_erf", lambda x, b: ops.geglu(x, b, approximate="none"), glu(F.gelu),
         ((15, 48), (48,)), (F32,)),
    Case("cross_entropy", lambda x: ops.cross_entropy(x, TARGET),
         lambda x: F.cross_entropy(x, TARGET), ((4, 33),)),
    Case("cross_entropy_smoothed_sum",
         lambda x: ops.cross_entropy(x, TARGET[: len(x)], label_smoothing=0.1, reduction="sum"),
         lambda x: F.cross_entropy(x, TARGET, label_smoothing=0.1, reduction="sum"),
         ((4, 33),), (F32,)),
    Case("cross_entropy_of_each",
         lambda x: ops.cross_entropy(x, TARGET_OF_3D[: len(x)], reduction="none"),
         lambda x: F.cross_entropy(x, TARGET_OF_3D, reduction="none"), ((2, 7, 3),), (F32,)),
    Case("attention", attention(), torch_attention(), QKV),
    Case("attention_causal", attention(is_causal=True, scale=0.3),
         torch_attention(is_causal=True, scale=0.3), QKV, (F32,)),
    Case("attention_grouped", attention(enable_gqa=True), torch_attention(enable_gqa=True),
         ((2, 4, 5, 16), (2, 2, 7, 16), (2, 2, 7, 16)), (BF16,)),
    Case("attention_masked", attention(attn_mask=SEEN), torch_attention(attn_mask=SEEN), QKV,
         (F32,)),
    Case("attention_biased",
         lambda q, k, v, m: ops.scaled_dot_product_attention(q, k, v, attn_mask=m),
         lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
         (*QKV, (4, 5, 7)), (F32,)),
    Case("attention_biased_by_batch",
         lambda q, k, v, m: ops.scaled_dot_product_attention(q, k, v, attn_mask=m),
         lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
         (*QKV, (2, 1, 5, 7)), (F32,)),
]


def id_of(value):
    """For pytest: the names of cases and types."""
    return value.name if isinstance(value, Case) else str(value).removeprefix("torch.")


CASES_AND_TYPES = [(case, dtype) for case in CASES for dtype in case.dtypes]
# One of each operation: for what does not depend on options.
ONE_EACH = [
    case
    for case in CASES
    if case.name in (
        "softmax", "layer_norm", "layer_norm_residual", "layer_norm_from_y", "rms_norm",
        "rms_norm_residual", "rms_norm_from_y", "rms_norm_from_y_without_weight", "rope",
        "bias_gelu", "swiglu", "cross_entropy", "attention", "attention_biased",
    )
]


def outputs_of(result):
    return result if isinstance(result, tuple) else (result,)


def gradients_of(result, inputs):
    """For gradients that depend on each element, and the same in each type."""
    outputs = outputs_of(result)
    towards = [
        torch.linspace(-1, 1, each.numel()).view(each.shape).to(each.dtype) for each in outputs
    ]
    return torch.autograd.grad(outputs, inputs, towards)


class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
    """The operations of kiln that the dispatcher sees, and their arguments."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "kiln":
            self.calls.append((function, args))
        return function(*args, **(kwargs or {}))


def calls_of(case, dtype):
    """The calls of torch.ops.kiln in both passes, forward first."""
    inputs = case.inputs(dtype)
    with Recorder() as recorder:
        gradients_of(case.kiln(*inputs), inputs)
    return recorder.calls
