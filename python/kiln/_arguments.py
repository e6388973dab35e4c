"""The device, the stream, the sizes and the values of a launch, as python/ffi takes them."""

from __future__ import annotations

import ctypes
import functools
import operator
import sys
from collections.abc import Sequence
from typing import Any, Union

from ._given import whole
from .errors import InvalidArgument

Extent = Union[int, Sequence[int]]


def priority_number(value: Any) -> int:
    number = whole("priority", value)
    if not -(2**31) <= number < 2**31:
        raise InvalidArgument(f"priority is {number}: priorities are small numbers, as of streams")
    return number


def ordinal(device: Any) -> int:
    """0 of 0, ``"cuda:0"``, ``torch.device("cuda", 0)`` and ``kiln.devices()[0]``."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(device, torch.device):
        device = str(device)
    if isinstance(device, str):
        kind, _, index = device.partition(":")
        if kind == "cuda" and (index.isdigit() or not index):
            return int(index) if index else current_device()
        raise InvalidArgument(f"device is {device!r}; possible are numbers and 'cuda:N'")
    for name in ("ordinal", "index", "device_id"):  # of Kiln, of others, of cuda.core
        found = getattr(device, name, None)
        if found is not None and not callable(found):
            device = found
            break
    return whole("device", device)


def current_device() -> int:
    """torch's current device where torch has started CUDA, else 0."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.current_device()
    return 0


def is_other_current(device: int) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    return torch.cuda.current_device() != device


_DLPACK_CUDA = 2


def device_of(arguments: Sequence[Any]) -> int:
    torch = sys.modules.get("torch")
    for argument in arguments:
        # torch's own __dlpack_device__() takes microseconds.
        if torch is not None and isinstance(argument, torch.Tensor):
            if argument.is_cuda:
                return argument.get_device()
        elif hasattr(argument, "__dlpack_device__"):
            kind, index = argument.__dlpack_device__()
            if int(kind) == _DLPACK_CUDA:
                return int(index)
    return current_device()


def extent(name: str, value: Extent) -> tuple[int, int, int]:
    if hasattr(value, "__index__"):
        return (operator.index(value), 1, 1)
    try:
        numbers = tuple(operator.index(number) for number in value)
    except TypeError:
        numbers = ()
    if not 1 <= len(numbers) <= 3:
        raise InvalidArgument(f"{name} is {value!r}: give one to three whole numbers")
    return numbers + (1,) * (3 - len(numbers))


def stream_number(stream: Any, device: int) -> int | None:
    """The CUstream as a number; None: the stream that tvm-ffi has of the tensors' framework."""
    if stream is None:
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            return torch.cuda.current_stream(device).cuda_stream
        return None
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):  # of torch before 2.8, of CuPy
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise InvalidArgument(f"stream is {stream!r}: it has no __cuda_stream__ and is no number")


_ANY, _INTEGER, _FLOAT = 0, 1, 2  # KILN_ARGUMENT_...
_KINDS_OF_NUMPY = {"f4": _FLOAT, "f8": _FLOAT, "b1": _INTEGER}
_KINDS_OF_NUMPY |= {f"{sign}{size}": _INTEGER for sign in "iu" for size in (1, 2, 4, 8)}
_KINDS_OF_CTYPES = {"f": _FLOAT, "d": _FLOAT} | dict.fromkeys("?bBhHiIlLqQ", _INTEGER)


@functools.cache
def kind(scalar: type) -> int:
    """Of the scalars of a type of NumPy or ctypes, whose values are passed as bytes."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(scalar, numpy.generic):
        return _KINDS_OF_NUMPY.get(numpy.dtype(scalar).str[1:], _ANY)
    if issubclass(scalar, ctypes._SimpleCData):
        return _KINDS_OF_CTYPES.get(scalar._type_, _ANY)
    return _ANY


def value_of(argument: Any):
    """The argument as python/ffi takes it: a tensor, an address, an int, a float, or bytes."""
    kind = type(argument)
    if kind in (int, float, bool, bytes):
        return argument if kind is not int or -1 <= argument >> 63 <= 0 else _unsigned(argument)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(argument, numpy.generic):  # a scalar; float64 is a float
        return argument.tobytes()
    if hasattr(argument, "__dlpack__"):
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(argument, torch.Tensor):
            if argument.is_conj() or argument.is_neg():
                raise InvalidArgument(
                    "an argument is a view that torch has not yet conjugated or negated in memory: pass "
                    "its resolve_conj().resolve_neg()"
                )
            if argument.requires_grad:
                return argument.detach()
        return argument
    if hasattr(argument, "__cuda_array_interface__"):
        address = argument.__cuda_array_interface__["data"][0]
        # It does not say of which device, so the library asks the driver.
        return ctypes.c_void_p(int(address)) if address else bytes(8)  # nothing in an empty one
    if isinstance(argument, (ctypes._SimpleCData, ctypes.Structure, ctypes.Union, ctypes.Array)):
        return bytes(argument)
    if isinstance(argument, (bytearray, memoryview)):
        return bytes(argument)
    if isinstance(argument, int):  # an IntEnum
        return value_of(int(argument))
    if isinstance(argument, float):
        return argument
    if argument is None:
        return bytes(8)  # a null pointer
    if isinstance(argument, (tuple, list)):
        raise InvalidArgument(
            f"an argument is a {kind.__name__}: give the arguments one by one, kernel(grid, block, x, y, n)"
        )
    raise InvalidArgument(
        f"an argument is of the type {kind.__name__}: possible are tensors with __dlpack__ or "
        "__cuda_array_interface__, scalars of NumPy, ctypes and Python, and bytes"
    )


def _unsigned(number: int) -> bytes:
    """One of 8 bytes, beyond the signed ones."""
    if not 0 <= number < 2**64:
        raise InvalidArgument(f"the argument {number} fits into no parameter")
    return number.to_bytes(8, "little")
