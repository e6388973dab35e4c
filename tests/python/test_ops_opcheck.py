"""What torch.library.opcheck says of kiln.ops."""

import pytest
from ops_cases import CASES, calls_of, id_of, torch
from ops_device import device  # noqa: F401


def detached(args):
    return [each.detach() if isinstance(each, torch.Tensor) else each for each in args]


@pytest.mark.parametrize("case", CASES, ids=id_of)
def test_each_operation_passes_opcheck(case):
    forward, *backward = calls_of(case, case.dtypes[0])
    assert len(backward) == 1
    operation, args = forward
    inputs = detached(args)
    for each, original in zip(inputs, args):
        if isinstance(each, torch.Tensor) and each.is_floating_point():
            each.requires_grad_(original.requires_grad)
    torch.library.opcheck(operation, tuple(inputs))
    operation, args = backward[0]
    torch.library.opcheck(operation, tuple(detached(args)))
