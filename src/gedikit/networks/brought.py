"""Any network a user brings."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gedikit.errors import UsageError


class Brought(nn.Module):
    """A module from images (n, channels, height, width) or rows (n, d) to features (n, f), fed with rows."""

    compiles = True

    def __init__(self, module: nn.Module, image_shape: Sequence[int], dtype: torch.dtype = torch.float32):
        super().__init__()
        self.module = module
        self.image_shape = tuple(image_shape)
        self.dtype = dtype

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n f"]:
        if self.image_shape:
            x = x.reshape(-1, *self.image_shape).permute(0, 3, 1, 2)
        half = self.dtype is not torch.float32
        with torch.autocast(x.device.type, self.dtype, enabled=half):
            features: Tensor = self.module(x)
        return features.float()


def n_features_of(encoder: Brought, n_inputs: int) -> int:
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
