"""Changing colours: brightness, contrast, saturation and hue as one linear map of each pixel."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gedikit.errors import DataError

LUMA = (0.299, 0.587, 0.114)
# A quarter turn of hue in the I-Q plane of YIQ, from red towards yellow, written for RGB. Grey stays grey (the rows
# add up to zero) and nothing becomes lighter or darker (LUMA times each column is zero).
QUARTER_TURN = (
    (-0.16770325, -0.32926815, 0.49697139),
    (0.32813081, -0.03552093, -0.29260989),
    (-1.24973261, 1.04650843, 0.20322418),
)


def recoloured(
    images: Float[Tensor, "b h w c"],
    brightness: Float[Tensor, " b"] | None = None,
    contrast: Float[Tensor, " b"] | None = None,
    saturation: Float[Tensor, " b"] | None = None,
    hue: Float[Tensor, " b"] | None = None,
) -> Float[Tensor, "b h w c"]:
    """Images in [−1, 1] after brightness, contrast, saturation and hue, in this order, then clipped once.

    The factors mean what they mean in torchvision, on images in [0, 1]: brightness times the image; contrast times
    the distance from the image's mean grey; saturation times the distance from each pixel's grey, so that 0 is
    the grey image; hue in turns. 1, 1, 1 and 0 change nothing, and None spares the work of it.

    Hue turns the colour plane of YIQ, which is linear and cheaper than the way through HSV. With that everything is
    one linear map of a pixel, and values may leave the range between the steps and come back. An image with
    one channel has neither saturation nor hue.
    """
    channels = images.shape[-1]
    if channels not in (1, 3):
        raise DataError(f"colours can be changed in images with 1 or 3 channels, not {channels}")
    planes = images.permute(0, 3, 1, 2).contiguous()
    bright, more_contrast, chroma = (_factor(v, images) for v in (brightness, contrast, saturation))
    gain = bright * more_contrast
    offset = gain - 1
    if contrast is not None:
        offset = offset + (bright - gain) * (_mean_grey(planes) + 1)
    if channels == 1 or (saturation is None and hue is None):
        return _clipped(gain * planes + offset)
    angle = torch.zeros_like(gain) if hue is None else hue[:, None, None, None] * (2 * math.pi)
    kept, turned = gain * chroma * angle.cos(), gain * chroma * angle.sin()
    changed = []
    for i in range(3):
        plane = offset
        for k in range(3):
            weight = (gain - kept) * LUMA[k] + turned * QUARTER_TURN[i][k] + (kept if i == k else 0.0)
            plane = torch.addcmul(plane, weight, planes[:, k : k + 1])
        changed.append(plane)
    return _clipped(torch.cat(changed, dim=1))


def _factor(value: Float[Tensor, " b"] | None, like: Float[Tensor, "b h w c"]) -> Float[Tensor, "b 1 1 1"]:
    return like.new_ones(len(like), 1, 1, 1) if value is None else value[:, None, None, None]


def _mean_grey(planes: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 1 1 1"]:
    mean = planes.mean(dim=(2, 3), keepdim=True)
    if planes.shape[1] == 1:
        return mean
    return LUMA[0] * mean[:, 0:1] + LUMA[1] * mean[:, 1:2] + LUMA[2] * mean[:, 2:3]


def _clipped(planes: Float[Tensor, "b c h w"]) -> Float[Tensor, "b h w c"]:
    return planes.clamp(-1, 1).permute(0, 2, 3, 1)
