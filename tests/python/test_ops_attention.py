"""Attention: packed sequences, masks, dropout, layouts, explanations."""

import shutil

import pytest
from conftest import KIT, real_cudnn
from ops_cases import BF16, F32, F, gradients_of, id_of, ops, torch
from ops_device import check_as_good_as_torch, device, launched, worst_error  # noqa: F401

import kiln
from kiln import _explain
from kiln.ops._launch import handled_by


CUDNN = KIT / "libkiln-simulated-cudnn.so"


def of_each_sequence(q, k, v, begins_q, begins_k, is_causal):
    """varlen_attention by torch, sequence by sequence."""
    outputs = []
    for i in range(len(begins_q) - 1):
        of_q = slice(begins_q[i], begins_q[i + 1])
        of_k = slice(begins_k[i], begins_k[i + 1])
        one = [t.transpose(0, 1) for t in (q[of_q], k[of_k], v[of_k])]
        mask = None
        if is_causal:
            queries, keys = one[0].shape[1], one[1].shape[1]
            mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        o = F.scaled_dot_product_attention(*one, attn_mask=mask, enable_gqa=True)
        outputs.append(o.transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_packed_sequences_are_attended_one_by_one(dtype, is_causal):
    begins_q, begins_k = [0, 3, 3, 8], [0, 4, 6, 13]
    shapes = ((8, 4, 16), (13, 2, 16), (13, 2, 16))
    inputs = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    exact_inputs = [each.detach().double().requires_grad_() for each in inputs]
    cu_q, cu_k = (torch.tensor(each, dtype=torch.int32) for each in (begins_q, begins_k))
    same = of_each_sequence(*inputs, begins_q, begins_k, is_causal)
    exact = of_each_sequence(*exact_inputs, begins_q, begins_k, is_causal)
    for longest in ((5, 7), (None, None), (2**40, 2**40)):
        o = ops.varlen_attention(*inputs, cu_q, cu_k, *longest, is_causal=is_causal)
        check_as_good_as_torch(o, same, exact, "output")
        for gradient, of_same, of_exact in zip(
            gradients_of(o, inputs),
            gradients_of(of_each_sequence(*inputs, begins_q, begins_k, is_causal), inputs),
            gradients_of(of_each_sequence(*exact_inputs, begins_q, begins_k, is_causal),
                         exact_inputs),
        ):
            check_as_good_as_torch(gradient, of_same, of_exact, "gradient")


def test_grouped_queries_beside_their_keys_are_not_copied():
    begins = [0, 3, 8]
    ends = torch.tensor(begins, dtype=torch.int32)
    qkv = torch.randn(8, 2, 5, 16, requires_grad=True)  # 2 groups of 3 heads, a k and a v

    def parts(of):
        q, k, v = of.split((3, 1, 1), dim=2)
        return q, k.squeeze(2), v.squeeze(2)

    before = ops.copies()
    o = ops.varlen_attention(*parts(qkv), ends, ends, 5, 5, is_causal=True)
    (gradient,) = gradients_of(o, [qkv])
    assert ops.copies() == before
    same = qkv.detach().requires_grad_()
    q, k, v = parts(same)
    expected = of_each_sequence(q.flatten(1, 2), k, v, begins, begins, is_causal=True)
    torch.testing.assert_close(o.flatten(1, 2), expected)
    torch.testing.assert_close(gradient, *gradients_of(expected, [same]))
    with pytest.raises(kiln.InvalidArgument, match="2 groups of heads, and k 1 heads"):
        ops.varlen_attention(q, k[:, :1], v[:, :1], ends, ends)
    explanation = kiln.explain(q, k, v, cu_seqlens_q=ends, cu_seqlens_k=ends, device=0)
    assert explanation.forward.backend == "kiln"


# Of 2 sequences, 4 heads, 5 queries and 7 keys.
MASKS = [(1, 7), (5, 1), (5, 7), (4, 5, 7), (2, 1, 5, 7), (2, 4, 5, 7), (2, 1, 1, 7), (1, 4, 1, 7)]


@pytest.mark.parametrize(
    "kind", ["bool", "bool that is expanded", "float", "float that is expanded", "float with gaps"]
)
@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_a_mask_is_read_as_it_lies_in_memory(shape, kind):
    inputs = [torch.randn(2, 4, size, 16, requires_grad=True) for size in (5, 7, 7)]
    mask = torch.randn(shape)
    if kind.startswith("bool"):
        mask = mask > -1
    if kind.endswith("expanded"):
        mask = mask.expand(2, 4, 5, 7)
    if kind == "float with gaps":
        mask = torch.randn(*shape[:-1], 9)[..., : shape[-1]]
    before = ops.copies()
    o = ops.scaled_dot_product_attention(*inputs, attn_mask=mask)
    gradients = gradients_of(o, inputs)
    if shape[-1] == 7:  # else there is a row for the keys to be made
        assert ops.copies() == before
    same = F.scaled_dot_product_attention(*inputs, attn_mask=mask)
    torch.testing.assert_close(o, same, rtol=1e-5, atol=1e-5)
    for gradient, of_same in zip(gradients, gradients_of(same, inputs), strict=True):
        torch.testing.assert_close(gradient, of_same, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_expanded", [False, True])
@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_the_gradient_of_a_mask_is_the_sum_over_what_it_is_alike_for(shape, is_expanded):
    qkv = [torch.randn(2, 4, size, 16) for size in (5, 7, 7)]
    mask = torch.randn(shape, requires_grad=True)
    given = mask.expand(2, 4, 5, 7) if is_expanded else mask
    o = ops.scaled_dot_product_attention(*qkv, attn_mask=given)
    same = F.scaled_dot_product_attention(*qkv, attn_mask=given)
    (gradient,) = gradients_of(o, [mask])
    (of_same,) = gradients_of(same, [mask])
    torch.testing.assert_close(gradient, of_same, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wants_gradient", [False, True])
@pytest.mark.parametrize(
    "shape", [(48, 40), (2, 1, 48, 40), (1, 8, 48, 40), (2, 1, 1, 40)], ids=str
)
def test_no_tensor_of_all_batches_heads_queries_and_keys_is_made(shape, wants_gradient):
    inputs = [torch.randn(2, 8, size, 16, requires_grad=True) for size in (48, 40, 40)]
    masks = [torch.randn(shape, requires_grad=wants_gradient)]
    if not wants_gradient:
        masks += [masks[0] > -1, masks[0].expand(2, 8, 48, 40), masks[0].half()]
        masks += [each.expand(2, 8, 48, 40) for each in masks[1:]]
        masks += [torch.rand(2, 8, 48, 40) > 0.2]  # which is there, and not made
    for mask in masks:
        with torch.profiler.profile(profile_memory=True) as profile:
            o = ops.scaled_dot_product_attention(*inputs, attn_mask=mask, return_lse=True)[0]
            o.square().sum().backward()
        largest = max(each.self_cpu_memory_usage for each in profile.events())
        assert 4 * o.numel() <= largest < 4 * 2 * 8 * 48 * 40


@pytest.mark.parametrize("transform", [None, torch.func.grad])
@pytest.mark.parametrize("shape", [shape for shape in MASKS if shape[-1] == 7], ids=str)
def test_both_passes_read_a_bool_mask_itself(shape, transform):
    q, *others = (torch.randn(2, 4, size, 16, requires_grad=True) for size in (5, 7, 7))
    mask = torch.rand(shape) > 0.3
    read = []

    def loss(q):
        return ops.scaled_dot_product_attention(q, *others, attn_mask=mask).sum()

    def handler(name, values):
        bias = values["bias"]
        read.append((bias.dtype, bias.data_ptr(), bias.stride()))

    with handled_by(handler):
        loss(q).backward() if transform is None else transform(loss)(q)
    extra = (None,) * (4 - mask.dim())
    assert read == [(mask.dtype, mask.data_ptr(), mask[extra].stride())] * 2


@pytest.mark.parametrize("wants_gradient", [False, True])
@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_with_dropout_both_passes_have_one_problem(shape, wants_gradient):
    inputs = [torch.randn(2, 4, size, 16, requires_grad=True) for size in (5, 7, 7)]
    mask = torch.randn(shape, requires_grad=wants_gradient)
    strides = []
    with handled_by(lambda name, values: strides.append(values["bias"].stride())):
        o = ops.scaled_dot_product_attention(*inputs, attn_mask=mask, dropout_p=0.5)
        o.sum().backward()
    forward, backward = strides
    assert forward == backward


def formula(q, k, v, bias):
    """o and the logarithms of the sums."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias
    return scores.softmax(-1).nan_to_num(0) @ v, scores.logsumexp(-1)


def seen(queries, keys, is_causal, window, begin=0):
    """0, and -inf where a query does not see the key. begin: the key of the first query."""
    distance = torch.arange(keys) - torch.arange(queries)[:, None] - begin
    left, right = (1 << 30 if each < 0 else each for each in window)
    may = (distance >= -left) & (distance <= (0 if is_causal else right))
    return torch.zeros(queries, keys).masked_fill(~may, float("-inf"))


def slopes(heads):
    return torch.tensor([2 ** (-8 * (head + 1) / heads) for head in range(heads)])[:, None, None]


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("window", [(-1, -1), (2, -1), [2, 0], (0, 1)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_window_alibi_and_the_logarithms_of_the_sums(is_causal, window, alibi):
    if is_causal and window[1] > 0:
        window = (window[0], 0)
    inputs = [torch.randn(2, 4, size, 16, requires_grad=True) for size in (5, 7, 7)]
    distance = (torch.arange(7) - torch.arange(5)[:, None]).abs()
    bias = seen(5, 7, is_causal, window) - (slopes(4) * distance if alibi else 0)
    options = {"is_causal": is_causal, "window_size": window, "alibi": alibi}
    o, lse = ops.scaled_dot_product_attention(*inputs, **options, return_lse=True)
    same, sums = formula(*inputs, bias)
    torch.testing.assert_close(o, same, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse, sums.detach(), rtol=1e-5, atol=1e-5)
    assert lse.dtype == F32 and not lse.requires_grad
    for gradient, of_same in zip(gradients_of(o, inputs), gradients_of(same, inputs)):
        torch.testing.assert_close(gradient, of_same, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        again = ops.scaled_dot_product_attention(*inputs, **options, return_lse=True)
    assert torch.equal(again[0], o) and torch.equal(again[1], lse)
    of_one = [each[0, 0] for each in inputs]  # without batch and heads, and so another slope
    o, lse = ops.scaled_dot_product_attention(*of_one, is_causal=is_causal, return_lse=True)
    same, sums = formula(*of_one, seen(5, 7, is_causal, (-1, -1)))
    torch.testing.assert_close(o, same, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse, sums.detach(), rtol=1e-5, atol=1e-5)


def test_the_logarithms_of_the_sums_over_no_key_are_minus_infinity():
    q, k = torch.randn(2, 4, 5, 16), torch.randn(2, 4, 0, 16)
    o, lse = ops.scaled_dot_product_attention(q, k, k, return_lse=True)
    assert not o.any() and lse.shape == (2, 4, 5) and (lse == float("-inf")).all()
    o, lse = ops.scaled_dot_product_attention(k, q, q, return_lse=True)
    assert o.shape == k.shape and lse.shape == (2, 4, 0)


def test_packed_sequences_with_alibi_and_their_logarithms():
    begins = [0, 3, 8]
    ends = torch.tensor(begins, dtype=torch.int32)
    inputs = [torch.randn(8, 4, 16, requires_grad=True) for _ in "qkv"]
    o, lse = ops.varlen_attention(*inputs, ends, ends, 5, 5, is_causal=True, alibi=True,
                                  window_size=(2, -1), return_lse=True)
    assert lse.shape == (2, 4, 5)
    for i, (begin, end) in enumerate(zip(begins, begins[1:])):
        q, k, v = (each[begin:end].transpose(0, 1) for each in inputs)
        at = torch.arange(end - begin)
        bias = seen(end - begin, end - begin, True, (2, -1))
        same, sums = formula(q, k, v, bias - slopes(4) * (at - at[:, None]).abs())
        torch.testing.assert_close(o[begin:end], same.transpose(0, 1), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(lse[i, :, : end - begin], sums, rtol=1e-5, atol=1e-5)
        assert (lse[i, :, end - begin :] == float("-inf")).all()


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_a_batch_that_is_padded_on_the_left_is_neither_copied_nor_masked(dtype):
    batch, length, padding = 3, 6, torch.tensor([2, 0, 5])
    inputs = [torch.randn(batch, length, 2, 16, dtype=dtype) for _ in "qkv"]
    counts = torch.arange(length) >= padding[:, None]
    for each in inputs:
        each[~counts] = float("nan")
        each.requires_grad_()
    begins = torch.cat((torch.arange(batch) * length + padding, torch.tensor([batch * length])))
    begins, lengths = begins.int(), (length - padding).int()
    copies = ops.copies()
    o = ops.varlen_attention(
        *(each.flatten(0, 1) for each in inputs), begins, begins, length, length,
        is_causal=True, lengths_q=lengths, lengths_k=lengths,
    ).unflatten(0, (batch, length))
    gradients = torch.autograd.grad(o, inputs, torch.ones(batch, length, 2, 16, dtype=dtype))
    assert ops.copies() == copies
    assert not o[~counts].any()
    assert not any(each[~counts].any() for each in gradients)
    for i, first in enumerate(padding.tolist()):
        one = [each[i : i + 1, first:].detach().requires_grad_() for each in inputs]
        same = F.scaled_dot_product_attention(
            *(each.transpose(1, 2) for each in one), is_causal=True
        ).transpose(1, 2)
        wanted = torch.autograd.grad(same.sum(), one)
        bound = {} if dtype is F32 else {"rtol": 0.02, "atol": 0.02}
        torch.testing.assert_close(o[i : i + 1, first:], same, **bound)
        for got, want in zip(gradients, wanted):
            torch.testing.assert_close(
                got[i : i + 1, first:], want, **(bound or {"rtol": 1e-4, "atol": 1e-5})
            )


def test_options_that_exclude_each_other_are_refused():
    q = torch.randn(1, 2, 5, 16)
    for options, says in [
        ({"alibi": True, "attn_mask": torch.ones(5, 5) > 0}, "attn_mask and alibi=True exclude"),
        ({"alibi": torch.tensor(True)}, "alibi is a tensor"),
        ({"window_size": 3}, "window_size is 3: it is two integers"),
        ({"window_size": (1, 2, 3)}, "it is two integers"),
        ({"window_size": (1, 0.5)}, "window_size is 0.5, and not an integer"),
        ({"window_size": (-2, 1)}, "window_left"),
        ({"window_size": (1, 1), "is_causal": True}, "window_right"),
    ]:
        with pytest.raises(kiln.InvalidArgument, match=says):
            ops.scaled_dot_product_attention(q, q, q, **options)


def test_a_window_leaves_out_what_is_farther():
    q, k, v = (torch.randn(7, 4, 16) for _ in "qkv")
    ends = torch.tensor([0, 7], dtype=torch.int32)
    at = torch.arange(7)
    near = (at[:, None] - at).abs() <= 2
    expected = F.scaled_dot_product_attention(
        *(t.transpose(0, 1) for t in (q, k, v)), attn_mask=near
    ).transpose(0, 1)
    result = ops.varlen_attention(q, k, v, ends, ends, window_size=(2, 2))
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=id_of)
@pytest.mark.parametrize(
    "begins, longest",
    [([0, 5], 5), ([2, 8], 6), ([1, 3, 3, 6], 4), ([0, 8], 4), ([0, 0], 1), ([8, 8], 8)],
    ids=str,
)
def test_tokens_of_no_sequence_give_0_and_have_gradients_of_0(begins, longest, dtype):
    poisoned = [torch.full((8, 2, 16), float("nan")).to(dtype) for _ in range(40)]
    del poisoned  # what new tensors may have in them
    q, k, v = (torch.randn(8, 2, 16).to(dtype).requires_grad_() for _ in "qkv")
    cu = torch.tensor(begins, dtype=torch.int32)
    o = ops.varlen_attention(q, k, v, cu, cu, longest, longest, is_causal=True)
    covered = torch.zeros(8, dtype=torch.bool)
    for begin, end in zip(begins, begins[1:]):
        covered[begin : min(end, begin + longest)] = True
    assert not o[~covered].any()
    gradients = torch.autograd.grad(o.float().square().sum(), (q, k, v))
    for gradient in gradients:
        assert torch.isfinite(gradient).all() and not gradient[~covered].any()
    if covered.any():
        assert o[covered].any()


@pytest.mark.parametrize("begins", [[0, 12], [5, 3], [-1, 8], [0, 9, 8]], ids=str)
def test_sequences_that_the_host_sees_beyond_the_tokens_are_refused(begins):
    q, k, v = (torch.randn(8, 2, 16) for _ in "qkv")
    wrong, right = (torch.tensor(b, dtype=torch.int32) for b in (begins, [0] * len(begins)))
    with pytest.raises(kiln.InvalidArgument, match="cu_seqlens_k is .*for 8 tokens"):
        ops.varlen_attention(q, k, v, right, wrong, 8, 8)
    with pytest.raises(kiln.InvalidArgument, match="cu_seqlens_q is .*for 8 tokens"):
        ops.varlen_attention(q, k, v, wrong, right, 8, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=id_of)
@pytest.mark.parametrize(
    "begins, meant", [([-9, 3, 99], [0, 3, 8]), ([0, 1 << 30, 8], [0, 8, 8])], ids=str
)
def test_sequences_that_the_host_does_not_see_are_clamped_to_the_tokens(
    begins, meant, dtype, monkeypatch
):
    monkeypatch.setattr("kiln.ops._attention._can_be_seen", lambda begins: False)
    inputs = [torch.randn(8, 2, 16).to(dtype).requires_grad_() for _ in "qkv"]
    results = []
    for numbers in (begins, meant):
        cu = torch.tensor(numbers, dtype=torch.int32)
        o = ops.varlen_attention(*inputs, cu, cu, is_causal=True)
        results.append([o, *torch.autograd.grad(o.float().square().sum(), inputs)])
    assert results[1][0].any()
    for given, right in zip(*results, strict=True):
        assert torch.equal(given, right)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=id_of)
def test_one_token_in_all_has_gradients_whatever_its_stride_says(dtype):
    def of(shape):
        return torch.randn(shape).to(dtype).transpose(0, 1).requires_grad_()

    q, k, v = (of((3, 1, 16)) for _ in "qkv")
    cu = torch.tensor([0, 1], dtype=torch.int32)
    o = ops.varlen_attention(q, k, v, cu, cu)
    torch.testing.assert_close(o, v)
    dq, dk, dv = torch.autograd.grad(o.float().sum(), (q, k, v))
    torch.testing.assert_close(dv, torch.ones_like(v))
    assert dq.abs().max() < 1e-5 and dk.abs().max() < 1e-5


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (4, 1, 1), (4, 5, 7), (2, 4, 5, 7),
                                   (2, 1, 1, 7), (1, 4, 5, 1)])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_mask_broadcasts_as_in_torch(shape, kind):
    q, k, v = torch.randn(2, 4, 5, 16), torch.randn(2, 2, 7, 16), torch.randn(2, 2, 7, 16)
    mask = torch.rand(shape) < 0.7 if kind == "bool" else torch.randn(shape)
    expected = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    result = ops.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    torch.testing.assert_close(result, expected)


def test_a_query_without_keys_gives_zero_and_no_gradient():
    inputs = [torch.randn(1, 2, 5, 16, requires_grad=True) for _ in "qkv"]
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2] = False
    o = ops.scaled_dot_product_attention(*inputs, mask)
    assert (o[:, :, 2] == 0).all()
    gradients = gradients_of(o, inputs)
    assert (gradients[0][:, :, 2] == 0).all()
    assert all(torch.isfinite(each).all() for each in gradients)


@pytest.mark.parametrize("dims", [2, 3, 4])
def test_leading_dimensions_may_be_missing(dims):
    q = torch.randn((2, 4, 5, 16)[4 - dims :])
    expected = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    torch.testing.assert_close(ops.scaled_dot_product_attention(q, q, q, is_causal=True), expected)


def test_head_dimensions_of_keys_and_values_may_differ():
    q, k = (torch.randn(2, 4, 5, 16, requires_grad=True) for _ in "qk")
    v = torch.randn(2, 4, 5, 24, requires_grad=True)
    o = ops.scaled_dot_product_attention(q, k, v)
    expected = F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(o, expected)
    for a, b in zip(gradients_of(o, (q, k, v)), gradients_of(expected, (q, k, v))):
        torch.testing.assert_close(a, b)


def test_expanded_keys_get_the_sum_of_the_gradients():
    q = torch.randn(2, 4, 5, 16)
    k, v = (torch.randn(2, 1, 5, 16, requires_grad=True) for _ in "kv")
    before = ops.copies().get("attention.k", 0)
    o = ops.scaled_dot_product_attention(q, k.expand(2, 4, 5, 16), v.expand(2, 4, 5, 16))
    expected = F.scaled_dot_product_attention(q, k.expand(2, 4, 5, 16), v.expand(2, 4, 5, 16))
    for a, b in zip(gradients_of(o, (k, v)), gradients_of(expected, (k, v))):
        torch.testing.assert_close(a, b)
    assert ops.copies()["attention.k"] == before + 2  # one for each pass


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_the_output_has_the_order_of_the_query(layout):
    shape = (2, 4, 5, 16) if layout == "bhsd" else (2, 5, 4, 16)
    q = torch.randn(shape)
    q = q if layout == "bhsd" else q.transpose(1, 2)
    o = ops.scaled_dot_product_attention(q, q, q)
    assert o.stride() == q.stride()


def test_dropout_scales_and_drops_and_both_passes_drop_the_same():
    q, k = (torch.randn(2, 4, 32, 16) for _ in "qk")
    v = torch.randn(2, 4, 32, 16, requires_grad=True)

    def call():
        torch.manual_seed(7)
        return ops.scaled_dot_product_attention(q, k, v, dropout_p=0.25)

    o = call()
    assert torch.equal(call(), o)  # torch's generator gives the seed
    assert not torch.equal(ops.scaled_dot_product_attention(q, k, v, dropout_p=0.25), o)
    # o is linear in v, so with the same probabilities dropped <do, o> is <dv, v>.
    do = torch.randn_like(o)
    (dv,) = torch.autograd.grad(o, v, do)
    torch.testing.assert_close((do * o).sum(), (dv * v).sum(), rtol=1e-4, atol=1e-3)
    # Values of 1 make the sums of the probabilities, whose mean dropout does not change.
    ones = torch.ones(2, 4, 32, 16)
    sums = ops.scaled_dot_product_attention(q, k, ones, dropout_p=0.25)
    assert 0.9 < sums.mean() < 1.1 and sums.std() > 0.02
    everything = ops.scaled_dot_product_attention(q, k, v, dropout_p=1.0)
    assert (everything == 0).all()


@pytest.mark.parametrize("wanted", [False, True])
def test_the_backward_pass_is_deterministic_where_torch_is_told_so(wanted, monkeypatch):
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: wanted)
    inputs = [torch.randn(1, 2, 5, 16, requires_grad=True) for _ in "qkv"]
    calls = []
    with handled_by(lambda name, values: calls.append((name, values))):
        gradients_of(ops.scaled_dot_product_attention(*inputs), inputs)
    name, values = calls[-1]
    assert (name, values["deterministic"]) == ("attention_backward", wanted)


def test_an_explanation_names_the_backend_and_the_reason():
    before = len(launched())
    q = torch.empty(2, 4, 128, 64, dtype=BF16, device="meta")
    explanation = kiln.explain(q, q, q, is_causal=True, device=0)
    assert explanation.forward.backend in ("cudnn", "kiln")
    assert set(explanation.data) == {"forward", "backward"}
    text = str(explanation)
    assert text.startswith(f"forward: {explanation.forward.backend}\n")
    assert f"backward: {explanation.backward.backend}" in text
    if explanation.forward.backend == "kiln":
        assert explanation.forward.refusals and "not by cuDNN: " in text
    assert len(launched()) == before


def test_an_explanation_prints_the_rule_and_its_remedy():
    def one(chosen, rules, probe, kernel):
        cudnn = {"supported": not rules, "rules": rules, "policies": [], "probe": probe}
        kiln_part = {"supported": True, "reason": kernel}
        return {"chosen": chosen, "cudnn": cudnn, "kiln": kiln_part, "steps": []}

    rule = {"id": "dim.multiple", "reason": "60 is no multiple of 8", "remedy": "pad to 64"}
    not_run = {"ran": False, "built": False, "status": "not_run", "message": ""}
    built = {"ran": True, "built": True, "status": "built", "message": ""}
    explanation = _explain._explanation(
        {
            "forward": one("kiln", [rule], not_run, "tensor cores"),
            "backward": one("cudnn", [], built, "tensor cores"),
        }
    )
    assert str(explanation) == (
        "forward: kiln\n"
        "  not by cuDNN: dim.multiple: 60 is no multiple of 8; remedy: pad to 64\n"
        "  Kiln's kernel: tensor cores\n"
        "backward: cudnn"
    )


@pytest.mark.skipif(not CUDNN.exists(), reason="this build has no simulated cuDNN")
def test_an_explanation_names_every_rule_that_refuses(python):
    python(
        """
        import ctypes, os, torch, kiln
        ctypes.CDLL(os.environ["KILN_CUDNN"]).kiln_simulated_cudnn_set_version(91500)

        def explain(dim, **options):
            q = torch.empty(1, 4, 100, dim, dtype=torch.bfloat16, device="meta")
            return kiln.explain(*(q.requires_grad_(),) * 3, device=0, **options)

        odd = explain(60)
        for each in (odd.forward, odd.backward):
            (refusal,) = each.refusals
            assert (each.backend, refusal.id) == ("kiln", "head_dim.multiple_of_8"), odd
            assert refusal.remedy.startswith("pad both head dimensions"), odd
        said = "not by cuDNN: head_dim.multiple_of_8: head dimensions must be multiples of 8"
        assert said in str(odd), odd
        captured = explain(60, capture=True)
        assert captured.forward.refusals == odd.forward.refusals
        assert {each.id for each in captured.backward.refusals} == {
            "head_dim.multiple_of_8", "sequence.multiple_of_128.capture"}, captured
        wide = explain(324)
        assert (wide.forward.backend, wide.backward.backend) == ("none", "none"), wide
        assert "head dimensions up to 256" in str(wide), wide
        """,
        torch=True,
        KILN_CUDNN=str(CUDNN),
        KILN_SIMULATED_DEVICES="9.0",
    )


def test_a_cudnn_that_ends_processes_leaves_attention_to_kiln(python, tmp_path):
    real, empty = real_cudnn(), KIT.parent / "bin/kiln-no-device-driver.so"
    if real is None or not empty.exists():
        pytest.skip("no cuDNN, or no worker to ask it")
    broken = tmp_path / "broken"
    broken.mkdir()
    shutil.copy(real, broken / "libcudnn.so.9")
    shutil.copy(empty, broken / "libcudnn_graph.so.9")  # a library without cuDNN's symbols
    said = python(
        """
        import kiln, kiln.testing, torch

        kiln.testing.use_simulated_device("9.0")
        q, k, v = (torch.randn(1, 2, 8, 16, dtype=torch.bfloat16) for _ in "qkv")
        o = kiln.ops.scaled_dot_product_attention(q, k, v)
        same = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        torch.testing.assert_close(o, same, atol=0.02, rtol=0.02)
        print(kiln.explain(q, k, v, device=0))
        """,
        torch=True,
        KILN_CUDNN=str(broken / "libcudnn.so.9"),
        KILN_ATTENTION=None,
    )
    assert said.startswith("forward: kiln\n"), said
    assert f"cuDNN {broken / 'libcudnn.so.9'} cannot be used: " in said, said
    assert "LD_LIBRARY_PATH" in said, said


def test_packed_sequences_are_explained_too():
    packed = torch.empty(9, 4, 64, dtype=BF16, device="meta")
    ends = torch.empty(3, dtype=torch.int32, device="meta")
    explanation = kiln.explain(
        packed, packed, packed, cu_seqlens_q=ends, cu_seqlens_k=ends, device=0
    )
    assert explanation.backward.backend in ("cudnn", "kiln")
    with pytest.raises(kiln.InvalidArgument, match="empty"):
        kiln.explain(*(torch.empty(0, 4, 5, 16, device="meta"),) * 3, device=0)


def test_large_scores_are_finite():
    q, k, v = (torch.randn(1, 2, 5, 16) for _ in "qkv")
    result = ops.scaled_dot_product_attention(100 * q, 100 * k, v)
    expected = F.scaled_dot_product_attention((100 * q).double(), (100 * k).double(), v.double())
    assert worst_error(result, expected) < 1e-3
