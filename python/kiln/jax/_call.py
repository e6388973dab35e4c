"""Calls of libkiln_ffi.so in XLA's programs, by the handlers of python/jax."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlib
from jax.sharding import NamedSharding, PartitionSpec

from .. import errors
from .._checks import refuse
from .._library import library, library_path, parameters

# XLA may capture the first into a CUDA graph: python/jax/handlers.cc says why not both.
_LAUNCH = "kiln.launch"
_LAUNCH_WITH_WORKSPACE = "kiln.launch_with_workspace"

_DTYPES = ("float16", "bfloat16", "float32")

_lock = threading.Lock()
_is_registered = False


WORKSPACE = object()  # a parameter: scratch memory, as much as the function asks for


class Result(NamedTuple):
    """An array that a call makes."""

    shape: tuple[int, ...]
    dtype: Any


def floating(name: str, array):
    """The array of JAX, which must have a type that Kiln computes with."""
    array = jnp.asarray(array)
    if array.dtype.name not in _DTYPES:
        refuse(f"{name} is {array.dtype.name}; {', '.join(_DTYPES)} are possible")
    return array


def launch(function: str, *, unused: tuple[str, ...] = (), **values):
    """Calls a function of python/ffi when XLA's program is run; returns the arrays that
    it makes, in the order of ``values``.

    values: those of its parameters: arrays of JAX, numbers, texts, None, WORKSPACE, and a
      Result for each array that it makes.
    unused: parameters that are None.
    Raises TypeError where a parameter is in neither, or is none of the function.
    """
    _register()
    names = parameters(function, *values, *unused)
    made = [name for name, value in values.items() if isinstance(value, Result)]
    results = [values[name] for name in made]
    words, operands = [function], []
    for name in names:
        each = values.get(name)
        if isinstance(each, Result):
            words.append(f"r{made.index(name)}")
        elif each is None:
            words.append("n")
        elif each is WORKSPACE:
            words.append("w")
        elif isinstance(each, bool):
            words.append("t" if each else "f")
        elif isinstance(each, int):
            words.append(f"i{each}")
        elif isinstance(each, float):
            words.append(f"d{each!r}")
        elif isinstance(each, str):
            words.append(f"s{each}")
        else:
            words.append(f"a{len(operands)}")
            operands.append(each)
    call = jax.ffi.ffi_call(
        _LAUNCH_WITH_WORKSPACE if "w" in words else _LAUNCH,
        [_type(each, operands[0]) for each in results],
    )
    return tuple(call(*operands, call=" ".join(words)))


def _register():
    """Tells XLA the handlers, once. Opens no service."""
    global _is_registered
    with _lock:
        if _is_registered:
            return
        path = library_path().parent / "libkiln_jax.so"
        if not path.exists():
            raise errors.Unavailable(
                f"there is no {path}: kiln-jit was built without the headers of XLA, "
                "which come with jaxlib; build it again where jaxlib is installed"
            )
        library()  # which it is linked with
        handlers = ctypes.CDLL(str(path))

        def handler(name):
            return jax.ffi.pycapsule(getattr(handlers, name))

        try:
            for target in (_LAUNCH, _LAUNCH_WITH_WORKSPACE):
                execute = handler(target.replace("kiln.", "kiln_jax_"))
                stages = {"initialize": handler("kiln_jax_prepare"), "execute": execute}
                jax.ffi.register_ffi_target(target, stages, platform="CUDA")
                on_host = handler("kiln_jax_launch_on_host")
                jax.ffi.register_ffi_target(target, on_host, platform="cpu")
        except RuntimeError as error:  # it speaks another version of XLA's interface
            raise errors.Unavailable(
                f"jaxlib {jaxlib.__version__} does not take {path}: {error}"
            ) from error
        _is_registered = True


# ---- shard_map


def _varying(array) -> frozenset:
    """The axes of a shard_map over which the array may differ."""
    kind = getattr(jax.typeof(array), "manual_axis_type", None)
    return frozenset() if kind is None else kind.varying


def _type(result: Result, operand):
    """The result varies as the operands do."""
    if not _varying(operand):
        return jax.ShapeDtypeStruct(result.shape, result.dtype)
    like = jax.typeof(operand)
    return jax.ShapeDtypeStruct(
        result.shape,
        result.dtype,
        sharding=NamedSharding(like.sharding.mesh, PartitionSpec()),
        manual_axis_type=like.manual_axis_type,
    )


def alike(*arrays):
    """The arrays, varying over the same axes of a shard_map. The gradient of one that
    did not is summed over these axes. Some may be None."""
    axes = frozenset().union(*(_varying(each) for each in arrays if each is not None))
    if not axes:
        return arrays
    return tuple(None if each is None else _vary(each, axes) for each in arrays)


def _vary(array, axes):
    missing = tuple(sorted(axes - _varying(array)))
    return jax.lax.pcast(array, missing, to="varying") if missing else array


# ---- vmap


def vmappable(call, batched=None):
    """``call``, a function of arrays or None, for jax.vmap, too.

    batched(size, *arrays): the call of a batch. Arrays that vmap does not map have a
      first dimension of 1. If it is None or returns None, a loop calls once an element.
    """
    function = jax.custom_batching.custom_vmap(call)

    @function.def_vmap
    def rule(size, is_mapped, *arrays):
        outputs = None
        if batched is not None:
            batches = (
                each if mapped or each is None else each[None]
                for each, mapped in zip(arrays, is_mapped)
            )
            outputs = batched(size, *batches)
        if outputs is None:
            outputs = _loop(function, is_mapped, arrays)
        return outputs, jax.tree.map(lambda _: True, outputs)

    return function


def _loop(function, is_mapped, arrays):
    def one(mapped):
        rest = iter(mapped)
        return function(
            *(next(rest) if mapped else each for each, mapped in zip(arrays, is_mapped))
        )

    return jax.lax.map(one, tuple(a for a, mapped in zip(arrays, is_mapped) if mapped))


def widened(size: int, array):
    """A batch of ``size`` of what batched() gets."""
    return jnp.broadcast_to(array, (size, *array.shape[1:]))


def folded(size: int, array):
    """The batch and the next dimension as one. None for None."""
    if array is None:
        return None
    array = widened(size, array)
    return array.reshape(size * array.shape[1], *array.shape[2:])


def unfolded(size: int, array):
    """The reverse of folded()."""
    if array is None:
        return None
    return array.reshape(size, array.shape[0] // size, *array.shape[1:])
