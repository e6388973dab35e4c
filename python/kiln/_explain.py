"""kiln.explain(): which backend runs attention, and why not cuDNN."""

from __future__ import annotations

import dataclasses
import json

import torch

from . import ops
from ._library import library, parameters
from ._prepare import ordinal_of, stand_in
from .errors import InvalidArgument
from .ops._launch import PREPARE, handled_by


@dataclasses.dataclass(frozen=True)
class Finding:
    """Why cuDNN does not run a problem, and what changes that; "" if nothing does."""

    id: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.id}: {self.reason}" + (
            f"; remedy: {self.remedy}" if self.remedy else ""
        )


@dataclasses.dataclass(frozen=True)
class Pass:
    """The forward or the backward pass. ``backend``: "cudnn", "kiln" or "none"."""

    backend: str
    refusals: tuple[Finding, ...]
    kernel: str  # of Kiln: why this one, or why none
    data: dict = dataclasses.field(repr=False)

    def __str__(self) -> str:
        lines = [self.backend]
        lines += [f"  not by cuDNN: {each}" for each in self.refusals]
        if self.backend != "cudnn" and self.kernel:
            lines.append(f"  Kiln's kernel: {self.kernel}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What runs a call of attention. ``data``: as in `kiln attention explain --json`,
    for each pass."""

    forward: Pass
    backward: Pass
    data: dict = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return f"forward: {self.forward}\nbackward: {self.backward}"


def explain(q, k, v, *args, device=None, capture=False, **kwargs) -> Explanation:
    """Which backend runs scaled_dot_product_attention(q, k, v, ...) on a device, and why.

    q, k, v: tensors of any device ("meta", too); only shapes, strides and types count.
    All else as in scaled_dot_product_attention(); with cu_seqlens_q=..., as in
    varlen_attention(). Where q requires no gradient, the forward pass is that of
    inference.
    device: a CUDA device; None: that of q, or the current one.
    capture: whether it is captured into a CUDA graph: some cuDNN plans must not be.

    Blocks: it asks the installed cuDNN by building a plan. Ignores KILN_ATTENTION.
    """
    if device is None and q.is_cuda:
        device = q.device
    ordinal = ordinal_of(device)
    deterministic = torch.are_deterministic_algorithms_enabled()
    answers = []

    def handler(name, values):
        values = values | {"deterministic": deterministic, "capture": capture}
        names = parameters("attention_explain", *values)
        wanted = (values[each] for each in names)
        answers.append(library().attention_explain(PREPARE, ordinal, *wanted))

    is_packed = "cu_seqlens_q" in kwargs
    function = ops.varlen_attention if is_packed else ops.scaled_dot_product_attention
    stands = [stand_in(each, wants_gradient=True) for each in (q, k, v)]
    kwargs = {name: _stand_in(each) for name, each in kwargs.items()}
    with handled_by(handler):
        function(*stands, *map(_stand_in, args), **kwargs)
    if not answers:
        raise InvalidArgument("there is nothing to explain: a tensor is empty")
    return _explanation(json.loads(answers[0]))


def _stand_in(value):
    return stand_in(value) if isinstance(value, torch.Tensor) else value


def _explanation(data) -> Explanation:
    return Explanation(_pass(data["forward"]), _pass(data["backward"]), data)


def _pass(data) -> Pass:
    cudnn = data["cudnn"]
    refusals = [Finding(**each) for each in cudnn["rules"]]
    probe = cudnn["probe"]
    if not refusals and not probe["built"]:
        refusals.append(Finding("probe", probe["message"] or probe["status"], ""))
    return Pass(data["chosen"], tuple(refusals), data["kiln"]["reason"], data)
