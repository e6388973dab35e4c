"""Stands in for TransformerEngine's compiled extension: its names are there, and none of its kernels."""

import enum

import no_triton


def _cannot_run(name):
    def call(*args, **kwargs):
        raise RuntimeError(f"there is no compiled part of TransformerEngine here: {name} cannot run")

    return call


SOFTMAX = ("scaled", "scaled_masked", "scaled_upper_triang_masked", "scaled_aligned_causal_masked")
for _name in (f"{kind}_softmax_{way}" for kind in SOFTMAX for way in ("forward", "backward")):
    globals()[_name] = _cannot_run(_name)
for _name in ("fused_rope_forward", "fused_rope_backward"):
    globals()[_name] = _cannot_run(_name)

DType = enum.IntEnum(
    "DType", "kByte kInt32 kFloat32 kFloat16 kBFloat16 kFloat8E4M3 kFloat8E5M2 kFloat4E2M1"
)
NVTE_Fused_Attn_Backend = enum.IntEnum(
    "NVTE_Fused_Attn_Backend", "NVTE_No_Backend NVTE_F16_arbitrary_seqlen NVTE_FP8"
)


class _Anything(no_triton._Anything):
    """Also a number: those of the other enumerations are looked at when they are imported."""

    numbers = {}

    def __getattr__(self, name):
        super().__getattr__(name)
        return _Anything(name)

    def __int__(self):
        return self.numbers.setdefault(self.__name__, len(self.numbers))


def get_cudnn_version():
    return 91200


def __getattr__(name):
    return getattr(_Anything(__name__), name)
