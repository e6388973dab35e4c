"""Whole models of transformers, patched by Liger, with kiln.compat beneath: what the
device launches. Without it Liger would launch its own kernels, which need Triton."""

import collections

import no_triton
import pytest
from conftest import needs_torch
from ops_device import device, launched  # noqa: F401

from kiln import compat

pytestmark = needs_torch
torch = pytest.importorskip("torch", reason="torch is not installed")

LAYERS = 2
# In one training step, with a loss of its own.
OF_A_STEP = {
    "rmsnorm_fwd": 2 * LAYERS + 1,
    "rmsnorm_bwd": 2 * LAYERS + 1,
    "rope_fwd": LAYERS,
    "rope_bwd": LAYERS,
    "swiglu_fwd": LAYERS,
    "swiglu_bwd": LAYERS,
    "cross_entropy_fwd": 1,
    "cross_entropy_bwd": 1,
}
OWN_LOSS = {"cross_entropy": True, "fused_linear_cross_entropy": False}


@pytest.fixture(scope="module", autouse=True)
def liger():
    no_triton.stand_in()
    pytest.importorskip("transformers.modeling_utils", reason="transformers cannot be imported")
    compat.install("liger")
    return pytest.importorskip("liger_kernel.transformers", reason="Liger is not installed")


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 33, "hidden_size": 48, "intermediate_size": 96, "max_position_embeddings": 64}
    heads = {"num_hidden_layers": LAYERS, "num_attention_heads": 3, "num_key_value_heads": 1}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, attn_implementation="eager"))


def step(model):
    """Counts what one training step launches."""
    ids = torch.randint(0, 33, (2, 6))
    before = len(launched())
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(each.grad).all() for each in model.parameters())
    counts = collections.Counter(launched()[before:])
    return {name: counts[name] for name in OF_A_STEP}


def test_a_model_that_liger_patched_before_it_was_made_launches_kilns_kernels(liger):
    liger.apply_liger_kernel_to_llama(**OWN_LOSS)
    assert step(llama()) == OF_A_STEP


def test_a_model_of_auto_liger_launches_kilns_kernels(liger, tmp_path):
    llama().save_pretrained(tmp_path)
    model = liger.AutoLigerKernelForCausalLM.from_pretrained(
        tmp_path, attn_implementation="eager", **OWN_LOSS
    )
    assert step(model) == OF_A_STEP


def test_use_liger_kernel_of_the_trainer_launches_kilns_kernels():
    from transformers.integrations.liger import apply_liger_kernel

    model = llama()
    apply_liger_kernel(model, OWN_LOSS)
    assert step(model) == OF_A_STEP
