"""Norms and rotary embeddings against the code of the models that have them.

The package transformers is read, and not imported, which would need ten others.
"""

import __future__

import ast
import importlib.util
from pathlib import Path

import pytest
from ops_cases import BF16, F32, angles_of_halves, gradients_of, id_of, ops, torch
from ops_device import check_as_good_as_torch, device  # noqa: F401


def of_model(model, *names):
    """The classes and functions of a model's file, without their decorators, which would
    choose other kernels."""
    package = importlib.util.find_spec("transformers")
    if package is None:
        pytest.skip("transformers is not installed")
    file = Path(package.origin).parent / f"models/{model}/modeling_{model}.py"
    found = [
        each
        for each in ast.parse(file.read_text()).body
        if isinstance(each, (ast.ClassDef, ast.FunctionDef)) and each.name in names
    ]
    for each in found:
        each.decorator_list = []
    flags = __future__.annotations.compiler_flag
    code = compile(ast.Module(found, []), str(file), "exec", flags, dont_inherit=True)
    defined = {"torch": torch, "nn": torch.nn, "__name__": f"transformers.{model}"}
    exec(code, defined)
    return [defined[name] for name in names]


def check(results, same, exact, what):
    """As near to the model's results on float32 as its results on the same type are;
    float32 itself to rounding."""
    for i, (each, as_model, wide) in enumerate(zip(results, same, exact, strict=True)):
        if each.dtype == F32:
            torch.testing.assert_close(each, as_model)
        else:
            check_as_good_as_torch(each, as_model, wide, f"{what} {i}")


@pytest.mark.parametrize("dtype", [F32, BF16], ids=id_of)
@pytest.mark.parametrize("model", ["llama", "gemma"])
def test_rms_norm_is_the_models(model, dtype):
    (norm,) = of_model(model, f"{model.capitalize()}RMSNorm")
    module, exact = norm(48).to(dtype), norm(48)
    x = torch.randn(40, 48) * torch.linspace(0.1, 3, 40)[:, None]
    x = x.to(dtype).requires_grad_()
    wide = x.detach().float().requires_grad_()
    with torch.no_grad():
        module.weight.copy_(torch.randn(48))
        exact.weight.copy_(module.weight)
    y, same = ops.rms_norm(x, module.weight, casting=model), module(x)
    if dtype == BF16:  # it rounds where the model does
        assert (y == same).float().mean() > 0.99
    check([y], [same], [exact(wide)], "output")
    check(
        gradients_of(y, [x, module.weight]),
        gradients_of(same, [x, module.weight]),
        gradients_of(exact(wide), [wide, exact.weight]),
        "gradient",
    )


@pytest.mark.parametrize("dtype", [F32, BF16], ids=id_of)
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("model", ["llama", "gemma"])
def test_rope_is_the_models(model, layout, dtype):
    apply, _ = of_model(model, "apply_rotary_pos_emb", "rotate_half")
    heads_at = layout.index("h")
    shapes = ((2, 3, 6, 16), (2, 1, 6, 16))
    q, k = (torch.randn(shape).to(dtype) for shape in shapes)
    if heads_at == 2:
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    positions = torch.tensor([[0, 1, 2, 3, 4, 5], [3, 4, 5, 6, 0, 1]])
    at = angles_of_halves(7, 16)[positions]
    tables = at.cos().to(dtype), at.sin().to(dtype)  # of the type of q, as in the model
    inputs = [q.requires_grad_(), k.requires_grad_()]
    wide = [each.detach().double().requires_grad_() for each in inputs]
    result = ops.rope(*inputs, *tables, layout=layout)
    same = apply(*inputs, *tables, unsqueeze_dim=heads_at)
    exact = apply(*wide, *(each.double() for each in tables), unsqueeze_dim=heads_at)
    check(result, same, exact, "output")
    gradients = (
        gradients_of(result, inputs),
        gradients_of(same, inputs),
        gradients_of(exact, wide),
    )
    check(*gradients, "gradient")
