"""Encoders and heads: nothing but `nn.Module`s."""

from gedikit.networks.mlp import MLP, FourierFeatures, default_encoder, paper_encoder, paper_projector

__all__ = ["MLP", "FourierFeatures", "default_encoder", "paper_encoder", "paper_projector"]
