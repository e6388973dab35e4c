"""Results and gradients of kiln.ops against those of torch.nn.functional."""

import pytest
from ops_cases import (
    BF16,
    CASES_AND_TYPES,
    F32,
    Case,
    F,
    gemma,
    gradients_of,
    id_of,
    llama,
    ops,
    outputs_of,
    rms,
    torch,
)
from ops_device import check_case, device, worst_error  # noqa: F401


CASTINGS = [
    (
        Case(f"rms_norm_from_y_{casting}",
             lambda x, w, c=casting: ops.rms_norm(x, w, casting=c, memory_efficient=True),
             reference, ((5, 48), (48,))),
        BF16,
    )
    for casting, reference in (("llama", llama), ("gemma", gemma))
]


@pytest.mark.parametrize("case, dtype", CASES_AND_TYPES + CASTINGS, ids=id_of)
def test_results_and_gradients_are_as_near_to_float64_as_torchs(case, dtype):
    check_case(case, dtype)


# The mean divides by the number of rows.
OF_A_BATCH = [(case, dtype) for case, dtype in CASES_AND_TYPES if case.name != "cross_entropy"]


@pytest.mark.parametrize("case, dtype", OF_A_BATCH, ids=id_of)
def test_an_element_of_a_batch_has_the_same_bits_whatever_is_beside_it(case, dtype):
    inputs = case.inputs(dtype)
    batch = len(inputs[0])
    is_of_batch = [x.dim() > 1 and len(x) == batch for x in inputs]
    towards = [torch.randn(y.shape).to(y.dtype) for y in outputs_of(case.kiln(*inputs))]

    def results(count):
        """Outputs of the first elements, and gradients of what the batch does not share."""
        of = [
            (x[:count].detach().clone() if has else x.detach()).requires_grad_()
            for x, has in zip(inputs, is_of_batch)
        ]
        outputs = outputs_of(case.kiln(*of))
        grads = torch.autograd.grad(
            outputs, of, [dy[:count] if dy.dim() else torch.ones_like(dy) for dy in towards]
        )
        return [y for y in outputs if y.dim()] + [g for g, has in zip(grads, is_of_batch) if has]

    whole = results(batch)
    for count in range(1, batch):
        for alone, of_batch in zip(results(count), whole, strict=True):
            assert torch.equal(alone, of_batch[:count])


@pytest.mark.parametrize("count", [1, 40, 64])
@pytest.mark.parametrize("dtype", [BF16, torch.float16], ids=id_of)
def test_a_query_of_attention_has_the_same_bits_however_many_there_are(dtype, count):
    q, k, v = (torch.randn(1, 1, 130, 128).to(dtype) for _ in "qkv")
    whole = ops.scaled_dot_product_attention(q, k, v)
    part = ops.scaled_dot_product_attention(q[:, :, :count].clone(), k, v)
    assert torch.equal(part, whole[:, :, :count])


def test_max_seqlen_changes_no_bit_of_a_sequence():
    q, k, v = (torch.randn(120, 2, 128).to(BF16) for _ in "qkv")
    begins = torch.tensor([0, 40, 120], dtype=torch.int32)
    results = [
        ops.varlen_attention(q, k, v, begins, begins, *longest)
        for longest in ((), (80, 80), (100, 128))
    ]
    alone = ops.varlen_attention(*(x[:40].clone() for x in (q, k, v)), begins[:2], begins[:2], 40, 40)
    for result in results:
        assert torch.equal(result, results[0])
        assert torch.equal(result[:40], alone)


def test_a_weight_may_be_float32_beside_bfloat16():
    x, weight = torch.randn(5, 48, dtype=BF16), torch.randn(48, requires_grad=True)
    for norm, reference in (
        (ops.rms_norm, F.rms_norm(x.double(), (48,), weight.double(), 1e-6)),
        (
            lambda x, w: ops.layer_norm(x, w, torch.zeros(48)),
            F.layer_norm(x.double(), (48,), weight.double()),
        ),
    ):
        y = norm(x, weight)
        assert y.dtype == BF16
        assert worst_error(y, reference) < 2**-8
        (gradient,) = torch.autograd.grad(y.float().sum(), weight)
        assert gradient.dtype == F32


def test_only_the_gradients_that_are_wanted_are_made():
    x, weight, bias = torch.randn(5, 48), torch.randn(48), torch.randn(48)
    x.requires_grad_()
    ops.layer_norm(x, weight, bias).sum().backward()
    assert x.grad is not None and weight.grad is None
    x.requires_grad_(False)
    bias.requires_grad_()
    ops.layer_norm(x, weight, bias).sum().backward()
    torch.testing.assert_close(bias.grad, torch.full((48,), 5.0))
    with torch.no_grad():
        assert not ops.layer_norm(x, weight, bias).requires_grad


def test_a_residual_whose_sum_alone_is_used_has_its_gradient():
    x, residual, weight = (
        torch.randn(shape, requires_grad=True) for shape in ((5, 48), (5, 48), (48,))
    )
    _, total = ops.rms_norm(x, weight, residual=residual)
    total.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(5, 48))
    torch.testing.assert_close(residual.grad, torch.ones(5, 48))
    torch.testing.assert_close(weight.grad, torch.zeros(48))


@pytest.mark.parametrize("from_y", [False, True])
def test_a_norm_keeps_x_or_if_memory_efficient_y(from_y):
    x, residual = (torch.randn(5, 48, dtype=BF16, requires_grad=True) for _ in "xr")
    weight, bias = torch.ones(48, dtype=BF16), torch.ones(48, dtype=BF16)

    def check(y, of_x):
        kept = [each.data_ptr() for each in y.grad_fn.saved_tensors if each is not None]
        assert (y.data_ptr() in kept, of_x.data_ptr() in kept) == (from_y, not from_y)

    check(ops.layer_norm(x, weight, bias, memory_efficient=from_y), x)
    check(ops.rms_norm(x, weight, memory_efficient=from_y), x)
    check(*ops.layer_norm(x, weight, bias, residual=residual, memory_efficient=from_y))
    check(*ops.rms_norm(x, weight, residual=residual, memory_efficient=from_y))


def test_where_the_weight_is_0_there_is_no_gradient_from_y():
    # torch 2.6 draws some of bfloat16 that are 0.
    x, weight = torch.randn(5, 48).to(BF16), torch.randn(48).to(BF16)
    weight[::7] = 0
    inputs = [x.requires_grad_(), weight.requires_grad_()]
    exact_inputs = [each.detach().double().requires_grad_() for each in inputs]
    y = ops.rms_norm(x, weight, memory_efficient=True)
    assert torch.equal(y, ops.rms_norm(x, weight))
    dx, dweight = gradients_of(y, inputs)
    exact_dx, exact_dweight = gradients_of(rms(*exact_inputs), exact_inputs)
    lost = weight == 0
    assert (exact_dx[:, lost] != 0).all() and (exact_dweight[lost] != 0).all()
    assert (dx[:, lost] == 0).all() and (dweight[lost] == 0).all()
    assert worst_error(dx[:, ~lost], exact_dx[:, ~lost]) < 2**-6
    assert worst_error(dweight[~lost], exact_dweight[~lost]) < 2**-6


def test_torch_notices_that_y_was_changed_before_the_backward_pass():
    x = torch.randn(5, 48, dtype=BF16, requires_grad=True)
    y = ops.rms_norm(x, torch.ones(48, dtype=BF16), memory_efficient=True)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_row_of_masked_scores_is_zero():
    mask = torch.zeros(1, 1, 2, 24, dtype=torch.bool)
    mask[..., 0, :] = True
    x = torch.randn(2, 3, 2, 24, requires_grad=True)
    y = ops.softmax(x, mask=mask)
    assert (y[..., 0, :] == 0).all()
    (gradient,) = torch.autograd.grad(y.square().sum(), x)
    assert (gradient[..., 0, :] == 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_a_row_of_masked_scores_is_uniform_where_that_is_asked_for(causal):
    mask = torch.rand(2, 1, 5, 24) < 0.3
    mask[..., 2, :] = True
    x = torch.randn(2, 3, 5, 24, requires_grad=True)
    either = mask | torch.ones(5, 24, dtype=torch.bool).triu(20) if causal else mask
    expected = torch.softmax(x.masked_fill(either, torch.finfo(F32).min), -1)
    y = ops.softmax(x, mask=mask, causal=causal, masked_row="uniform")
    torch.testing.assert_close(y, expected)
    assert (y[..., 2, :] == y[..., 2, :1]).all()
    above = ops.softmax(torch.randn(5, 2), causal=True, masked_row="uniform")
    assert (above[:3] == 0.5).all(), "the triangle begins below"
    with pytest.raises(ValueError, match="masked_row is 'one'; possible: 'zero', 'uniform'"):
        ops.softmax(x, masked_row="one")


@pytest.mark.parametrize(
    "shape", [(24,), (1, 24), (5, 24), (1, 5, 24), (3, 5, 24), (2, 3, 5, 24), (2, 1, 1, 24)]
)
def test_a_mask_of_scores_broadcasts_as_in_torch(shape):
    x = torch.randn(2, 3, 5, 24)
    mask = torch.rand(shape) < 0.3
    expected = torch.softmax(x.masked_fill(mask, float("-inf")), -1)
    torch.testing.assert_close(ops.softmax(x, mask=mask), expected)


@pytest.mark.parametrize("shape", [(), (7,), (3, 7), (2, 1, 2, 3, 7)])
def test_a_softmax_of_any_number_of_dimensions_is_torchs(shape):
    x = torch.randn(shape, requires_grad=True)
    expected = torch.softmax(x, -1)
    y = ops.softmax(x)
    torch.testing.assert_close(y, expected)
    dy = torch.randn(shape)
    (dx,) = torch.autograd.grad(y, x, dy)
    torch.testing.assert_close(dx, torch.autograd.grad(expected, x, dy)[0])


def test_a_mask_of_scores_and_causal_leave_out_what_either_does():
    x = torch.randn(2, 3, 5, 24)
    mask = torch.rand(2, 1, 5, 24) < 0.3
    either = mask | torch.ones(5, 24, dtype=torch.bool).triu(20)
    expected = torch.softmax(x.masked_fill(either, float("-inf")), -1)
    torch.testing.assert_close(ops.softmax(x, mask=mask, causal=True), expected)


@pytest.mark.parametrize("rows", [0, 1])
def test_cross_entropy_of_nothing_is_torchs(rows):
    logits = torch.randn(rows, 33, requires_grad=True)
    target = torch.full((rows,), -100)
    for reduction in ("mean", "sum", "none"):
        loss = ops.cross_entropy(logits, target, reduction=reduction)
        expected = F.cross_entropy(logits, target, reduction=reduction)
        torch.testing.assert_close(loss, expected, equal_nan=True)


def test_cross_entropy_takes_one_row_and_int32_and_padded_classes():
    logits = torch.randn(4, 40)[:, :33].requires_grad_()
    target = torch.tensor([3, -100, 0, 32])
    expected = F.cross_entropy(logits, target)
    before = ops.copies()
    loss = ops.cross_entropy(logits, target.int())
    assert ops.copies() == before
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, logits)[0])
    one = ops.cross_entropy(logits[0], target[0])
    torch.testing.assert_close(one, F.cross_entropy(logits[0], target[0]))


def test_cross_entropy_takes_rows_that_share_memory():
    logits = torch.randn(1, 33).expand(4, 33)
    target = torch.tensor([3, -100, 0, 32])
    expected = F.cross_entropy(logits, target, reduction="none")
    torch.testing.assert_close(ops.cross_entropy(logits, target, reduction="none"), expected)
