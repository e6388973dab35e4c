"""Stands in for TransformerEngine's compiled extension: its names are there, and none of its kernels."""

import enum

from no_triton import _Anything


def _cannot_run(name):
    def call(*args, **kwargs):
        raise RuntimeError(f"there is no compiled part of TransformerEngine here: {name} cannot run")

    return call


SOFTMAX = ("scaled", "scaled_masked", "scaled_upper_triang_masked", "scaled_aligned_causal_masked")
for _name in (f"{kind}_softmax_{way}" for kind in SOFTMAX for way in ("forward", "backward")):
    globals()[_name] = _cannot_run(_name)
for _name in ("fused_rope_forward", "fused_rope_backward"):
    globals()[_name] = _cannot_run(_name)


def get_cudnn_version():
    return 91200


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_Anything("transformer_engine_torch"), name)
