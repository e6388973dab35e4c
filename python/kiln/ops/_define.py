"""One operation of torch.ops.kiln: its schema, and all that torch asks of it.

    public function ─ Operation ─┬─ eager, plain tensors: Function ─ launch
                                 ├─ torch.func: its Function, level by level
                                 └─ all else: torch.ops.kiln.<name> ─┬─ fake
                                                                     └─ launch

The way past torch's dispatcher takes less than half of the time (8 instead of 21 us with a
gradient, without the launch). It is open where nothing listens there: no compiler, no mode,
no subclass of Tensor, no profiler, no tracer.
"""

from __future__ import annotations

import warnings

import torch

from .. import errors
from ._inputs import refuse_no_tensor
from ._launch import check_order, launch_of

LIBRARY = torch.library.Library("kiln", "FRAGMENT")  # ends with the process
OPERATIONS: list[Operation] = []

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _private(path: str):
    """A function of torch without a promise; None if this torch has none."""
    found = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


# Under torch.export, too, whose tensors are of a subclass.
_is_traced = torch.compiler.is_dynamo_compiling
_dispatch_modes = _private("_C._len_torch_dispatch_stack")
_transforms = _private("_C._are_functorch_transforms_active")
_profiler = _private("autograd._profiler_enabled")
_tracer = _private("_C._get_tracing_state")  # that of torch.jit.trace
# Of a gradient, under torch.autograd.grad(is_grads_batched=True).
_is_batched_gradient = _private("_C._functorch.is_legacy_batchedtensor")
_forward_mode = _private("autograd.forward_ad")  # its _current_level: -1 for none
_innermost = _private("_C._functorch.peek_interpreter_stack")
_unwrap_if_dead = _private("_C._functorch.unwrap_if_dead")
_FUNCTIONALIZE = _private("_C._functorch.TransformType.Functionalize")
_CAN_BYPASS = hasattr(_forward_mode, "_current_level") and None not in (
    *(_dispatch_modes, _transforms, _profiler, _tracer, _is_batched_gradient),
    *(_innermost, _unwrap_if_dead, _FUNCTIONALIZE),
)


def may_need_gradient(tensors) -> bool:
    """Whether a backward pass may follow. Under torch.func a tensor does not tell
    whether an outer transform differentiates, and in a trace not what later ones do."""
    if not torch.is_grad_enabled():
        return False
    if any(each.requires_grad for each in tensors):
        return True
    if torch.compiler.is_compiling() or not _CAN_BYPASS:
        return False
    return _transforms() or _tracer() is not None


def _all_meta(args):
    """torch would take the others for meta tensors, too, and compute nothing."""
    for arg in args:
        if isinstance(arg, torch.Tensor) and not arg.is_meta:
            raise errors.InvalidArgument(
                f"a tensor is on {arg.device}, and another is a meta tensor"
            )
    return args


def _refuse_tangent(ctx, *tangents):
    raise errors.Unavailable(
        "kiln's operations have no forward-mode derivative, which torch.func.jvp, "
        "jacfwd, hessian and torch.autograd.forward_ad ask for: use torch.func.vjp or "
        "jacrev, or torch's operation"
    )


def _refuse_gradient(ctx, *gradients):
    raise errors.Unavailable(
        "kiln's operations can be differentiated once: a gradient of their gradient was "
        "asked for (create_graph=True); use torch's operation for such gradients"
    )


class Operation:
    """An operation, which is called as its schema says, without keywords.

    outputs(*args): new tensors, or one; nothing is written. It is also the fake kernel.
    launch: the name of the library's function that writes them, with the parameters that
      the schema names: launch_of(), which takes ``binding``. It is not called if one of the
      first ``reads`` tensors is empty: the outputs are 0 then, where they have elements.
    save(ctx, inputs, output), backward(ctx, *gradients): as register_autograd() takes
      them, and for autograd.Function, too. Without them a gradient is refused.
    """

    def __init__(
        self, schema, outputs, launch, save=None, backward=None, reads=1, **binding
    ):
        self.name = schema.partition("(")[0]
        self._outputs = outputs
        self._reads = tuple(range(reads))
        LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        self._overload = getattr(torch.ops.kiln, self.name).default
        save = save or (lambda ctx, inputs, output: None)
        schema = self._overload._schema
        self._launch = launch_of(schema, launch, **binding)
        arguments = schema.arguments
        inputs = len(arguments)
        kinds = [str(argument.type) for argument in arguments]
        self._tensors = [i for i in range(inputs) if "Tensor" in kinds[i]]
        self._needed = {i for i in self._tensors if kinds[i] == "Tensor"}
        self._names = [argument.name for argument in arguments]
        self.tensors = [self._names[i] for i in self._tensors]  # the names of the inputs
        check_order(outputs, self._names)
        self._takes_gradient = backward is None
        backward = _skip_undefined(backward, inputs) if backward else _refuse_gradient
        qualified = f"kiln::{self.name}"
        LIBRARY.impl(self.name, self.run, "CUDA")
        torch.library.register_fake(qualified, outputs, lib=LIBRARY)
        torch.library.register_autograd(
            qualified, backward, setup_context=save, lib=LIBRARY
        )
        self._function = _function(
            self.name, forward=_keeping(self.run, save), backward=backward
        )
        self._function_of_transforms = _function(
            self.name,
            forward=self.__call__,
            setup_context=save,
            backward=lambda ctx, *gradients: backward(_Alive(ctx), *gradients),
            vmap=self._each,
        )
        self._warned_of_vmap = False
        OPERATIONS.append(self)

    def __call__(self, *args):
        # A call costs microseconds, of which each line here is a part.
        if _is_traced() or not _CAN_BYPASS:
            return self._overload(*args)
        wants_gradient = False
        for at in self._tensors:
            tensor = args[at]
            if tensor is None:
                if at in self._needed:
                    self._refuse(at, tensor)
                continue
            if type(tensor) not in _PLAIN or tensor.is_neg():
                if not hasattr(tensor, "__torch_function__"):
                    self._refuse(at, tensor)
                return self._overload(*args)
            if tensor.is_meta:
                return self._overload(*_all_meta(args))
            if tensor.requires_grad:
                wants_gradient = True
        if _transforms():
            if _innermost().key() == _FUNCTIONALIZE:
                return self._overload(*args)
            return self._function_of_transforms.apply(*args)
        if _dispatch_modes() or _profiler() or _tracer() is not None:
            return self._overload(*args)
        if self._takes_gradient and _is_batched_gradient(args[0]):
            return self._overload(*args)
        if wants_gradient and torch.is_grad_enabled():
            return self._function.apply(*args)
        if _forward_mode._current_level >= 0:  # which refuses tangents
            return self._function.apply(*args)
        return self.write(self._outputs(*args), args)

    def named(self, **args):
        """The call with its arguments by their names."""
        if args.keys() != set(self._names):
            raise TypeError(f"{self.name} takes {', '.join(self._names)}")
        return self(*(args[name] for name in self._names))

    def by_name(self, values) -> dict:
        """``values``, of which each argument has one, by the arguments' names."""
        return dict(zip(self._names, values, strict=True))

    def gradients(self, **of):
        """What backward() returns: those of some of the arguments."""
        if unknown := of.keys() - set(self._names):
            raise TypeError(f"{self.name} takes no {', '.join(sorted(unknown))}")
        return tuple(of.get(name) for name in self._names)

    def _refuse(self, at, value):
        refuse_no_tensor(self._names[at], value)

    def run(self, *args):
        """The kernel, without autograd."""
        return self.write(self._outputs(*args), args)

    def write(self, outputs, args):
        """run() into tensors of one's own, which may have other strides."""
        for at in self._reads:
            if args[at].numel() == 0:
                _zero(outputs)
                return outputs
        self._launch(outputs, args)
        return outputs

    def _each(self, info, in_dims, *args):
        """The rule for torch.vmap: one call for each element of the batch."""
        if info.batch_size == 0:
            raise errors.InvalidArgument(
                f"kiln::{self.name}: torch.vmap of a batch without elements"
            )
        if not self._warned_of_vmap:
            self._warned_of_vmap = True
            warnings.warn(
                f"torch.vmap calls kiln::{self.name} {info.batch_size} times, once for "
                "each element: where the operation takes the whole batch, such as by "
                "more leading dimensions, call it with the whole batch"
            )
        results = []
        for i in range(info.batch_size):
            of = zip(args, in_dims, strict=True)
            results.append(self(*(a if d is None else a.select(d, i) for a, d in of)))
        if isinstance(results[0], torch.Tensor):
            return torch.stack(results), 0
        outputs = tuple(torch.stack(each) for each in zip(*results, strict=True))
        return outputs, (0,) * len(outputs)


class _Alive:
    """The context of a backward pass that may outlive its transform, as that of
    torch.func.vjp does. Nobody else unwraps its saved tensors then."""

    def __init__(self, ctx):
        self._ctx = ctx

    def __getattr__(self, name):
        return getattr(self._ctx, name)

    @property
    def saved_tensors(self):
        saved = self._ctx.saved_tensors
        return tuple(t if t is None else _unwrap_if_dead(t) for t in saved)


def _zero(outputs):
    for each in (outputs,) if isinstance(outputs, torch.Tensor) else outputs:
        each.zero_()


def _skip_undefined(backward, inputs):
    """A backward() that is called with None for outputs that nothing depends on."""

    def gradient(ctx, *gradients):
        if all(each is None for each in gradients):
            return (None,) * inputs
        return backward(ctx, *gradients)

    return gradient


def _keeping(run, save):
    """forward() with what torch.func wants apart."""

    def forward(ctx, *args):
        output = run(*args)
        save(ctx, args, output)
        return output

    return forward


def _function(name, **methods):
    title = "Kiln" + "".join(part.capitalize() for part in name.split("_"))
    methods["jvp"] = _refuse_tangent
    methods = {name: staticmethod(method) for name, method in methods.items()}
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
