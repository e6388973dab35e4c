"""What kiln.ops does with tensors that are not plain: strides, no elements, mistakes."""

import collections
import re
import warnings

import numpy as np
import pytest
from by_name import in_order, launch
from ops_cases import BF16, F32, ONE_EACH, gradients_of, id_of, ops, outputs_of, torch
from ops_device import device, launched  # noqa: F401

import kiln
from kiln._library import library
from kiln.ops import CopyWarning
from kiln.ops._launch import check_order, launch_of

SQUARED_RELU = ops._activation._KINDS["squared_relu"]


def spread(tensor):
    """The same elements, one apart."""
    wide = torch.empty(*tensor.shape, 2, dtype=tensor.dtype)
    wide[..., 0] = tensor
    return wide[..., 0].detach().requires_grad_(tensor.requires_grad)


@pytest.mark.parametrize("case", ONE_EACH, ids=id_of)
def test_any_strides_give_the_bits_of_contiguous_tensors(case):
    inputs = case.inputs(F32)
    apart = [spread(each) for each in inputs]
    assert not any(each.is_contiguous() for each in apart)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CopyWarning)
        for a, b in zip(
            outputs_of(case.kiln(*inputs)), outputs_of(case.kiln(*apart)), strict=True
        ):
            assert torch.equal(a, b)
        for a, b in zip(
            gradients_of(case.kiln(*inputs), inputs),
            gradients_of(case.kiln(*apart), apart),
            strict=True,
        ):
            assert torch.equal(a, b)


def test_a_copy_is_counted_and_warned_of_once():
    x = torch.randn(24, 5).t()
    before = ops.copies().get("activation.x", 0)
    ops._launch._copies.pop("activation.x", None)
    with pytest.warns(CopyWarning, match=re.escape("activation.x is copied at each")):
        ops.squared_relu(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ops.squared_relu(x)
        ops.squared_relu(x.contiguous())
    assert ops.copies()["activation.x"] == 2
    ops._launch._copies["activation.x"] += before


def test_logits_whose_rows_lie_apart_are_not_copied_beside_targets_that_are():
    logits, target = torch.randn(6, 40)[:, :33], torch.arange(12)[::2]
    before = collections.Counter(ops.copies())
    loss = ops.cross_entropy(logits, target)
    assert collections.Counter(ops.copies()) - before == {"cross_entropy.targets": 1}
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, target))


def test_the_warning_of_a_copy_points_at_the_line_that_called(monkeypatch):
    apart = torch.randn(24, 5).t()
    y = ops.squared_relu(torch.randn(5, 24, requires_grad=True))
    for call in (
        lambda: ops.squared_relu(apart),
        lambda: ops.squared_relu(apart.detach().requires_grad_()),
        lambda: torch.ops.kiln.activation_fwd(apart, None, SQUARED_RELU),
        lambda: ops.rope(Q, None, torch.ones(16, 7).t(), torch.ones(7, 16)),
        lambda: y.backward(apart),
    ):
        monkeypatch.setattr(ops._launch, "_copies", collections.Counter())
        with pytest.warns(CopyWarning) as warned:
            call()
        line = call.__code__.co_firstlineno
        assert [(each.filename, each.lineno) for each in warned] == [(__file__, line)]


def test_an_output_that_is_not_contiguous_is_refused_by_its_name():
    operation = ops._activation.activation_fwd
    for x in (torch.randn(5, 24), torch.randn(24, 5).t()):
        with pytest.raises(kiln.InvalidArgument, match="^y is not contiguous"):
            operation.write(torch.empty(24, 5).t(), (x, None, SQUARED_RELU))


def test_heads_split_from_one_tensor_are_not_copied():
    before = ops.copies()
    qkv = torch.randn(2, 5, 3, 4, 16, requires_grad=True)
    q, k, v = qkv.unbind(2)
    q, k = ops.rope(q, k, torch.ones(5, 16), torch.zeros(5, 16))
    o = ops.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)))
    joined = o.transpose(1, 2).reshape(2, 5, 64)
    assert joined.data_ptr() == o.data_ptr()
    joined.backward(torch.randn(2, 5, 64))
    assert ops.copies() == before


EMPTY = {
    "softmax": lambda n: ops.softmax(torch.empty(2, n, 5, requires_grad=True)),
    "softmax of no columns": lambda n: ops.softmax(torch.empty(2, 3, n, requires_grad=True)),
    "layer_norm": lambda n: ops.layer_norm(torch.empty(n, 8, requires_grad=True), torch.ones(8)),
    "rms_norm": lambda n: ops.rms_norm(torch.empty(2, n, 8, requires_grad=True), torch.ones(8)),
    "a memory_efficient rms_norm of no columns": lambda n: ops.rms_norm(
        torch.empty(2, n, requires_grad=True), memory_efficient=True
    ),
    "rope": lambda n: ops.rope(
        torch.empty(2, n, 3, 8, requires_grad=True), None, torch.ones(4, 8), torch.ones(4, 8)
    )[0],
    "bias_gelu": lambda n: ops.bias_gelu(torch.empty(n, 8, requires_grad=True), torch.ones(8)),
    "swiglu": lambda n: ops.swiglu(torch.empty(n, 8, requires_grad=True)),
    "cross_entropy": lambda n: ops.cross_entropy(
        torch.empty(n, 8, requires_grad=True), torch.empty(n, dtype=torch.int64), reduction="sum"
    ),
    "attention": lambda n: ops.scaled_dot_product_attention(
        *(torch.empty(n, 4, 5, 16, requires_grad=True) for _ in "qkv")
    ),
    "varlen_attention": lambda n: ops.varlen_attention(
        *(torch.empty(n, 4, 16, requires_grad=True) for _ in "qkv"),
        *(torch.zeros(2, dtype=torch.int32) for _ in "qk"),
    ),
}


@pytest.mark.parametrize("name", EMPTY)
def test_tensors_without_elements_need_no_launch(name):
    before = len(launched())
    result = EMPTY[name](0)
    result.sum().backward()
    assert result.numel() == 0 or (result == 0).all()
    assert len(launched()) == before


def test_no_rows_give_gradients_of_zero():
    weight, bias = torch.ones(8, requires_grad=True), torch.ones(8, requires_grad=True)
    ops.layer_norm(torch.empty(0, 8), weight, bias).sum().backward()
    assert (weight.grad == 0).all() and (bias.grad == 0).all()


def test_no_keys_give_zero_as_in_torch():
    q, k = torch.randn(2, 4, 5, 16), torch.empty(2, 4, 0, 16)
    result = ops.scaled_dot_product_attention(q, k, k)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, k)
    assert torch.equal(result, expected) and (result == 0).all()


X = torch.randn(2, 5, 24)
ONES = torch.ones(24)
Q = torch.randn(2, 4, 5, 16)
COS = torch.ones(7, 16)
SEQUENCES = torch.tensor([0, 3, 5], dtype=torch.int32)
TARGET = torch.zeros(5).long()

attend = ops.scaled_dot_product_attention


def attend_sequences(*lengths, **options):
    return ops.varlen_attention(Q[0], Q[0], Q[0], SEQUENCES, SEQUENCES, *lengths, **options)


WRONG = {
    "float64": (lambda: ops.softmax(X.double()), "x is float64; float16, bfloat16 and float32"),
    "int": (lambda: ops.squared_relu(X.int()), "x is int32; float16, bfloat16 and float32"),
    "a list": (lambda: ops.softmax([1.0, 2.0]), "x is [1.0, 2.0], and not a tensor of torch"),
    "nothing": (lambda: ops.softmax(None), "x is None, and not a tensor of torch"),
    "an array": (lambda: ops.bias_gelu(X, ONES.numpy()), "bias is array([1., 1., 1.,"),
    "complex": (lambda: ops.rms_norm(X.cfloat(), ONES), "x is complex64; float16, bfloat16 and float32"),
    "a complex weight": (lambda: ops.bias_gelu(X, ONES.cfloat()), "bias is complex64, not float32"),
    "bool": (lambda: ops.softmax(X > 0), "x is bool; float16, bfloat16 and float32"),
    "mixed types": (lambda: ops.bias_gelu(X, ONES.bfloat16()), "bias is bfloat16, not float32"),
    "a residual": (lambda: ops.rms_norm(X, ONES, residual=X[0]), "residual has the shape"),
    "a bias alone": (lambda: ops.layer_norm(X, bias=ONES), "a bias needs a weight"),
    "a norm of a number": (lambda: ops.rms_norm(X[0, 0, 0]), "x has no dimension"),
    "a weight": (lambda: ops.layer_norm(X, ONES[:23]), "weight has the shape [23]"),
    "a bias of a norm": (lambda: ops.layer_norm(X, ONES, ONES[1:]), "bias has the shape"),
    "casting": (lambda: ops.rms_norm(X, ONES, casting="bert"), "'none', 'llama', 'gemma'"),
    "an eps": (lambda: ops.rms_norm(X, ONES, eps=float("nan")), "eps"),
    "a mask": (lambda: ops.softmax(X, mask=X), "mask is torch.float32"),
    "a mask's shape": (lambda: ops.softmax(X, mask=torch.ones(3, 24) > 0), "does not broadcast"),
    "a scale": (lambda: ops.softmax(X, float("inf")), "scale"),
    "a bias": (lambda: ops.bias_gelu(X, ONES[1:]), "bias has the shape [23], and not 24"),
    "approximate": (lambda: ops.bias_gelu(X, ONES, "erf"), "'tanh', 'none'"),
    "an odd size": (lambda: ops.swiglu(X[..., 1:]), "has two halves"),
    "no dimension": (lambda: ops.squared_relu(X[0, 0, 0]), "x has no dimension"),
    "probabilities": (lambda: ops.cross_entropy(X[0], X[0]), "probabilities of classes"),
    "a target": (lambda: ops.cross_entropy(X[0], torch.zeros(4).long()), "[5]"),
    "a target's type": (lambda: ops.cross_entropy(X[0], torch.zeros(5).short()), "int32 or int64"),
    "reduction": (lambda: ops.cross_entropy(X[0], TARGET, reduction="max"), "'mean', 'sum', 'none'"),
    "rope's heads": (lambda: ops.rope(Q, Q[:, :3], COS, COS), "all but the heads"),
    "rope's types": (lambda: ops.rope(Q, Q.bfloat16(), COS, COS), "k is bfloat16, and q is float32"),
    "rope's table": (lambda: ops.rope(Q, Q, COS[:3], COS[:3]), "position 3 is outside the table"),
    "half a table": (lambda: ops.rope(Q, Q, COS[:, :8], COS[:, :8]), "rotary_dim=16"),
    "style": (lambda: ops.rope(Q, Q, COS, COS, "neox"), "'half', 'interleaved'"),
    "a gradient of cos": (lambda: ops.rope(Q, Q, COS.clone().requires_grad_(), COS), "no gradient of them"),
    "heads": (lambda: attend(Q, Q[:, :2], Q[:, :2]), "enable_gqa"),
    "dimensions": (lambda: attend(Q[None], Q, Q), "5, 4 and 4"),
    "batch": (lambda: attend(Q, Q[:1], Q[:1]), "another batch size"),
    "two masks": (lambda: attend(Q, Q, Q, COS[:, :5] > 0, is_causal=True), "exclude each other"),
    "an integer mask": (lambda: attend(Q, Q, Q, COS[:, :5].int()), "it is bool"),
    "a mask of 6 keys": (lambda: attend(Q, Q, Q, COS[:, :6]), "does not broadcast"),
    "a probability": (lambda: attend(Q, Q, Q, dropout_p=1.5), "it is a probability"),
    "sequences": (lambda: ops.varlen_attention(Q[0], Q[0], Q[0], SEQUENCES.long(), SEQUENCES),
                  "cu_seqlens_q is int64, not int32"),
    # Another kind of value.
    "causal as a tensor": (lambda: ops.softmax(X, causal=torch.tensor(True)), "causal is a tensor"),
    "causal as a word": (lambda: ops.softmax(X, causal="yes"), "causal is 'yes': it is True or False"),
    "a scale as a word": (lambda: ops.softmax(X, "1/8"), "scale is '1/8', and not a number"),
    "a list of masked": (lambda: ops.softmax(X, mask=[True]), "mask is [True], and not a tensor"),
    "an array of masked": (lambda: ops.softmax(X, mask=np.zeros((5, 24), bool)), "mask is array("),
    "a list with a mask": (lambda: ops.softmax([1.0], mask=X > 0), "x is [1.0], and not a tensor"),
    "a list, uniform and causal": (
        lambda: ops.softmax([1.0], causal=True, masked_row="uniform"), "x is [1.0], and not a tensor"),
    "a choice": (lambda: ops.softmax(X, masked_row=["zero"]), "masked_row is ['zero']; possible"),
    "ignore_index": (lambda: ops.cross_entropy(X[0], TARGET, ignore_index="a"),
                     "ignore_index is 'a', and not an integer"),
    "half an ignore_index": (
        lambda: ops.cross_entropy(X[0], TARGET, ignore_index=1.5),
        "ignore_index is 1.5, and not an integer"),
    "label_smoothing": (
        lambda: ops.cross_entropy(X[0], TARGET, label_smoothing=None),
        "label_smoothing is None, and not a number"),
    "a target as a list": (lambda: ops.cross_entropy(X[0], [0] * 5), "target is [0, 0, 0, 0, 0], and"),
    "logits as an array": (lambda: ops.cross_entropy(X[0].numpy(), TARGET), "logits is array("),
    "rotary_dim": (lambda: ops.rope(Q, Q, COS, COS, rotary_dim="16"), "rotary_dim is '16', and not an"),
    "no q of rope": (lambda: ops.rope(None, Q, COS, COS), "q is None, and not a tensor"),
    "sin as an array": (lambda: ops.rope(Q, None, COS, COS.numpy()), "sin is array("),
    "no q": (lambda: attend(None, Q, Q), "q is None, and not a tensor"),
    "k as a list": (lambda: attend(Q, [Q], Q), "k is [tensor("),
    "v as an array": (lambda: attend(Q, Q, Q.numpy()), "v is array("),
    "attn_mask": (lambda: attend(Q, Q, Q, COS.numpy()), "attn_mask is array("),
    "dropout_p": (lambda: attend(Q, Q, Q, dropout_p="no"), "dropout_p is 'no'"),
    "v of sequences": (lambda: ops.varlen_attention(Q[0], Q[0], 0, SEQUENCES, SEQUENCES), "v is 0, and"),
    "a list of sequences": (lambda: ops.varlen_attention(Q[0], Q[0], Q[0], [0, 5], SEQUENCES),
                            "cu_seqlens_q is [0, 5], and not a tensor"),
    "a window": (lambda: attend_sequences(window_size=4), "window_size is 4: it is two integers"),
    "a longest sequence": (lambda: attend_sequences("3"), "max_seqlen_q is '3', and not an integer"),
    "a length below 0": (lambda: attend_sequences(5, -1),
                         "max_seqlen_k is -1: it is the length of the longest sequence"),
    "a norm of a list": (lambda: ops.rms_norm([1.0]), "x is [1.0], and not a tensor"),
    "a weight as a list": (lambda: ops.layer_norm(X, [1.0]), "weight is [1.0], and not a tensor"),
    "eps": (lambda: ops.rms_norm(X, eps="small"), "eps is 'small', and not a number"),
    "a gate": (lambda: ops.swiglu(None), "x is None, and not a tensor"),
    "an activation": (lambda: ops.squared_relu(ONES.numpy()), "x is array("),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_refused_with_its_name_and_the_reason(name):
    call, says = WRONG[name]
    before = len(launched())
    with pytest.raises(kiln.InvalidArgument, match=re.escape(says)):
        call()
    assert len(launched()) == before


KINDS = [name for name, (_, says) in WRONG.items() if " is " in says and "tensor" in says]


@pytest.mark.parametrize("name", KINDS)
def test_under_autocast_what_is_no_tensor_is_refused_by_its_name_too(name):
    call, says = WRONG[name]
    with torch.autocast("cpu"), pytest.raises(kiln.InvalidArgument, match=re.escape(says)):
        call()


def test_numbers_of_numpy_count_as_those_of_python():
    square = X[:, :, :5]
    assert torch.equal(ops.softmax(square, np.float32(2), causal=np.bool_(True)),
                       ops.softmax(square, 2, causal=True))
    assert torch.equal(ops.softmax(X, causal=np.bool_(False)), ops.softmax(X))
    target = torch.tensor([0, 1, 2, 3, 3])
    assert torch.equal(ops.cross_entropy(X[0], target, np.int64(3)), ops.cross_entropy(X[0], target, 3))
    rotated = ops.rope(Q, None, COS, COS, rotary_dim=np.int32(16))[0]
    assert torch.equal(rotated, ops.rope(Q, None, COS, COS)[0])
    tokens = Q[0].transpose(0, 1)
    sequences = tokens, tokens, tokens, SEQUENCES, SEQUENCES
    assert torch.equal(
        ops.varlen_attention(*sequences, np.int64(5), window_size=np.array([1, 1])),
        ops.varlen_attention(*sequences, 5, window_size=(1, 1)),
    )


def rope_of_the_library(**changes):
    q, table = torch.randn(2, 5, 3, 8), torch.ones(5, 8)
    values = {"q_out": torch.empty_like(q), "q_in": q, "table_cos": table, "table_sin": table}
    values |= {"rotary_dim": 8, "style": 1, "layout": "bshd"}
    return lambda: launch("rope_forward", **(values | changes))


def rope_with(k, **changes):
    return rope_of_the_library(k_in=k, k_out=torch.empty_like(k), **changes)


def attention_of_the_library(function):
    tensors = ("q", "k", "v", "o", "grad_q", "grad_k", "grad_v", "grad_o")
    values = {"stats": torch.empty(2, 4, 6), "layout": "bhsd", "longest_q": 0, "longest_kv": 0}
    return lambda: launch(function, **dict.fromkeys(tensors, Q), **values)


def cross_entropy_of_the_library(**values):
    return lambda: launch("cross_entropy_forward", loss=torch.empty(5), logits=X[0],
                          targets=torch.zeros(5).long(), **values)


def of_the_library(name, **values):
    return lambda: launch(name, **values)


STATISTIC = torch.ones(10)  # of each row of X
WRONG_FOR_THE_LIBRARY = {
    "a bias alone": (
        of_the_library("layernorm_forward", y=X + 1, x=X, bias=ONES),
        "layernorm_forward: has_bias is true, and has_weight is false: a bias needs a weight"),
    "a mean beside y": (
        of_the_library("layernorm_backward", dx=X + 1, dy=X, y=X, mean=STATISTIC, rstd=STATISTIC,
                       has_bias=False, from_output=True),
        "layernorm_backward: mean is set, and from_output is true: it would be ignored"),
    "no x": (of_the_library("rmsnorm_forward", y=X + 1), "x is missing"),
    "no y": (of_the_library("rmsnorm_backward", dx=X + 1, dy=X, x=X, rstd=STATISTIC,
                            from_output=True), "y is missing"),
    "a weight of more dimensions": (of_the_library("rmsnorm_forward", y=X + 1, x=X, weight=X[None]),
                                    "weight has 4 dimensions, and x has 3"),
    "a norm's weight": (
        of_the_library("rmsnorm_forward", y=X + 1, x=X, weight=ONES.view(2, 12)),
        "weight has the shape [2, 12], and not 120 elements"),
    "a weight's gradient": (
        of_the_library("rmsnorm_backward", dx=X + 1, dweight=ONES[1:], dy=X, x=X, weight=ONES,
                       rstd=STATISTIC),
        "dweight has the shape [23], and weight has [24]"),
    "rope's batch": (rope_with(torch.randn(1, 5, 1, 8)),
                     "k has the shape [1, 5, 1, 8], and q has [2, 5, 3, 8]: only dimension 2 may"),
    "rope's tokens": (rope_with(torch.randn(2, 4, 1, 8)), "[2, 4, 1, 8], and q"),
    "rope's dim": (rope_with(torch.randn(2, 5, 1, 4)), "[2, 5, 1, 4], and q"),
    "rope's rank": (rope_with(torch.randn(2, 5, 8)), "[2, 5, 8], and q"),
    "rope's k alone": (rope_of_the_library(k_in=torch.randn(2, 5, 1, 8)),
                       "k is given, and k_out is not"),
    "rope's layout": (rope_of_the_library(layout="bhds"),
                      "layout is 'bhds'; bshd, bhsd, sbhd and thd are possible"),
    "rope's starts": (rope_with(torch.randn(2, 5, 1, 8), starts=SEQUENCES),
                      "starts has the shape [3], and not 2 elements"),
    "masks": (
        of_the_library("softmax_forward", y=X + 1, x=X, mask_bytes=torch.ones(3, 1, 5, 24) > 0),
        "mask has 3 masks, and x 2 matrices"),
    "attention's statistics": (attention_of_the_library("attention_forward"),
                               "stats has the shape [2, 4, 6], and not 40 elements"),
    "the statistics that attention reads": (attention_of_the_library("attention_backward"),
                                            "stats has the shape [2, 4, 6], and not 40 elements"),
    "cross entropy's lse": (cross_entropy_of_the_library(lse=torch.empty(6)),
                            "lse has the shape [6], and loss has [5]"),
    "cross entropy's saved": (cross_entropy_of_the_library(saved=torch.empty(5, 3)),
                              "saved has the shape [5, 3], and not 10 elements"),
}


@pytest.mark.parametrize("name", WRONG_FOR_THE_LIBRARY)
def test_the_library_refuses_what_does_not_fit_together(name):
    call, says = WRONG_FOR_THE_LIBRARY[name]
    before = len(launched())
    with pytest.raises(kiln.InvalidArgument, match=re.escape(says)):
        call()
    assert len(launched()) == before


def test_a_value_of_another_type_is_refused_by_its_name():
    with pytest.raises(TypeError, match="softmax_forward: scale is of the type"):
        launch("softmax_forward", y=X + 1, x=X, scale="1")
    values = in_order("softmax_forward", y=X + 1, x=X)
    with pytest.raises(kiln.InvalidArgument, match="softmax_forward takes 8 values, and 6 are"):
        library().softmax_forward(*values)


def test_a_name_that_python_or_the_library_lacks_is_an_error_where_it_is_bound():
    schema = torch.ops.kiln.softmax_bwd.default._schema
    with pytest.raises(TypeError, match="softmax_backward: Python and .* do not both know mask; take"):
        launch_of(schema, "softmax_backward", own=("mask",))
    with pytest.raises(TypeError, match="softmax_backward: Python and .* do not both know dz, y; take"):
        launch_of(schema, "softmax_backward", own=("y",), unused=("dz",))
    with pytest.raises(TypeError, match="there is no dz"):
        launch_of(schema, "softmax_backward", changes=[(lambda y, dz: (y,), ("y",))])
    with pytest.raises(TypeError, match="has scale in the place of y"):
        check_order(lambda dy, scale: dy, ["dy", "y", "scale"])
    with pytest.raises(kiln.InvalidArgument, match="no operation is called softmax_sideways"):
        library().parameters("softmax_sideways")


def test_tensors_of_two_devices_are_refused():
    x = torch.randn(5, 24, dtype=BF16)
    with pytest.raises(kiln.InvalidArgument, match="on cpu, and another is a meta tensor"):
        ops.bias_gelu(x, torch.empty(24, dtype=BF16, device="meta"))


def test_the_device_of_the_tensors_runs_the_kernel_whichever_is_current():
    x = torch.randn(5, 24)
    for ordinal in (0, 1):
        with kiln.testing.device(ordinal):
            y = ops.softmax(x)
        assert kiln.testing.launches()[-1].device == ordinal
        torch.testing.assert_close(y, torch.softmax(x, -1))


@pytest.mark.parametrize("shape, axis", [((4, 8), -1), ((4, 8), 0), ((2, 4, 8), 1), ((2, 4, 8), 2), ((8,), 0)])
def test_a_dimension_in_the_place_of_the_scale_of_softmax_is_refused(shape, axis):
    with pytest.raises(kiln.InvalidArgument, match=f"scale is {axis}, an int.*dimension"):
        ops.softmax(torch.randn(shape), axis)
    x = torch.randn(2, 3, 8)
    for number in (np.int64(-1), torch.tensor(-1)):
        with pytest.raises(kiln.InvalidArgument, match="scale is -1, an int.*dimension"):
            ops.softmax(x, number)
    for options in ({"mask": torch.zeros(3, 8, dtype=torch.bool)}, {"causal": True}):
        with pytest.raises(kiln.InvalidArgument, match="scale is -1, an int.*dimension"):
            ops.softmax(x, -1, **options)


def test_a_scale_of_softmax_that_is_no_dimension_may_be_an_int():
    x = torch.randn(2, 4, 8)
    assert torch.equal(ops.softmax(x, 3), ops.softmax(x, 3.0))
    assert torch.equal(ops.softmax(x[0], 1), ops.softmax(x[0]))


def test_rope_of_heads_before_the_sequence_is_refused_where_cos_shows_it():
    q = torch.randn(2, 3, 6, 8)  # heads, then sequence
    cos, sin = torch.randn(6, 8), torch.randn(6, 8)
    for tables in ((cos, sin), (cos[None], sin[None])):
        with pytest.raises(kiln.InvalidArgument, match="third dimension, which are the heads"):
            ops.rope(q, None, *tables)
    ops.rope(q, None, cos, sin, layout="bhsd")
    ops.rope(q, None, cos, sin, layout="bshd")  # six heads, and a table of six positions
