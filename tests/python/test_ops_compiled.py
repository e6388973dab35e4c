"""kiln.ops under torch's compiler."""

import pytest
from ops_cases import BF16, CASES_AND_TYPES, F32, gradients_of, id_of, ops, outputs_of, torch
from ops_device import device  # noqa: F401


@pytest.mark.parametrize("case, dtype", CASES_AND_TYPES, ids=id_of)
def test_a_compiled_call_has_the_bits_of_an_eager_one(case, dtype):
    inputs = case.inputs(dtype)
    compiled = torch.compile(case.kiln, fullgraph=True, backend="aot_eager")
    eager, traced = case.kiln(*inputs), compiled(*inputs)
    for a, b in zip(outputs_of(eager), outputs_of(traced), strict=True):
        assert torch.equal(a, b) and a.stride() == b.stride()
    for a, b in zip(gradients_of(eager, inputs), gradients_of(traced, inputs), strict=True):
        assert torch.equal(a, b)
    torch._dynamo.reset()


def test_a_compiled_call_takes_other_sizes_without_a_new_graph():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(ops.rms_norm, fullgraph=True, dynamic=True, backend=backend)
    weight = torch.randn(48)
    for rows in (5, 6, 7):
        x = torch.randn(rows, 48)
        assert torch.equal(compiled(x, weight), ops.rms_norm(x, weight))
    assert len(graphs) == 1
    torch._dynamo.reset()


def test_autocast_holds_in_a_compiled_function():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def call(x):
        with torch.autocast("cpu", dtype=BF16):
            return ops.softmax(x.bfloat16())

    assert call(torch.randn(2, 3, 5, 24)).dtype == F32
    torch._dynamo.reset()
