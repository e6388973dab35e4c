"""What kiln.jax computes, what a formula or JAX itself says, and of what.

The shapes are small, and most are those of ops_cases.py: so are the kernels, and the cache has them.
Inputs and comparisons are NumPy's, since JAX compiles a program for each operation and shape.
"""

import dataclasses
from typing import Callable

import jax_device  # noqa: F401  before JAX
import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402

import kiln.jax as kj  # noqa: E402

F32, BF16 = jnp.float32, jnp.bfloat16
BOUND = {"float32": 2e-6, "bfloat16": 2 * 2.0**-7}  # of the largest element


def numbers(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def pulled_back(function):
    """Outputs, and the gradients that depend on each element of them."""

    def call(*inputs):
        outputs, pull = jax.vjp(function, *inputs)
        towards = jax.tree.map(
            lambda y: jnp.linspace(-1, 1, y.size).reshape(y.shape).astype(y.dtype), outputs
        )
        return outputs, pull(towards)

    return call


def check_near(results, references, bound):
    results, references = map(jax.tree.leaves, (results, references))
    for result, reference in zip(results, references, strict=True):
        result, reference = (np.asarray(each, np.float32) for each in (result, reference))
        assert result.shape == reference.shape
        scale = max(1.0, float(np.abs(reference).max(initial=0)))
        worst = float(np.abs(result - reference).max(initial=0))
        assert worst <= bound * scale, (worst, scale, result.shape)


@dataclasses.dataclass
class Case:
    name: str
    kiln: Callable
    formula: Callable  # of float32
    shapes: tuple
    dtypes: tuple = (F32,)

    def check(self, dtype):
        """Results and gradients, in one program with those of the formula."""
        inputs = [numbers(shape, i).astype(dtype) for i, shape in enumerate(self.shapes)]

        @jax.jit
        def both(*inputs):
            wide = [each.astype(F32) for each in inputs]
            return pulled_back(self.kiln)(*inputs), pulled_back(self.formula)(*wide)

        results, references = both(*inputs)
        assert all(each.dtype == dtype for each in jax.tree.leaves(results))
        check_near(results, references, BOUND[jnp.dtype(dtype).name])


def masked(x, mask, scale=1.0):
    return jax.nn.softmax(jnp.where(mask, -jnp.inf, x * scale), -1)


def later(queries, keys):
    """Key j of query i with j > i + keys - queries."""
    return ~np.tri(queries, keys, keys - queries, dtype=bool)


def normalized(x):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def angles(positions, columns):
    steps = 10.0 ** -np.arange(float(columns))
    return np.outer(np.arange(float(positions)), steps).astype(np.float32)


def by_halves(x, cos, sin):
    """GPT-NeoX and Llama: cos and sin of each element."""
    a, b = jnp.split(x, 2, -1)
    return x * cos + jnp.concatenate([-b, a], -1) * sin


def by_pairs(x, cos, sin):
    """GPT-J: cos and sin of each pair."""
    a, b = x[..., ::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


ANGLES = angles(6, 4)
TWICE = np.concatenate([ANGLES, ANGLES], -1)
OF_EACH = np.stack([TWICE, TWICE[::-1]])  # position ids applied


def rope(table, style="half"):
    return lambda q, k: kj.rope(q, k, np.cos(table), np.sin(table), style, 8)


def rotated(rotate, table):
    table = table[..., None, :]  # the same for each head
    return lambda q, k: tuple(rotate(x, np.cos(table), np.sin(table)) for x in (q, k))


def attention(**options):
    return lambda *arrays: kj.dot_product_attention(*arrays, **options)


def of_jax(**options):
    return lambda *arrays: jax.nn.dot_product_attention(*arrays, **options)


SOME = np.arange(2 * 5 * 24).reshape(2, 1, 5, 24) % 7 == 3
SEEN = np.arange(2 * 5 * 7).reshape(2, 1, 5, 7) % 3 != 1
ALIBI = np.array([2.0**-4, 2.0**-8], np.float32)[:, None, None] * -abs(
    np.arange(7) - np.arange(5)[:, None]
)
LENGTHS = {
    "query_seq_lengths": np.array([5, 3], np.int32),
    "key_value_seq_lengths": np.array([2, 7], np.int32),
}
QKV = ((2, 5, 2, 16), (2, 7, 2, 16), (2, 7, 2, 16))
GROUPED = ((2, 5, 2, 16), (2, 7, 1, 16), (2, 7, 1, 16))
QK = ((2, 6, 3, 8), (2, 6, 1, 8))

CASES = [
    Case("softmax", lambda x: kj.softmax(x, 0.5), lambda x: masked(x, False, 0.5),
         ((2, 3, 5, 24),), (F32, BF16)),
    Case("softmax_of_a_row", kj.softmax, lambda x: masked(x, False), ((24,),)),
    Case("softmax_masked", lambda x: kj.softmax(x, 2.0, SOME), lambda x: masked(x, SOME, 2.0),
         ((2, 3, 5, 24),)),
    Case("softmax_causal", lambda x: kj.softmax(x, causal=True),
         lambda x: masked(x, later(5, 24)), ((3, 5, 24),)),
    Case("rms_norm", kj.rms_norm, lambda x, w: normalized(x) * w, ((2, 5, 48), (48,)),
         (F32, BF16)),
    Case("rms_norm_llama", lambda x, w: kj.rms_norm(x, w, casting="llama"),
         lambda x, w: normalized(x) * w, ((5, 48), (48,)), (BF16,)),
    Case("rms_norm_gemma", lambda x, w: kj.rms_norm(x, w, casting="gemma"),
         lambda x, w: normalized(x) * (1 + w), ((5, 48), (48,))),
    Case("rms_norm_without_weight", kj.rms_norm, normalized, ((5, 48),)),
    # w is far from 0: out of y, x has y's rounding over w.
    Case("rms_norm_from_y",
         lambda x, w: kj.rms_norm(x, 1 + jnp.tanh(w) / 2, memory_efficient=True),
         lambda x, w: normalized(x) * (1 + jnp.tanh(w) / 2), ((5, 48), (48,))),
    Case("rope", rope(TWICE), rotated(by_halves, TWICE), QK, (F32, BF16)),
    Case("rope_interleaved", rope(ANGLES, "interleaved"), rotated(by_pairs, ANGLES), QK),
    Case("rope_of_position_ids", rope(OF_EACH), rotated(by_halves, OF_EACH), QK),
    Case("attention", attention(), of_jax(), QKV, (F32, BF16)),
    Case("attention_without_batch", attention(scale=0.3), of_jax(scale=0.3),
         tuple(shape[1:] for shape in QKV)),
    Case("attention_causal", attention(is_causal=True), of_jax(is_causal=True), QKV),
    Case("attention_grouped", attention(), of_jax(), GROUPED, (BF16,)),
    Case("attention_in_a_window", attention(local_window_size=(2, 1)),
         of_jax(local_window_size=(2, 1)), QKV),
    Case("attention_of_lengths", attention(is_causal=True, **LENGTHS),
         of_jax(is_causal=True, **LENGTHS), QKV),
    Case("attention_biased", attention(), of_jax(), (*QKV, (1, 2, 1, 7))),
    Case("attention_biased_by_batch", attention(), of_jax(), (*GROUPED, (2, 1, 5, 7))),
    Case("attention_biased_by_keys", attention(), of_jax(), (*QKV, (2, 1, 1, 7))),
    Case("attention_alibi", attention(alibi=True), of_jax(bias=ALIBI), QKV),
    Case("attention_masked_by_keys", attention(mask=SEEN[:, :, :1]), of_jax(mask=SEEN[:, :, :1]),
         QKV),
    Case("attention_masked", attention(mask=SEEN), of_jax(mask=SEEN), QKV),
    Case("attention_masked_of_lengths", attention(mask=SEEN, **LENGTHS),
         of_jax(mask=SEEN, **LENGTHS), QKV),
]
# Each handler, with each kind of array that it takes.
ONE_EACH = [
    case
    for case in CASES
    if case.name in (
        "softmax_masked", "rms_norm", "rms_norm_without_weight", "rms_norm_from_y",
        "rope_of_position_ids", "attention_of_lengths", "attention_biased_by_batch",
    )
]
