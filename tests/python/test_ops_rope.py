"""The forms of kiln.ops.rope: positions, layouts, parts of a head, packed sequences."""

import pytest
from ops_cases import F32, gradients_of, ops, rotate_half, torch
from ops_device import device  # noqa: F401


def angles(positions, columns):
    steps = torch.arange(float(positions))[:, None] * torch.tensor([1.0, 0.3, 0.1, 0.01])
    return torch.cat([steps, steps], -1)[:, :columns]


def rotated(x, at):
    """x of [..., heads, dim] by the angles of its tokens, [..., columns]."""
    r = at.shape[-1]
    cos, sin = at.cos().unsqueeze(-2), at.sin().unsqueeze(-2)
    return torch.cat([x[..., :r] * cos + rotate_half(x[..., :r]) * sin, x[..., r:]], -1)


def check(result, expected, q):
    torch.testing.assert_close(result, expected)
    (gradient,) = gradients_of(result, [q])
    (wanted,) = gradients_of(expected, [q])
    torch.testing.assert_close(gradient, wanted)


def test_the_first_part_of_a_head_is_rotated():
    at = angles(6, 8)
    q = torch.randn(2, 5, 3, 24, requires_grad=True)
    result, none = ops.rope(q, None, at.cos(), at.sin())
    assert none is None
    check(result, rotated(q, at[:5]), q)


def test_a_table_may_have_a_column_for_two_elements():
    at = angles(5, 8)
    q = torch.randn(2, 5, 3, 8, requires_grad=True)
    cos, sin = at[:, :4].cos(), at[:, :4].sin()
    check(ops.rope(q, None, cos, sin, rotary_dim=8)[0], rotated(q, at), q)
    # Of half a head: the same table would be enough for the whole.
    q = torch.randn(2, 5, 3, 16, requires_grad=True)
    check(ops.rope(q, None, at.cos(), at.sin(), rotary_dim=8)[0], rotated(q, at), q)


@pytest.mark.parametrize("batch", [1, 2])
def test_each_token_may_have_a_row_of_its_own(batch):
    table = angles(40, 8)
    ids = torch.randint(0, 40, (batch, 5))
    at = table[ids]
    q = torch.randn(2, 5, 3, 8, requires_grad=True)
    k = torch.randn(2, 5, 1, 8)
    q_out, k_out = ops.rope(q, k, at.cos(), at.sin())
    check(q_out, rotated(q, at), q)
    torch.testing.assert_close(k_out, rotated(k, at))


def test_sequence_first_and_angles():
    at = angles(5, 8)
    q = torch.randn(5, 2, 3, 8, requires_grad=True)
    result, _ = ops.rope(q, None, at, None, layout="sbhd")
    check(result, rotated(q, at[:, None]), q)


def test_packed_sequences_begin_at_position_0():
    at = angles(6, 8)
    q = torch.randn(8, 3, 8, requires_grad=True)
    ends = torch.tensor([0, 3, 3, 8], dtype=torch.int32)
    positions = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4])
    result, _ = ops.rope(q, None, at.cos(), at.sin(), cu_seqlens=ends)
    check(result, rotated(q, at[positions]), q)


def test_outputs_have_the_strides_of_the_inputs():
    q = torch.randn(2, 3, 5, 8).transpose(1, 2)
    at = angles(5, 8)
    result, _ = ops.rope(q, None, at.cos(), at.sin())
    assert result.stride() == q.stride() and result.dtype == F32
    torch.testing.assert_close(result, rotated(q, at))
