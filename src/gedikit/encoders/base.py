"""What an encoder is: settings from which a network x → features and its projector are built."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import nn

from gedikit.components import Component, Registry


class EncoderModule(nn.Module):
    """A network that may compute in half precision and prepare its weights for many passes.

    Encoders need not inherit from it; those that do are asked to.
    """

    compiles: ClassVar[bool] = False  # whether torch.compile pays on a GPU

    def __init__(self, compute_dtype: torch.dtype = torch.float32):
        super().__init__()
        self.compute_dtype = compute_dtype  # weights and features stay in 32 bits

    def hold(self) -> None:
        """Prepare for many passes during which the weights do not change, as in chains."""

    def release(self) -> None:
        """The weights may change again."""


@dataclass(frozen=True)
class EncoderContext:
    """What an encoder is built from."""

    n_features: int  # of a row
    image_shape: tuple[int, ...]  # (height, width, channels) where rows are images, else ()
    bandwidth: float  # of the data's kernel density: the scale of its finest detail
    n_outputs: int | None  # of the projector, where that is fixed
    generator: torch.Generator
    module: nn.Module | None = None  # one that the user gave
    noise: float | None = None  # the smallest noise level, where the network is asked about noised rows


class Encoding(NamedTuple):
    """x → features, features → embeddings, and how many of these there are."""

    encoder: nn.Module
    projector: nn.Module
    n_embedding: int


@dataclass(frozen=True)
class Encoder(Component):
    """A family of networks."""

    of_images: ClassVar[bool] = False
    takes_noise: ClassVar[bool] = False  # whether its network takes a noise level beside x
    needs_module: ClassVar[bool] = False  # one that the user gives

    @property
    def standardised(self) -> bool:
        """Whether embeddings of the data start with mean 0 and deviation 1."""
        return False

    def build(self, context: EncoderContext) -> Encoding:
        raise NotImplementedError


encoders: Registry[Encoder] = Registry("encoder", Encoder)
register_encoder = encoders.register
