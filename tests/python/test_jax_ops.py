"""kiln.jax against formulas and JAX's own functions, with each option. --full runs this;
test_jax_program.py has one case of each operation."""

import numpy as np
import pytest
from jax_cases import (
    BOUND,
    CASES,
    QKV,
    attention,
    check_near,
    jax,
    jnp,
    kj,
    numbers,
    pulled_back,
)
from jax_device import device  # noqa: F401


@pytest.mark.parametrize(
    "case, dtype",
    [pytest.param(c, d, id=f"{c.name}-{d.__name__}") for c in CASES for d in c.dtypes],
)
def test_results_and_gradients_are_those_of_the_formula(case, dtype):
    case.check(dtype)


def test_the_residual_is_the_log_sum_exp_of_each_query():
    inputs = [numbers(shape, i) for i, shape in enumerate(QKV)]
    results = kj.dot_product_attention(*inputs, return_residual=True)
    references = jax.nn.dot_product_attention(*inputs, return_residual=True)
    check_near(results, references, BOUND["float32"])
    assert results[1].shape == (2, 5, 2)


def test_what_sees_nothing_is_0_and_has_the_gradient_0():
    nothing = np.ones((5, 24), bool)
    outputs, gradients = pulled_back(lambda x: kj.softmax(x, mask=nothing))(numbers((5, 24)))
    assert not outputs.any() and not gradients[0].any()
    unseen = np.zeros((1, 1, 5, 7), bool)
    inputs = [numbers(shape) for shape in QKV]
    outputs, gradients = pulled_back(attention(mask=unseen))(*inputs)
    assert not outputs.any() and not any(each.any() for each in gradients)


def test_a_mask_is_given_as_it_is():
    mask = np.ones((2, 1, 5, 7), bool)
    inputs = [numbers(shape) for shape in QKV]
    text = str(jax.make_jaxpr(pulled_back(attention(mask=mask)))(*inputs))
    assert "bool[2,1,5,7]" in text and "f32[2,1,5,7]" not in text


def test_arrays_without_elements_have_results_without_a_launch():
    assert kj.softmax(jnp.zeros((3, 0))).shape == (3, 0)
    _, gradients = pulled_back(kj.rms_norm)(jnp.zeros((0, 48)), jnp.ones(48))
    assert gradients[0].shape == (0, 48) and not gradients[1].any()
    _, gradients = pulled_back(kj.rms_norm)(jnp.zeros((0, 48)))
    assert gradients[0].shape == (0, 48)
    empty, keys = jnp.zeros((2, 0, 2, 16)), jnp.zeros((2, 7, 2, 16))
    outputs, _ = pulled_back(attention())(keys, empty, empty)
    assert outputs.shape == keys.shape and not outputs.any()


def test_compiled_and_eager_give_equal_bits():
    x, weight = numbers((5, 48)), numbers((48,), 1)
    assert np.array_equal(kj.rms_norm(x, weight), jax.jit(kj.rms_norm)(x, weight))
