"""Moving pixels: from where in its image each output pixel is read, composed into one map and read once.

Coordinates are pixels from the centre of the image, x to the right and y down. Maps lead from the output to the
source, so that the map of `moved by A, then by B` is B's followed by A's. They are written out rather than
multiplied as matrices, because matrix products are rounded coarsely on devices that are told to.
"""

from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

PerSample = Tensor | float


class AffineMap(NamedTuple):
    """(x, y) ↦ (xx·x + xy·y + x0, yx·x + yy·y + y0), one for each sample; the default leaves points alone."""

    xx: PerSample = 1.0
    xy: PerSample = 0.0
    x0: PerSample = 0.0
    yx: PerSample = 0.0
    yy: PerSample = 1.0
    y0: PerSample = 0.0

    def then(self, after: Self) -> "AffineMap":
        return AffineMap(
            after.xx * self.xx + after.xy * self.yx,
            after.xx * self.xy + after.xy * self.yy,
            after.xx * self.x0 + after.xy * self.y0 + after.x0,
            after.yx * self.xx + after.yy * self.yx,
            after.yx * self.xy + after.yy * self.yy,
            after.yx * self.x0 + after.yy * self.y0 + after.y0,
        )


def crop_to_size(
    area: Float[Tensor, " b"],
    ratio: Float[Tensor, " b"],
    left: Float[Tensor, " b"],
    top: Float[Tensor, " b"],
    size: tuple[int, int],
) -> AffineMap:
    """Enlarges a rectangle with that share of the area and that width over height to the size of the image.

    `left` and `top` say where it lies: 0 at the one edge and 1 at the other. A ratio with which the rectangle would
    not fit is moved to the nearest that does, so that the area is always the one asked for.
    """
    height, width = size
    stretch = (ratio * (height / width)).clamp(area, 1 / area)
    across, down = (area * stretch).sqrt(), (area / stretch).sqrt()
    return AffineMap(
        xx=across, x0=(left - 0.5) * (1 - across) * width, yy=down, y0=(top - 0.5) * (1 - down) * height
    )


def turned_and_moved(
    degrees: Float[Tensor, " b"],
    zoom: Float[Tensor, " b"],
    shear_degrees: Float[Tensor, " b"],
    right: Float[Tensor, " b"],
    down: Float[Tensor, " b"],
) -> AffineMap:
    """Shears along x, enlarges by `zoom`, turns clockwise, then moves by pixels."""
    angle, slope = degrees.deg2rad(), shear_degrees.deg2rad().tan()
    cos, sin = angle.cos() / zoom, angle.sin() / zoom
    back = AffineMap(x0=-right, y0=-down)
    unturned = AffineMap(xx=cos, xy=sin, yx=-sin, yy=cos)
    return back.then(unturned).then(AffineMap(xy=-slope))


def read_along(images: Float[Tensor, "b h w c"], place: AffineMap, fill: float | None) -> Float[Tensor, "b h w c"]:
    """Bilinear interpolation; outside the image lies `fill`, or its mirror image where that is None."""
    _, height, width, _ = images.shape
    x = torch.arange(width, device=images.device) - (width - 1) / 2
    y = (torch.arange(height, device=images.device) - (height - 1) / 2)[:, None]
    xx, xy, x0, yx, yy, y0 = (_per_image(v) for v in place)
    columns = xx * x + xy * y + (x0 + (width - 1) / 2)
    rows = yx * x + yy * y + (y0 + (height - 1) / 2)
    if fill is None:
        columns, rows = _mirrored(columns, width), _mirrored(rows, height)
    grid = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], dim=1)
    grid, planes = grid.permute(0, 2, 3, 1).to(images.dtype), images.permute(0, 3, 1, 2)
    if fill is None:
        read = F.grid_sample(planes, grid, padding_mode="border", align_corners=False)
    else:
        read = F.grid_sample(planes - fill, grid, padding_mode="zeros", align_corners=False) + fill
    return read.permute(0, 2, 3, 1)


def read_shifted(
    images: Float[Tensor, "b h w c"],
    right: Int[Tensor, " b"] | int,
    down: Int[Tensor, " b"] | int,
    direction: Int[Tensor, " b"] | int,
    fill: float | None,
) -> Float[Tensor, "b h w c"]:
    """The window that many pixels further right and down, read backwards where `direction` is −1: exact copies."""
    n, height, width, channels = images.shape
    x, y = (torch.arange(size, device=images.device).expand(n, size) for size in (width, height))
    x = (_per_line(direction) * (2 * x - (width - 1)) + (width - 1)) // 2 + _per_line(right)
    y = y + _per_line(down)
    pixels = (_mirrored(y, height)[:, :, None] * width + _mirrored(x, width)[:, None, :]).view(n, 1, -1)
    planes = images.permute(0, 3, 1, 2)
    read = planes.flatten(2).gather(2, pixels.expand(n, channels, -1)).view(planes.shape).permute(0, 2, 3, 1)
    if fill is None:
        return read
    inside = _inside(y, height)[:, :, None] & _inside(x, width)[:, None, :]
    return torch.where(inside[..., None], read, fill)


def _mirrored(position: Tensor, size: int) -> Tensor:
    """Reflected about the centres of the outermost pixels, and held at the edge where that leads past the image."""
    last = size - 1
    return position.abs().sub_(last).abs_().neg_().add_(last).clamp_(0, last)


def _inside(position: Tensor, size: int) -> Tensor:
    return (position >= 0) & (position < size)


def _per_image(value: PerSample) -> PerSample:
    return value[:, None, None] if isinstance(value, Tensor) else value


def _per_line(value: Tensor | int) -> Tensor | int:
    return value[:, None] if isinstance(value, Tensor) else value
