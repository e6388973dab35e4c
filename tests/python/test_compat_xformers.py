"""memory_efficient_attention of kiln.compat against its formula, on two devices of
different kinds.

The classes of biases are stand-ins, with the names and attributes of those of xformers.
"""

from types import SimpleNamespace

import ops_device
import pytest
from ops_cases import BF16, F32, gradients_of, ops, torch
from ops_device import device  # noqa: F401

import kiln.testing
from kiln.compat.xformers import (
    memory_efficient_attention,
    memory_efficient_attention_forward,
)

ops_device.CAPABILITIES = "9.0,8.6"


def a(name, **attributes):
    """An object of a class with that name."""
    return type(name, (), attributes)()


def formula(q, k, v, visible=None, bias=None, scale=None):
    """Of [batch, tokens, heads, dim], in the type of q."""
    scores = torch.einsum("bmhk,bnhk->bhmn", q, k) * (scale or q.shape[-1] ** -0.5)
    scores = scores if bias is None else scores + bias
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    return torch.einsum("bhmn,bnhk->bmhk", scores.softmax(-1), v)


def check(call, reference, *inputs):
    """The result and the gradients, in float32."""
    own, same = ([each.clone().requires_grad_() for each in inputs] for _ in range(2))
    results = call(*own), reference(*same)
    torch.testing.assert_close(*results)
    of = gradients_of(results[0], own), gradients_of(results[1], same)
    torch.testing.assert_close(*of, rtol=1e-5, atol=1e-5)


def tensors(queries=5, keys=7, dtype=F32):
    q, k, v = (torch.randn(2, n, 4, 16) for n in (queries, keys, keys))
    return [each.to(dtype) for each in (q, k, v)]


# ---- Four dimensions and five


@pytest.mark.parametrize("ordinal", [0, 1])
@pytest.mark.parametrize("bias", [None, a("LowerTriangularMask")], ids=["all", "some"])
def test_five_dimensions_give_the_bits_of_four_on_each_kind_of_device(bias, ordinal):
    assert [each.capability for each in kiln.devices()] == [(9, 0), (8, 6)]
    q = torch.randn(2, 5, 2, 3, 16, dtype=BF16, requires_grad=True)
    k, v = (torch.randn(2, 7, 2, 1, 16, dtype=BF16, requires_grad=True) for _ in "kv")
    grouped = (q, k.expand(2, 7, 2, 3, 16), v.expand(2, 7, 2, 3, 16))
    before, copies = len(kiln.testing.launches()), ops.copies()
    with kiln.testing.device(ordinal):
        of_5 = memory_efficient_attention(*grouped, bias)
        dq_of_5, *of_kv_5 = gradients_of(of_5, (q, k, v))
        assert ops.copies() == copies, "keys and values are not repeated"
        flat = (each.flatten(2, 3) for each in grouped)
        of_4 = memory_efficient_attention(*flat, bias)
        dq_of_4, *of_kv_4 = gradients_of(of_4, (q, k, v))
    assert of_5.shape == (2, 5, 2, 3, 16) and of_4.shape == (2, 5, 6, 16)
    assert of_5.is_contiguous() and of_4.is_contiguous()
    assert torch.equal(of_5.flatten(2, 3), of_4) and torch.equal(dq_of_5, dq_of_4)
    for ours, theirs in zip(of_kv_5, of_kv_4):  # the latter are sums of rounded numbers
        torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)
    launches = kiln.testing.launches()[before:]
    assert {each.device for each in launches} == {ordinal}
    assert len({each.kernel for each in launches}) == 2, "one for each pass"


def test_three_dimensions_are_one_head():
    q, k, v = (each[:, :, 0] for each in tensors())
    expected = memory_efficient_attention(*(each[:, :, None] for each in (q, k, v)))
    assert torch.equal(memory_efficient_attention(q, k, v), expected[:, :, 0])


def side_by_side(q_heads, kv_heads):
    """q, k and v of two groups that lie side by side in one tensor, which is first."""
    qkv = torch.randn(2, 5, 2, q_heads + 2 * kv_heads, 16, requires_grad=True)
    return qkv, *qkv.split((q_heads, kv_heads, kv_heads), dim=3)


@pytest.mark.parametrize("bias", [None, "one", "each"])
def test_grouped_queries_inside_a_packed_tensor_are_not_copied(bias):
    qkv, q, k, v = side_by_side(3, 1)
    added = None if bias is None else torch.randn(1 if bias == "one" else 2, 6, 5, 5)
    before = ops.copies()
    grouped = (q, k.expand(q.shape), v.expand(q.shape))
    o = memory_efficient_attention(*grouped, added)
    (of_qkv,) = gradients_of(o, [qkv])
    assert ops.copies() == before
    same = qkv.detach().requires_grad_()
    q, k, v = same.split((3, 1, 1), dim=3)
    flat = (q, k.expand(q.shape), v.expand(q.shape))
    expected = formula(*(each.flatten(2, 3) for each in flat), bias=added)
    torch.testing.assert_close(o.flatten(2, 3), expected)
    (expected_of_qkv,) = gradients_of(expected, [same])
    torch.testing.assert_close(of_qkv, expected_of_qkv, rtol=1e-5, atol=1e-5)


def test_heads_that_no_stride_leads_to_are_copied_and_counted():
    _, q, k, v = side_by_side(2, 2)
    before = ops.copies()
    o = memory_efficient_attention(q, k, v)
    copied = {name for name, n in ops.copies().items() if n != before.get(name, 0)}
    assert copied == {"attention.q", "attention.k", "attention.v"}
    expected = formula(*(each.flatten(2, 3) for each in (q, k, v)))
    torch.testing.assert_close(o.flatten(2, 3), expected)


def test_a_leaf_has_a_gradient_for_each_head():
    q, k, v = tensors()
    k, v = (each[:, :, :1].expand(each.shape).requires_grad_() for each in (k, v))
    dk, dv = gradients_of(memory_efficient_attention(q, k, v), (k, v))
    expected = gradients_of(formula(q, k, v), (k, v))
    torch.testing.assert_close((dk, dv), expected)


# ---- Biases


def seen(queries, keys, left=None, right=None, shift=0):
    """Keys from i + shift - left to i + shift + right of query i."""
    distance = torch.arange(keys) - torch.arange(queries)[:, None] - shift
    visible = torch.ones(queries, keys, dtype=torch.bool)
    visible &= True if left is None else distance >= -left
    return visible & (True if right is None else distance <= right)


BOTTOM_RIGHT = "LowerTriangularFromBottomRightMask"
LOCAL_CAUSAL = "LowerTriangularFromBottomRightLocalAttentionMask"
LOCAL_NAME = "LocalAttentionFromBottomRightMask"
LOCAL = a(LOCAL_NAME, window_left=3, window_right=1)
BIASES = {  # (bias, queries, keys, what they see)
    "none": (None, 5, 7, None),
    "causal": (a("LowerTriangularMask"), 5, 7, seen(5, 7, None, 0)),
    "bottom right": (a(BOTTOM_RIGHT), 5, 7, seen(5, 7, None, 0, 2)),
    "local causal": (a(LOCAL_CAUSAL, _window_size=3), 5, 7, seen(5, 7, 2, 0, 2)),
    "local": (LOCAL, 5, 7, seen(5, 7, 3, 1, 2)),
    "local of fewer keys": (LOCAL, 6, 5, seen(6, 5, 3, 1, -1)),
}


@pytest.mark.parametrize("name", BIASES)
def test_a_bias_hides_what_it_hides_in_xformers(name):
    bias, queries, keys, visible = BIASES[name]
    check(
        lambda q, k, v: memory_efficient_attention(q, k, v, bias, scale=0.3),
        lambda q, k, v: formula(q, k, v, visible, scale=0.3),
        *tensors(queries, keys),
    )


def test_a_tensor_is_added_and_has_a_gradient():
    check(memory_efficient_attention,
          lambda q, k, v, bias: formula(q, k, v, None, bias),
          *tensors(), torch.randn(2, 4, 5, 7))

    def call(q, k, v, bias):
        bias = a("LowerTriangularMaskWithTensorBias", _bias=bias.unflatten(1, (2, 2)))
        q, k, v = (each.unflatten(2, (2, 2)) for each in (q, k, v))
        o = memory_efficient_attention(q, k, v, bias)
        assert o.is_contiguous()
        return o.flatten(2, 3)

    check(call, lambda q, k, v, bias: formula(q, k, v, seen(5, 7, None, 0), bias),
          *tensors(), torch.randn(2, 4, 5, 7))


def packed(name, lengths_q, lengths_k, begins_k=None, **attributes):
    """begins_k: where the blocks of keys begin, if not one behind the other."""

    def info(lengths, begins):
        ends = begins or [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        of_blocks = SimpleNamespace(
            seqstart=torch.tensor(ends, dtype=torch.int32),
            seqstart_py=ends,
            max_seqlen=max(lengths),
        )
        if begins:
            of_blocks.seqlen = torch.tensor(lengths, dtype=torch.int32)
            of_blocks.seqlen_py = lengths
        return of_blocks

    q_seqinfo, k_seqinfo = info(lengths_q, None), info(lengths_k, begins_k)
    attributes |= {"q_seqinfo": q_seqinfo, "k_seqinfo": k_seqinfo}
    return a(f"BlockDiagonal{name}", **attributes)


BLOCKS = {  # name: (window_size, what a query of a block sees)
    "Mask": (None, seen),
    "CausalMask": (None, lambda m, n: seen(m, n, None, 0)),
    "CausalFromBottomRightMask": (None, lambda m, n: seen(m, n, None, 0, n - m)),
    "CausalLocalAttentionMask": (2, lambda m, n: seen(m, n, 1, 0)),
    "CausalLocalAttentionFromBottomRightMask": (
        2, lambda m, n: seen(m, n, 1, 0, n - m)
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_on_the_diagonal_are_packed_sequences(name):
    lengths_q, lengths_k = [3, 1, 4], [4, 1, 5]
    window, block = BLOCKS[name]
    attributes = {} if window is None else {"_window_size": window}
    bias = packed(name, lengths_q, lengths_k, **attributes)
    blocks = [block(m, n) for m, n in zip(lengths_q, lengths_k)]
    visible = torch.block_diag(*(each.int() for each in blocks)).bool()
    q, k, v = (torch.randn(1, n, 2, 16) for n in (8, 10, 10))
    check(
        lambda *qkv: memory_efficient_attention(
            *(each.unflatten(2, (1, 2)) for each in qkv), bias
        ).squeeze(2),
        lambda q, k, v: formula(q, k, v, visible),
        *(q, k, v),
    )


PADDED, GAPPY = [0, 6, 12, 18], [1, 6, 9, 16]
PARTS = {  # name: (begins of keys, window_size, what a query of a block sees)
    "PaddedKeysMask": (PADDED, None, seen),
    "CausalWithOffsetPaddedKeysMask": (
        PADDED, None, lambda m, n: seen(m, n, None, 0, n - m)
    ),
    "CausalLocalAttentionPaddedKeysMask": (
        PADDED, 2, lambda m, n: seen(m, n, 1, 0, n - m)
    ),
    "GappyKeysMask": (GAPPY, None, seen),
    "CausalWithOffsetGappyKeysMask": (
        GAPPY, None, lambda m, n: seen(m, n, None, 0, n - m)
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_keys_that_do_not_count_are_neither_seen_nor_copied(name):
    lengths_q, lengths_k = [3, 1, 4], [4, 1, 5]
    begins, window, block = PARTS[name]
    attributes = {} if window is None else {"_window_size": window}
    bias = packed(name, lengths_q, lengths_k, begins, **attributes)
    q, k, v = inputs = [torch.randn(1, n, 2, 16) for n in (8, begins[-1], begins[-1])]
    visible, row = torch.zeros(8, begins[-1], dtype=torch.bool), 0
    counts = torch.zeros(begins[-1], dtype=torch.bool)
    for m, begin, n in zip(lengths_q, begins, lengths_k):
        visible[row : row + m, begin : begin + n] = block(m, n)
        counts[begin : begin + n] = True
        row += m
    k[:, ~counts] = v[:, ~counts] = float("nan")
    copies = ops.copies()
    o = memory_efficient_attention(q, k, v, bias)
    assert ops.copies() == copies
    expected = formula(q, k.nan_to_num(0), v.nan_to_num(0), visible)
    torch.testing.assert_close(o, expected)
    exact = [each.nan_to_num(0).requires_grad_() for each in inputs]
    wanted = torch.autograd.grad(formula(*exact, visible).sum(), exact)
    inputs = [each.requires_grad_() for each in inputs]
    got = torch.autograd.grad(memory_efficient_attention(*inputs, bias).sum(), inputs)
    for gradient, want in zip(got, wanted):
        torch.testing.assert_close(gradient, want, rtol=1e-4, atol=1e-5)


# ---- The other arguments


def test_dropout_drops_and_the_forward_function_has_no_gradient():
    q, k, v = (each.requires_grad_() for each in tensors(32, 32))
    o = memory_efficient_attention(q, k, v, p=0.5, op=("any", "any"))
    assert o.requires_grad and not torch.allclose(o, formula(q, k, v))
    plain = memory_efficient_attention_forward(q, k, v, output_dtype=F32)
    assert not plain.requires_grad
    torch.testing.assert_close(plain, formula(q, k, v).detach())


PACKED = {
    name: torch.randn(1, n, 4, 16)
    for name, n in (("query", 5), ("key", 7), ("value", 7))
}


@pytest.mark.parametrize(
    "change, says",
    [
        ({"attn_bias": a("PagedBlockDiagonalPaddedKeysMask")}, "class PagedBlockDiag"),
        ({**PACKED, "attn_bias": packed("GappyKeysMask", [2, 3], [5, 2], [0, 4, 7])},
         "that overlap"),
        ({"attn_bias": packed("LocalAttentionPaddedKeysMask", [5], [7])}, "class Block"),
        ({"attn_bias": a(LOCAL_NAME, window_left=1, window_right=1)}, "leaves out"),
        ({"output_dtype": torch.float64}, "an output of torch.float64"),
        ({"key": torch.zeros(2, 7, 4, 16).int()}, "of float32, int32, float32"),
    ],
)
def test_what_is_not_covered_is_said_to_be_not_implemented(change, says):
    arguments = dict(zip(("query", "key", "value"), tensors()), **change)
    with pytest.raises(NotImplementedError, match=says) as refusal:
        memory_efficient_attention(**arguments)
    assert isinstance(refusal.value, kiln.Unavailable), "so xformers' own path is taken"


@pytest.mark.parametrize(
    "change, says",
    [
        ({"key": torch.randn(2, 7, 1, 16)}, "expand the key"),
        ({"value": torch.randn(2, 6, 4, 16)}, "of equal batches and heads"),
        ({"attn_bias": torch.ones(2, 4, 5, 7) > 0}, "attn_bias is torch.bool"),
        ({"attn_bias": torch.randn(2, 2, 5, 7)}, "and query 4 heads"),
        ({"attn_bias": packed("Mask", [5], [7])}, "lengths of one batch of 5 tokens"),
        ({"p": 2.0}, "dropout_p is 2.0"),
    ],
)
def test_what_is_wrong_is_a_value_error(change, says):
    arguments = dict(zip(("query", "key", "value"), tensors()), **change)
    with pytest.raises(ValueError, match=says):
        memory_efficient_attention(**arguments)
