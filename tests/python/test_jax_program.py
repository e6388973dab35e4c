"""kiln.jax in XLA's programs: gradients of each operation, devices, vmap, shard_map, what may be
captured, and what goes wrong."""

import re

import numpy as np
import pytest
from jax_cases import ONE_EACH, check_near, jax, jnp, kj, numbers
from jax_device import device, images  # noqa: F401  the fixture

from jax.sharding import Mesh, PartitionSpec as P

import kiln
from kiln.jax import _call


@pytest.mark.parametrize("case", ONE_EACH, ids=lambda case: case.name)
def test_results_and_gradients_are_those_of_the_formula(case):
    case.check(jnp.float32)


def test_vmap_of_vmap_and_the_gradient_of_a_vmap():
    x, weight = numbers((2, 3, 5, 48)), numbers((48,), 1)
    nested = jax.vmap(jax.vmap(kj.rms_norm, in_axes=(0, None)), in_axes=(0, None))

    @jax.jit
    def both(x, weight):
        def gradients(norm):
            return jax.grad(lambda x, weight: (norm(x, weight) * x).sum(), (0, 1))(x, weight)

        return gradients(nested), gradients(kj.rms_norm)

    check_near(*both(x, weight), 1e-5)


# ---- Devices


def test_one_program_runs_on_each_device_with_a_kernel_of_its_own():
    """A plan of one device cannot run on another: a call has no device but XLA's."""
    assert [each.capability for each in kiln.devices()] == [(9, 0), (8, 6)]
    program = jax.jit(lambda x: kj.softmax(x, 0.5))
    x = numbers((2, 3, 24)).astype(np.float16)
    first, loaded = len(kiln.testing.launches()), kiln.statistics()["loaded"]
    results = []
    for each in (*jax.devices(), *jax.devices()):
        results.append(program(jax.device_put(x, each)).block_until_ready())
        assert results[-1].devices() == {each}
    launches = kiln.testing.launches()[first:]
    assert [each.device for each in launches] == [0, 1, 0, 1]
    assert kiln.statistics()["loaded"] - loaded == 2
    of_0, of_1, *again = images(first)
    assert of_0 != of_1 and again == [of_0, of_1]
    assert all(np.array_equal(results[0], each) for each in results[1:])


def norm(x, weight):
    return kj.rms_norm(x, weight)


def self_attention(x, bias):
    return kj.dot_product_attention(x, x, x, bias)


@pytest.mark.parametrize(
    "function, shapes, check_vma",
    [
        (norm, ((2, 5, 48), (48,)), True),
        (norm, ((2, 5, 48), (48,)), False),
        (self_attention, ((2, 5, 2, 16), (1, 2, 5, 5)), True),
    ],
)
def test_shard_map_runs_each_part_on_its_device_and_sums_the_gradients(function, shapes, check_vma):
    inputs = [numbers(shape, i) for i, shape in enumerate(shapes)]
    mesh = Mesh(np.array(jax.devices()), ("i",))
    parts = jax.shard_map(
        function, mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i"), check_vma=check_vma
    )

    def gradients(f):
        return jax.jit(jax.value_and_grad(lambda *a: (f(*a) * a[0]).sum(), (0, 1)))

    whole = gradients(function)(*inputs)
    first = len(kiln.testing.launches())
    check_near(gradients(parts)(*inputs), whole, 1e-5)
    assert {each.device for each in kiln.testing.launches()[first:]} == {0, 1}


# ---- Capture


@pytest.mark.parametrize(
    "function, shapes, forward, backward",
    [
        (kj.softmax, ((5, 24),), "kiln.launch", "kiln.launch"),
        (lambda q: kj.rope(q, None, jnp.ones((5, 8)), None)[0], ((2, 5, 3, 8),), "kiln.launch",
         "kiln.launch"),
        (kj.rms_norm, ((5, 48), (48,)), "kiln.launch", "kiln.launch_with_workspace"),
        (kj.rms_norm, ((5, 48),), "kiln.launch", "kiln.launch"),
        (kj.dot_product_attention, ((2, 5, 4, 16),) * 3, "kiln.launch_with_workspace",
         "kiln.launch_with_workspace"),
    ],
)  # fmt: skip
def test_xla_may_capture_the_calls_that_need_no_scratch_memory(function, shapes, forward, backward):
    inputs = [np.ones(shape, np.float32) for shape in shapes]

    def both(*inputs):
        outputs, pull = jax.vjp(function, *inputs)
        return pull(outputs)

    def targets(of):
        text = jax.jit(of).lower(*inputs).as_text()
        return re.findall(r"stablehlo.custom_call @(kiln[.\w]+)", text)

    assert targets(function) == [forward]
    assert targets(both) == [forward, backward]


# ---- What goes wrong


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: kj.softmax(jnp.ones((2, 3), jnp.int32)), "x is int32; float16"),
        (lambda: kj.softmax(jnp.ones((2, 3)), mask=jnp.ones((2, 3))), "mask is float32"),
        (lambda: kj.softmax(jnp.ones((2, 3)), mask=jnp.ones((3, 3), bool)), "broadcast"),
        (lambda: kj.rms_norm(jnp.ones((2, 3)), jnp.ones(2)), "weight has the shape [2]"),
        (lambda: kj.rms_norm(jnp.ones((2, 3)), jnp.ones(3), casting="t5"), "casting is 't5'"),
        (lambda: kj.rope(jnp.ones((1, 2, 1, 8)), None, jnp.ones((2, 4)), None),
         "rotary_dim=8 if two"),
        (lambda: kj.rope(jnp.ones((1, 2, 1, 8)), None, jnp.ones((1, 8)), None), "[1, 8]"),
        (lambda: kj.dot_product_attention(*[jnp.ones((1, 2, n, 8)) for n in (3, 2, 2)]),
         "3 heads"),
        (lambda: kj.dot_product_attention(*[jnp.ones((1, 2, 2, 8))] * 3, implementation="tpu"),
         "'tpu'"),
        (lambda: kj.dot_product_attention(*[jnp.ones((1, 2, 2, 8))] * 3, local_window_size=-1),
         "local_window_size is -1"),
        (lambda: kj.dot_product_attention(*[jnp.ones((1, 2, 2, 8))] * 3,
                                          query_seq_lengths=jnp.ones(1)), "float32 [1]"),
    ],
)  # fmt: skip
def test_what_shapes_and_types_tell_is_refused_while_tracing(call, says):
    with pytest.raises(kiln.InvalidArgument) as refusal:
        call()
    assert says in str(refusal.value)


def test_an_error_of_a_run_is_one_of_xla_with_kilns_class_and_message():
    x, weight = jnp.ones((2, 48), jnp.bfloat16), jnp.ones(48, jnp.float16)
    with pytest.raises(jax.errors.JaxRuntimeError) as error:
        kj.rms_norm(x, weight).block_until_ready()
    assert re.search(r"INVALID_ARGUMENT: kiln\.InvalidArgument: .*weight", str(error.value))


def test_a_gradient_of_a_gradient_is_refused():
    def gradient(x):
        return jax.grad(lambda x: (kj.softmax(x) * x).sum())(x)

    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda x: gradient(x).sum())(numbers((2, 24)))


def test_without_its_library_it_says_how_to_build_it(monkeypatch, tmp_path):
    monkeypatch.setattr(_call, "_is_registered", False)
    monkeypatch.setattr(_call, "library_path", lambda: tmp_path / "libkiln_ffi.so")
    with pytest.raises(kiln.Unavailable, match="without the headers of XLA, .* build it again"):
        kj.softmax(jnp.ones((2, 3)))


def test_importing_it_opens_nothing_and_the_cpus_memory_is_refused(python):
    said = python(
        """
        import jax, jax.numpy as jnp
        import kiln.jax
        assert "libkiln" not in open("/proc/self/maps").read(), "it opened the library"
        try:
            kiln.jax.softmax(jnp.ones((2, 3))).block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            print(error)
        """,
        JAX_PLATFORMS="cpu",
    )
    assert "kiln.InvalidArgument: x is not on a CUDA device" in said
