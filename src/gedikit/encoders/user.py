"""Any network that a user gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.encoders.base import Encoder, EncoderContext, EncoderModule, Encoding, register_encoder
from gedikit.encoders.projector import image_projector
from gedikit.errors import UsageError


class UserModule(EncoderModule):
    """A module from images (n, channels, height, width) or rows (n, d) to features (n, f), fed with rows."""

    compiles: ClassVar[bool] = True

    def __init__(self, module: nn.Module, image_shape: Sequence[int], dtype: torch.dtype = torch.float32):
        super().__init__(dtype)
        self.module = module
        self.image_shape = tuple(image_shape)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n f"]:
        if self.image_shape:
            x = x.reshape(-1, *self.image_shape).permute(0, 3, 1, 2)
        half = self.compute_dtype is not torch.float32
        with torch.autocast(x.device.type, self.compute_dtype, enabled=half):
            features: Tensor = self.module(x)
        return features.float()


def n_features_of(encoder: UserModule, n_inputs: int) -> int:
    """How many features it makes, by trying."""
    normalised = [m for m in encoder.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if normalised:
        raise UsageError(
            f"the encoder has a {type(normalised[0]).__name__}: chains and averaged weights know no batch; "
            "use a normalisation of single rows, such as GroupNorm"
        )
    with torch.no_grad():
        try:
            out = encoder(torch.zeros(2, n_inputs))
        except Exception as error:
            raise UsageError(
                f"the encoder could not take a batch of 2 rows of {n_inputs} values: {error}"
            ) from None
    if out.ndim != 2 or len(out) != 2:
        raise UsageError(
            f"the encoder must return one row of features for each input, not shape {tuple(out.shape)}"
        )
    return int(out.shape[1])


@register_encoder("user")
@dataclass(frozen=True)
class UserEncoder(Encoder):
    """The module given as `GEDI(encoder=...)`."""

    summary: ClassVar[str] = "a module of your own, given as GEDI(encoder=...)"
    needs_module: ClassVar[bool] = True

    @property
    def standardised(self) -> bool:
        return True

    def build(self, context: EncoderContext) -> Encoding:
        if context.module is None:
            raise UsageError("the encoder 'user' is a module of your own: give it as encoder=")
        encoder = UserModule(context.module, context.image_shape)
        n_features = n_features_of(encoder, context.n_features)
        n_outputs = context.n_outputs or n_features
        return Encoding(encoder, image_projector(n_features, n_outputs, context.generator), n_outputs)
