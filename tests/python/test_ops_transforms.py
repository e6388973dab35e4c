"""torch.func and forward mode: what transforms operations, and what is refused."""

import warnings

import pytest
from ops_cases import F32, ONE_EACH, gradients_of, id_of, ops, outputs_of, torch
from ops_device import device, launched  # noqa: F401

import kiln


@pytest.fixture(autouse=True)
def without_warnings_of_vmap():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.vmap calls kiln::")
        yield


def loss_of(case):
    """A number that depends on each element of the outputs."""

    def loss(*inputs):
        outputs = outputs_of(case.kiln(*inputs))
        towards = (torch.linspace(-1, 1, each.numel()).view(each.shape) for each in outputs)
        return sum((each * weights).sum() for each, weights in zip(outputs, towards))

    return loss


@pytest.mark.parametrize("case", ONE_EACH, ids=id_of)
def test_gradients_by_torch_func_have_the_bits_of_autograds(case):
    inputs = case.inputs(F32)
    expected = torch.autograd.grad(loss_of(case)(*inputs), inputs)
    plain = [each.detach() for each in inputs]
    result = torch.func.grad(loss_of(case), argnums=tuple(range(len(plain))))(*plain)
    for a, b in zip(result, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("case", ONE_EACH, ids=id_of)
def test_a_pullback_outlives_its_transform(case):
    inputs = case.inputs(F32)
    expected = gradients_of(case.kiln(*inputs), inputs)
    outputs, pullback = torch.func.vjp(case.kiln, *(each.detach() for each in inputs))
    towards = tuple(
        torch.linspace(-1, 1, each.numel()).view(each.shape) for each in outputs_of(outputs)
    )
    result = pullback(towards if isinstance(outputs, tuple) else towards[0])
    for a, b in zip(result, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("case", ONE_EACH, ids=id_of)
def test_vmap_gives_the_results_and_gradients_of_each_element(case):
    one, other = case.inputs(F32, requires_grad=False), case.inputs(F32, requires_grad=False)
    batch = [torch.stack(pair) for pair in zip(one, other)]
    before = len(launched())
    results = outputs_of(torch.vmap(case.kiln)(*batch))
    assert len(launched()) == before + 2
    expected = zip(outputs_of(case.kiln(*one)), outputs_of(case.kiln(*other)), strict=True)
    for result, pair in zip(results, expected, strict=True):
        assert torch.equal(result, torch.stack(pair))
    of_all = torch.func.grad(loss_of(case), argnums=tuple(range(len(one))))
    gradients = torch.vmap(of_all)(*batch)
    for result, pair in zip(gradients, zip(of_all(*one), of_all(*other)), strict=True):
        assert torch.equal(result, torch.stack(pair))


def test_vmap_takes_any_dimension_and_tensors_that_all_elements_share():
    x, weight = torch.randn(5, 3, 48), torch.randn(48)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ops.CopyWarning)
        result = torch.vmap(ops.rms_norm, in_dims=(1, None), out_dims=1)(x, weight)
    assert torch.equal(result, ops.rms_norm(x, weight))


def test_a_gradient_through_vmap_is_that_of_the_batch():
    q, k, v = (torch.randn(2, 4, 5, 16) for _ in "qkv")

    def by_elements(q, k, v):
        return torch.vmap(ops.scaled_dot_product_attention)(q, k, v).square().sum()

    def by_batch(q, k, v):
        return ops.scaled_dot_product_attention(q, k, v).square().sum()

    expected = torch.func.grad(by_batch, argnums=(0, 1, 2))(q, k, v)
    for a, b in zip(torch.func.grad(by_elements, argnums=(0, 1, 2))(q, k, v), expected):
        torch.testing.assert_close(a, b)
    inputs = [each.requires_grad_() for each in (q, k, v)]  # autograd, from without
    for a, b in zip(torch.autograd.grad(by_elements(*inputs), inputs), expected):
        torch.testing.assert_close(a, b)


def test_a_jacobian_has_a_row_for_each_output():
    x = torch.randn(24)
    jacobian = torch.func.jacrev(ops.squared_relu)(x)
    torch.testing.assert_close(jacobian, torch.diag(2 * x.relu()))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("case", ONE_EACH, ids=id_of)
def test_a_batch_of_gradients_has_that_of_each(case):
    inputs = case.inputs(F32)
    output = outputs_of(case.kiln(*inputs))[0]
    towards = torch.randn(2, *output.shape)
    options = {"retain_graph": True, "allow_unused": True}
    batch = torch.autograd.grad(output, inputs, towards, is_grads_batched=True, **options)
    one, other = (torch.autograd.grad(output, inputs, each, **options) for each in towards)
    for result, *pair in zip(batch, one, other, strict=True):
        assert pair[0] is None is result or torch.equal(result, torch.stack(pair))


def test_vmap_warns_once_of_what_it_calls_how_often(monkeypatch):
    operation = ops._activation.activation_fwd
    monkeypatch.setattr(operation, "_warned_of_vmap", False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.vmap(ops.squared_relu)(torch.randn(3, 5, 24))
        torch.vmap(ops.squared_relu)(torch.randn(3, 5, 24))
    (warning,) = caught
    assert "torch.vmap calls kiln::activation_fwd 3 times" in str(warning.message)


@pytest.mark.parametrize("case", ONE_EACH, ids=id_of)
def test_a_forward_mode_derivative_is_refused_in_words(case):
    inputs = tuple(case.inputs(F32, requires_grad=False))
    with pytest.raises(kiln.Unavailable, match="no forward-mode derivative"):
        torch.func.jvp(case.kiln, inputs, tuple(map(torch.ones_like, inputs)))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(inputs[0], torch.ones_like(inputs[0]))
        with pytest.raises(kiln.Unavailable, match="no forward-mode derivative"):
            case.kiln(dual, *inputs[1:])
        for a, b in zip(outputs_of(case.kiln(*inputs)), outputs_of(case.kiln(*inputs))):
            assert torch.equal(a, b)  # without a tangent


def test_a_second_derivative_by_torch_func_is_refused_in_words():
    def slope(x):
        return torch.func.grad(lambda t: ops.squared_relu(t).sum())(x).sum()

    with pytest.raises(kiln.Unavailable, match="differentiated once"):
        torch.func.grad(slope)(torch.randn(5, 24))
    with pytest.raises(kiln.Unavailable, match="no forward-mode derivative"):
        torch.func.hessian(lambda t: ops.squared_relu(t).sum())(torch.randn(3))


def test_vmap_of_no_elements_is_refused_in_words():
    with pytest.raises(kiln.InvalidArgument, match="a batch without elements"):
        torch.vmap(ops.squared_relu)(torch.randn(0, 5, 24))


def test_fake_tensors_pass_through_transforms_without_a_launch():
    before = len(launched())
    with torch._subclasses.FakeTensorMode():
        x = torch.empty(3, 5, 24)
        gradient = torch.func.grad(lambda t: ops.squared_relu(t).sum())(x)
    assert gradient.shape == (3, 5, 24) and len(launched()) == before
