"""Rope, scores and a loss of TransformerEngine, forward and backward."""

import torch
import transformer_engine.pytorch as te
