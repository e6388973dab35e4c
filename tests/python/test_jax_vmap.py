"""kiln.jax under vmap: in one call or by a loop, as a call for each element. --full runs this."""

import numpy as np
import pytest
from jax_cases import (
    LENGTHS,
    OF_EACH,
    QK,
    QKV,
    SEEN,
    TWICE,
    attention,
    check_near,
    jax,
    kj,
    numbers,
    pulled_back,
    rope,
)
from jax_device import device  # noqa: F401

BATCH = 2
BIAS = (1, 2, 5, 7)


@pytest.mark.parametrize(
    "function, shapes, axes",
    [
        pytest.param(kj.softmax, ((5, 24),), (1,), id="softmax"),
        pytest.param(lambda x: kj.softmax(x, causal=True), ((24,),), (0,), id="softmax_of_a_row"),
        pytest.param(lambda x, t: kj.softmax(x, mask=t > 0), ((5, 24), (5, 24)), (None, 0),
                     id="softmax_of_masks"),
        pytest.param(kj.rms_norm, ((5, 48), (48,)), (0, None), id="rms_norm"),
        pytest.param(kj.rms_norm, ((5, 48), (48,)), (None, 1), id="rms_norm_of_weights"),
        pytest.param(kj.rms_norm, ((5, 48),), (0,), id="rms_norm_without_weight"),
        pytest.param(rope(TWICE), QK, (0, None), id="rope"),
        pytest.param(rope(OF_EACH), QK, (0, 2), id="rope_of_position_ids"),
        pytest.param(lambda q, t: kj.rope(q, None, t, None, rotary_dim=8)[0],
                     ((2, 6, 3, 8), (6, 8)), (0, 0), id="rope_of_tables"),
        pytest.param(attention(**LENGTHS), QKV, (0, 0, None), id="attention"),
        pytest.param(attention(mask=SEEN), QKV, (0, 0, 0), id="attention_masked"),
        pytest.param(attention(), (*QKV, BIAS), (0, 0, 0, None), id="attention_biased"),
        pytest.param(attention(), (*QKV, BIAS), (None, None, None, 0), id="attention_of_biases"),
    ],
)
def test_vmap_is_a_call_for_each_element(function, shapes, axes):
    inputs = [
        numbers(shape if at is None else (*shape[:at], BATCH, *shape[at:]), i)
        for i, (shape, at) in enumerate(zip(shapes, axes))
    ]
    one = jax.jit(pulled_back(function))
    results = jax.jit(jax.vmap(pulled_back(function), in_axes=axes))(*inputs)
    singles = [
        one(*(x if at is None else np.take(x, i, at) for x, at in zip(inputs, axes)))
        for i in range(BATCH)
    ]
    check_near(results, jax.tree.map(lambda *each: np.stack(each), *singles), 1e-6)
