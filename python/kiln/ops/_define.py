"""One operation of torch.ops.kiln: its schema, and all that torch asks of it.

    public function ─ Operation ─┬─ eager, plain tensors: Function ─ launch
                                 └─ all else: torch.ops.kiln.<name> ─┬─ fake
                                                                     └─ launch

The way past torch's dispatcher takes less than half of the time (8 instead of 21 us with a
gradient, without the launch). It is open where nothing listens there: no compiler, no mode,
no subclass of Tensor, no transform, no profiler.
"""

from __future__ import annotations

import torch

from .. import errors

LIBRARY = torch.library.Library("kiln", "FRAGMENT")  # ends with the process
OPERATIONS: list[Operation] = []

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _private(path: str):
    """A function of torch without a promise; None if this torch has none."""
    found = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


_dispatch_modes = _private("_C._len_torch_dispatch_stack")
_transforms = _private("_C._are_functorch_transforms_active")
_profiler = _private("autograd._profiler_enabled")
_CAN_BYPASS = None not in (_dispatch_modes, _transforms, _profiler)


def _all_meta(args):
    """torch would take the others for meta tensors, too, and compute nothing."""
    for arg in args:
        if isinstance(arg, torch.Tensor) and not arg.is_meta:
            raise errors.InvalidArgument(
                f"a tensor is on {arg.device}, and another is a meta tensor"
            )
    return args


def _refuse_gradient(ctx, *gradients):
    raise errors.Unavailable(
        "kiln's operations can be differentiated once: a gradient of their gradient was "
        "asked for (create_graph=True); use torch's operation where it is needed"
    )


class Operation:
    """An operation, which is called as its schema says, without keywords.

    outputs(*args): new tensors, or one; nothing is written. It is also the fake kernel.
    launch(outputs, *args): writes them. It is not called if one of the first ``reads``
      tensors is empty: the outputs are 0 then, where they have elements.
    save(ctx, inputs, output), backward(ctx, *gradients): as register_autograd() takes
      them, and for autograd.Function, too. Without them a gradient is refused.
    """

    def __init__(self, schema, outputs, launch, save=None, backward=None, reads=1):
        self.name = schema.partition("(")[0]
        self._outputs = outputs
        self._launch = launch
        self._reads = reads
        LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        self._overload = getattr(torch.ops.kiln, self.name).default
        save = save or (lambda ctx, inputs, output: None)
        inputs = len(self._overload._schema.arguments)
        backward = _skip_undefined(backward, inputs) if backward else _refuse_gradient
        qualified = f"kiln::{self.name}"
        LIBRARY.impl(self.name, self.run, "CUDA")
        torch.library.register_fake(qualified, outputs, lib=LIBRARY)
        torch.library.register_autograd(
            qualified, backward, setup_context=save, lib=LIBRARY
        )
        self._function = _function(self.name, self.run, save, backward)
        OPERATIONS.append(self)

    def __call__(self, *args):
        if torch.compiler.is_compiling() or not _CAN_BYPASS:
            return self._overload(*args)
        wants_gradient = False
        for arg in args:
            if isinstance(arg, torch.Tensor):
                if type(arg) not in _PLAIN or arg.is_neg():
                    return self._overload(*args)
                if arg.is_meta:
                    return self._overload(*_all_meta(args))
                wants_gradient = wants_gradient or arg.requires_grad
        if _dispatch_modes() or _transforms() or _profiler():
            return self._overload(*args)
        if wants_gradient and torch.is_grad_enabled():
            return self._function.apply(*args)
        return self.run(*args)

    def run(self, *args):
        """The kernel, without autograd."""
        outputs = self._outputs(*args)
        self.write(outputs, *args)
        return outputs

    def write(self, outputs, *args):
        """run() into tensors of one's own, which may have other strides."""
        if any(read.numel() == 0 for read in args[: self._reads]):
            for each in (outputs,) if isinstance(outputs, torch.Tensor) else outputs:
                each.zero_()
        else:
            self._launch(outputs, *args)


def _skip_undefined(backward, inputs):
    """A backward() that is called with None for outputs that nothing depends on."""

    def gradient(ctx, *gradients):
        if all(each is None for each in gradients):
            return (None,) * inputs
        return backward(ctx, *gradients)

    return gradient


def _function(name, run, save, backward):
    def forward(ctx, *args):
        output = run(*args)
        save(ctx, args, output)
        return output

    title = "Kiln" + "".join(part.capitalize() for part in name.split("_"))
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(title, (torch.autograd.Function,), methods)


_takes_cpu = False


def _register_cpu() -> None:
    """For kiln.testing: the operations take tensors in the CPU's memory, too."""
    global _takes_cpu
    if _takes_cpu:
        return
    _takes_cpu = True
    for operation in OPERATIONS:
        LIBRARY.impl(operation.name, operation.run, "CPU")
