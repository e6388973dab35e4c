"""Trains a GPT of Megatron Core, in bfloat16, with its fused softmax and, if there is Apex, its fused norms."""

import torch
from megatron.core import parallel_state
from megatron.core.fusions.fused_softmax import FusedScaleMaskSoftmax
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.utils import attention_mask_func

VOCABULARY, SEQUENCE, BATCH = 64, 32, 2

torch.distributed.init_process_group(
    "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
)
parallel_state.initialize_model_parallel()
model_parallel_cuda_manual_seed(0)
torch.manual_seed(0)
config = TransformerConfig(
    num_layers=2,
    hidden_size=48,
    num_attention_heads=4,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    bf16=True,
    params_dtype=torch.bfloat16,
    pipeline_dtype=torch.bfloat16,
    use_cpu_initialization=True,
    attention_softmax_in_fp32=False,
    masked_softmax_fusion=True,
)
model = GPTModel(
    config=config,
    transformer_layer_spec=get_gpt_layer_local_spec(),
    vocab_size=VOCABULARY,
    max_sequence_length=SEQUENCE,
    position_embedding_type="rope",
)
model = Float16Module(config, model).to("cuda")
tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1), device="cuda")
positions = torch.arange(SEQUENCE, device="cuda").expand(BATCH, SEQUENCE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    losses = model(tokens[:, :-1], positions, None, labels=tokens[:, 1:])
    loss = losses.float().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())

# Scores of an encoder, of which some are padding.
weights = FusedScaleMaskSoftmax(
    False, True, AttnMaskType.padding, True, attention_mask_func, True, scale=0.5
)
scores = torch.randn(BATCH, 4, SEQUENCE, SEQUENCE, device="cuda").bfloat16().requires_grad_()
mask = (torch.arange(SEQUENCE, device="cuda") >= 20).repeat(BATCH, 1, SEQUENCE, 1)
probabilities = weights(scores, mask)
probabilities.square().sum().backward()
print("weight of padding", probabilities[..., 20:].sum().item())
