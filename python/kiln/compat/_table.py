"""What kiln.compat provides: each module of a framework, its functions, and what
computes them. Installing, the line that is printed and the README are made from this
table. It imports nothing of kiln: a launcher's processes read it at their start.
"""

from __future__ import annotations

from dataclasses import dataclass, field

EXTENSION = "extension"  # imported in place of the compiled module, which may be absent
REPLACED = "replaced"  # functions of a Python module, after it has been imported
IF_ABSENT = "if absent"  # a Python module where the framework is not installed
VARIABLE = "variable"  # of the environment, by which the module chooses a class


@dataclass(frozen=True)
class Module:
    name: str
    by: str  # the operations
    functions: dict[str, str]  # the module's name: "file.name" in kiln.compat
    kind: str = EXTENSION
    missing: dict[str, str] = field(default_factory=dict)  # what is not provided: why
    loader: str = ""  # the Python module that loads it past sys.meta_path


def _same(file: str, *names: str) -> dict[str, str]:
    return {name: f"{file}.{name}" for name in names}


def _passes(ours: str, *variants: str) -> dict[str, str]:
    """forward and backward, and both of each variant: "_cached" is forward_cached."""
    return {
        f"{way}{variant}": f"{ours}_{way}{variant}"
        for variant in ("", *variants)
        for way in ("forward", "backward")
    }


NEOX = (
    Module(
        "scaled_upper_triang_masked_softmax_cuda",
        "softmax",
        {"forward": "_megatron.causal_forward", "backward": "neox.causal_backward"},
    ),
    Module(
        "scaled_masked_softmax_cuda",
        "softmax",
        {**_passes("neox.masked"), **_same("_megatron", "get_batch_per_block")},
    ),
    Module(
        "fused_rotary_positional_embedding", "rope", _passes("_megatron.rope", "_cached")
    ),
    Module("megatron.fused_kernels", "prepare", {"load": "_warm_up.load_neox"}, REPLACED),
)

APEX = (
    Module(
        "scaled_upper_triang_masked_softmax_cuda", "softmax", _passes("_megatron.causal")
    ),
    Module(
        "scaled_masked_softmax_cuda",
        "softmax",
        {**_passes("_megatron.masked"), **_same("_megatron", "get_batch_per_block")},
    ),
    Module(
        "generic_scaled_masked_softmax_cuda", "softmax", _passes("_megatron.masked")
    ),
    Module("scaled_softmax_cuda", "softmax", _passes("_megatron.plain")),
    Module(
        "fused_rotary_positional_embedding",
        "rope",
        _passes("_megatron.rope", "_cached", "_thd", "_2d"),
    ),
    Module(
        "fused_layer_norm_cuda",
        "layer_norm, rms_norm",
        _same(
            "apex",
            *("forward", "forward_affine", "forward_affine_mixed_dtypes"),
            *("backward", "backward_affine"),
            *("rms_forward", "rms_forward_affine", "rms_forward_affine_mixed_dtypes"),
            *("rms_backward", "rms_backward_affine"),
        ),
    ),
    Module("fast_layer_norm", "layer_norm", _same("apex", "ln_fwd", "ln_bwd")),
    Module("xentropy_cuda", "cross_entropy", _passes("apex.xentropy")),
    Module(
        "apex.normalization.fused_layer_norm",
        "layer_norm, rms_norm",
        _same("apex", "FusedLayerNormAffineFunction", "FusedRMSNormAffineFunction"),
        IF_ABSENT,
    ),
    # Megatron-LM and Megatron-DeepSpeed build the same softmax modules.
    *(
        Module(name, "prepare", {"load": "_warm_up.load_megatron"}, REPLACED)
        for name in ("megatron.fused_kernels", "megatron.legacy.fused_kernels")
    ),
)

TRANSFORMER_ENGINE = (
    Module(
        "transformer_engine_torch",
        "softmax",
        {
            f"{theirs}_softmax_{way}": f"_megatron.{ours}_{way}"
            for theirs, ours in (
                ("scaled", "plain"),
                ("scaled_masked", "masked"),
                ("scaled_upper_triang_masked", "causal"),
                ("scaled_aligned_causal_masked", "causal"),
            )
            for way in ("forward", "backward")
        },
        REPLACED,
        loader="transformer_engine.pytorch",
    ),
    Module(
        "transformer_engine.pytorch.attention.rope",
        "rope",
        _same("transformer_engine", "apply_rotary_pos_emb"),
        REPLACED,
    ),
    Module(
        "transformer_engine.pytorch.cross_entropy",
        "cross_entropy",
        _same("transformer_engine", "parallel_cross_entropy"),
        REPLACED,
    ),
)

_NO_LINEAR = "kiln has no operation that joins a linear layer and its loss"

# All of its functions, modules, losses and apply_liger_kernel_to_* call these.
LIGER = tuple(
    Module(
        f"liger_kernel.ops.{file}",
        by,
        {f"Liger{name}Function.apply": f"liger.{ours}" for name, ours in names.items()},
        REPLACED,
    )
    for file, by, names in (
        ("rms_norm", "rms_norm", {"RMSNorm": "rms_norm"}),
        ("fused_add_rms_norm", "rms_norm", {"FusedAddRMSNorm": "fused_add_rms_norm"}),
        ("layer_norm", "layer_norm", {"LayerNorm": "layer_norm"}),
        ("rope", "rope", {"Rope": "rope"}),
        (
            "swiglu",
            "swiglu",
            {"SiLUMul": "swiglu", "FusedGateUpSiLUMul": "packed_swiglu"},
        ),
        ("geglu", "geglu", {"GELUMul": "geglu"}),
        ("relu_squared", "squared_relu", {"ReLUSquared": "relu_squared"}),
        ("cross_entropy", "cross_entropy", {"CrossEntropy": "cross_entropy"}),
    )
) + (
    # It chooses other functions than these, where it has CuTe DSL or cuTile.
    Module(
        "liger_kernel.backends.dispatch",
        "rms_norm, layer_norm, rope, swiglu, geglu, cross_entropy",
        {"resolve_impl": "liger.resolve_impl"},
        REPLACED,
    ),
    Module(
        "liger_kernel.ops.fused_linear_cross_entropy",
        "cross_entropy",
        {},
        REPLACED,
        missing={"LigerFusedLinearCrossEntropyFunction": _NO_LINEAR},
    ),
)

_ATTENTION = "memory_efficient_attention"
_NO_STATISTICS = "kiln.ops gives no statistics of attention"
_OF_STATISTICS = (f"{_ATTENTION}_forward_requires_grad", f"{_ATTENTION}_backward")

XFORMERS = tuple(
    Module(
        name,
        "scaled_dot_product_attention, varlen_attention",
        _same("xformers", _ATTENTION, f"{_ATTENTION}_forward"),
        REPLACED,
        missing,
    )
    for name, missing in (
        ("xformers.ops.fmha", {}),
        ("xformers.ops", dict.fromkeys(_OF_STATISTICS, _NO_STATISTICS)),
    )
)

TRITON = (
    Module(
        "triton.runtime.cache",
        "cache",
        {"TRITON_CACHE_MANAGER": "kiln.triton:CacheManager"},
        VARIABLE,
    ),
)

CPP_EXTENSION = (
    Module(
        "torch.utils.cpp_extension",
        "cache",
        _same("cpp_extension", "load", "load_inline", "verify_ninja_availability")
        | {"_jit_compile": "cpp_extension.jit_compile"},
        REPLACED,
    ),
)

FRAMEWORKS = {
    "neox": NEOX,
    "apex": APEX,
    "transformer_engine": TRANSFORMER_ENGINE,
    "liger": LIGER,
    "xformers": XFORMERS,
    "triton": TRITON,
    "cpp_extension": CPP_EXTENSION,
}


def markdown() -> str:
    """The table of python/README.md."""
    rows = ["| name | module | functions | computed by |", "|---|---|---|---|"]
    for framework, modules in FRAMEWORKS.items():
        for module in (each for each in modules if each.functions):
            functions = ", ".join(f"`{each}`" for each in module.functions)
            by = ", ".join(f"`{each}`" for each in module.by.split(", "))
            rows.append(f"| `{framework}` | `{module.name}` | {functions} | {by} |")
    return "\n".join(rows)
