"""Calls of libkiln_ffi.so, and copies of tensors that it cannot take as they are."""

from __future__ import annotations

import collections
import contextlib
import inspect
import os
import re
import sys
import threading
import warnings

import torch

from .._library import library, parameters

_HERE = os.path.dirname(os.path.abspath(__file__))
_INSIDE = tuple(
    folder + os.sep for folder in (os.path.dirname(_HERE), os.path.dirname(torch.__file__))
)
LAUNCH, PREPARE = 0, 1
_LAUNCH_DENSE = LAUNCH + 16  # tells by a number below 0 which arguments are not contiguous
_FROM_TENSORS = -1  # the device of the call

# The library takes torch's tensors by torch's own C functions; where an old torch has
# none, by DLPack, which refuses tensors that require gradients.
_MUST_DETACH = not hasattr(torch.Tensor, "__dlpack_c_exchange_api__")

_WORKSPACE_ALIGNMENT = 256

_empty_like, _CONTIGUOUS = torch.empty_like, torch.contiguous_format


class _Thread(threading.local):
    handler = None  # reading one that is not there would take 0.3 us of each call


_thread = _Thread()
_copies: collections.Counter[str] = collections.Counter()
_copies_lock = threading.Lock()


class CopyWarning(UserWarning):
    """A tensor was copied. Warned of once for each argument of each operation."""


@contextlib.contextmanager
def handled_by(handler):
    """In this thread, calls go to ``handler(name, values)``, and tensors are not read.
    values: of the library's parameters, by name and in their order."""
    _thread.handler = handler
    try:
        yield
    finally:
        _thread.handler = None


def check_order(function, names):
    """Raises TypeError where the parameters of ``function`` are not the first of the names,
    in that order; "_" is any."""
    for parameter, name in zip(inspect.signature(function).parameters.values(), names):
        if parameter.kind == parameter.VAR_POSITIONAL:
            return
        if parameter.name not in (name, "_"):
            raise TypeError(f"{function} has {parameter.name} in the place of {name}")


# As text, so that a call builds no tuple and looks up no name of a parameter.
_LAUNCH = """
def launch(outputs, args):
    {outputs} = outputs
    {args}, = args{changes}
    if thread.handler is not None:
        return handled({values})
    if size := run({action}, {device}, {values}):
        again(size, {values})
"""
_CHANGE = """
    if (changed := change{place}({parameters})) is None:
        return
    {gives}, = changed"""


def launch_of(schema, name: str, own=(), unused=(), changes=()):
    """launch(outputs, args) of an Operation: calls the library's function, on the current
    stream of the tensors' device. Tensors that are not contiguous are copied.

    ``schema`` names outputs and arguments as the library does, but for its ``own``. They
    are bound by name, here and not at each call. Raises TypeError for a name that the
    library has not, and for one of the library's that nobody gives. An output without
    elements is not wanted, as None.
    unused: given as None, which is an option's default.
    changes: functions that are called before, and what they give. Each takes those of the
      names that its parameters are, and returns values for ``gives``, in place of or beside
      them, which nobody copies; or None, if there is nothing to launch.
    """
    run = getattr(library(), name)
    if _MUST_DETACH:
        run = _of_detached(run)
    outputs, args = ([each.name for each in of] for of in (schema.returns, schema.arguments))
    given, lines, made = dict.fromkeys((*outputs, *args)), "", {}
    for place, (change, gives) in enumerate(changes):
        wanted = list(inspect.signature(change).parameters)
        if unknown := set(wanted) - set(given):
            raise TypeError(f"{change}: there is no {', '.join(sorted(unknown))}")
        parameters_of, gives_of = ", ".join(wanted), ", ".join(gives)
        lines += _CHANGE.format(place=place, parameters=parameters_of, gives=gives_of)
        made[f"change{place}"] = change
        given |= dict.fromkeys(gives)
    changed = {each for _, gives in changes for each in gives}
    given = [each for each in given if each not in own]
    names = parameters(name, *given, *unused, "workspace")
    of = re.fullmatch("kiln::(add_)?(.*)_[fb]wd", schema.name)[2]
    at_copies = {  # it is the library that looks, since Python would take longer
        names.index(each.name): f"{of}.{each.name}"
        for each in schema.arguments
        if "Tensor" in str(each.type) and each.name not in {*own, *changed}
    }

    def handled(*args):
        _thread.handler(name, dict(zip(names, args)))

    def again(size, *args):
        if size < 0:
            args = _dense_ones(at_copies, args, -size)
            size = run(LAUNCH, _FROM_TENSORS, *args)
        if size > 0:  # launched nothing: it needs so many bytes of scratch memory
            device = next(each for each in args if isinstance(each, torch.Tensor)).device
            at = names.index("workspace")
            args = (*args[:at], _workspace(size, device), *args[at + 1 :])
            run(LAUNCH, _FROM_TENSORS, *args)

    text = _LAUNCH.format(
        outputs=", ".join(outputs),
        args=", ".join(args),
        changes=lines,
        action=_LAUNCH_DENSE,
        device=_FROM_TENSORS,
        values=", ".join(each if each in given else "None" for each in names),
    )
    made |= {"run": run, "again": again, "handled": handled, "thread": _thread}
    exec(compile(text, os.path.join(_HERE, f"<{name}>"), "exec"), made)
    return made["launch"]


def _of_detached(run):
    """``run`` of tensors that require no gradients."""
    return lambda *args: run(
        *(a.detach() if isinstance(a, torch.Tensor) else a for a in args)
    )


def _dense_ones(names, args, places):
    """The arguments, copied where bit i of ``places`` says that i must be."""
    args = list(args)
    for i, name in names.items():
        if places >> i & 1:
            args[i] = dense(name, args[i])
    return tuple(args)


def _workspace(size: int, device: torch.device) -> torch.Tensor:
    # torch's allocators of device memory align to 512 bytes, that of the CPU to 64.
    spare = _WORKSPACE_ALIGNMENT if device.type == "cpu" else 0
    memory = torch.empty(size + spare, dtype=torch.uint8, device=device)
    begin = -memory.data_ptr() % spare if spare else 0
    return memory[begin : begin + size]


def elements_overlap(tensor) -> bool:
    """Whether two elements may share memory, as in an expanded tensor."""
    reached = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1:
            if stride < reached:
                return True
            reached += (size - 1) * stride
    return False


def like(tensor: torch.Tensor) -> torch.Tensor:
    """A new contiguous tensor of that shape and type."""
    if tensor.is_contiguous():  # naming the format takes longer than to ask
        return _empty_like(tensor)
    return _empty_like(tensor, memory_format=_CONTIGUOUS)


def dense(name: str, tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The tensor, or a contiguous copy. ``name`` is "operation.argument"."""
    if tensor is None or tensor.is_contiguous():
        return tensor
    return copied(name, tensor, tensor.new_empty(tensor.shape))


def copied(name: str, tensor: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
    """``to``, with the elements of ``tensor``: counted, and warned of once."""
    if _thread.handler is not None:
        return to
    count_copy(name, tensor)
    return to.copy_(tensor)


def count_copy(name: str, tensor: torch.Tensor) -> None:
    """Before ``tensor`` is copied. The first copy of a name warns."""
    with _copies_lock:
        _copies[name] += 1
        is_first = _copies[name] == 1
    if is_first:
        warnings.warn(
            f"{name} is copied at each such call: its shape is {list(tensor.shape)}, and "
            f"its strides {list(tensor.stride())} cannot be used; kiln.ops.copies() "
            "counts the copies",
            CopyWarning,
            stacklevel=_level_of_caller(),
        )


def _level_of_caller() -> int:
    """The stacklevel, for the function that asks, of the first line outside of kiln and
    torch. A thread of torch's, in which it computes gradients, has none."""
    frame, level = sys._getframe(1), 1
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_INSIDE):
            return level
        frame, level = frame.f_back, level + 1
    return 2


def copies() -> dict[str, int]:
    """How often this process copied which argument, as "softmax.x": a tensor that an
    operation cannot take with the strides that it has."""
    with _copies_lock:
        return dict(_copies)
