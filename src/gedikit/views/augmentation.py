"""T(x′|x) for images: a batch at once, every sample with parameters of its own, hashed from its key.

Nothing here waits for the device or branches on data, so that a step which augments can be compiled as one graph
and captured as a CUDA graph. What a field switches off is not computed.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gedikit.components import setting
from gedikit.errors import UsageError
from gedikit.randomness import keyed_normal, keyed_uniform, substream
from gedikit.views.colour import recoloured
from gedikit.views.warp import AffineMap, crop_to_size, read_along, read_shifted, turned_and_moved

Range = tuple[float, float]
Draws = Mapping[str, Float[Tensor, " b"]]


@dataclass(frozen=True)
class Augmentation:
    """What may happen to an image with values in [−1, 1], in this order; the default is nothing at all.

    Sheared, zoomed, turned and moved; shifted; cropped; flipped: composed into one map and interpolated once.
    Where it is only shifted and flipped, pixels are copied without interpolation. Then brightness, contrast,
    saturation, hue and grey, clipped to [−1, 1]. Last the noise, which is not clipped: the paper adds it after
    normalisation, and clipping would pile up probability on the bounds that the density then has to explain.
    """

    rotation: float = setting(0.0, "degrees either way")
    shear: float = setting(0.0, "degrees either way, along x")
    zoom: Range = setting((1.0, 1.0), "from, to")
    translation: float = setting(0.0, "either way, as a share of the side")
    shift: int = setting(0, "whole pixels either way: a random crop of the padded image")
    crop_area: Range = setting((1.0, 1.0), "share of the area that is enlarged to the full size, from, to")
    crop_ratio: Range = setting((3 / 4, 4 / 3), "width over height of that crop, from, to")
    flip: float = setting(0.0, "probability of left and right exchanged")
    fill: float | None = setting(None, "value outside the image, from -1 to 1; none: its mirror image")

    jitter: float = setting(0.0, "probability that the colours change, by the next four strengths")
    brightness: float = setting(0.0, "factors between 1 - and 1 + this")
    contrast: float = setting(0.0, "factors between 1 - and 1 + this")
    saturation: float = setting(0.0, "factors between 1 - and 1 + this")
    hue: float = setting(0.0, "turns of the colour circle either way")
    grey: float = setting(0.0, "probability of no colour at all")

    noise: float = setting(0.0, "standard deviation of the noise")

    def __post_init__(self) -> None:
        for name in ("flip", "jitter", "grey", "brightness", "contrast", "saturation", "translation"):
            _require(0 <= getattr(self, name) <= 1, name, "lie between 0 and 1", getattr(self, name))
        for name in ("rotation", "shift", "noise"):
            _require(getattr(self, name) >= 0, name, "not be negative", getattr(self, name))
        for name in ("zoom", "crop_area", "crop_ratio"):
            low, high = getattr(self, name)
            _require(0 < low <= high, name, "be two positive numbers, the smaller first", (low, high))
        _require(self.crop_area[1] <= 1, "crop_area", "not exceed 1", self.crop_area)
        _require(0 <= self.shear < 90, "shear", "lie between 0 and 90 degrees", self.shear)
        _require(0 <= self.hue <= 0.5, "hue", "lie between 0 and half a turn", self.hue)
        _require(self.fill is None or -1 <= self.fill <= 1, "fill", "lie between -1 and 1", self.fill)

    def __call__(self, images: Float[Tensor, "b h w c"], keys: Int64[Tensor, " b"]) -> Float[Tensor, "b h w c"]:
        x = images.to(torch.promote_types(images.dtype, torch.float32))
        if self._moves or self._recolours:
            draws = parameter_draws(keys)
            x = self._recoloured(self._moved(x, draws), draws)
        if self.noise:
            noise = keyed_normal(substream(keys, _NOISE), images[0].numel())
            x = noise.mul_(self.noise).reshape(images.shape).add_(x)
        return x.to(images.dtype).contiguous()

    def describe(self) -> str:
        """One sentence for reports and lab books."""
        parts = [*self._places_in_words(), *self._colours_in_words()]
        if self.noise:
            parts.append(f"Gaussian noise of standard deviation {self.noise:g}")
        return f"Each view is the image after {'; '.join(parts)}." if parts else "Each view is the image itself."

    @property
    def _moves(self) -> bool:
        return bool(self._interpolates or self.shift or self.flip)

    @property
    def _interpolates(self) -> bool:
        return self._crops or self._turns

    @property
    def _crops(self) -> bool:
        return self.crop_area != (1, 1)

    @property
    def _turns(self) -> bool:
        return bool(self.rotation or self.shear or self.translation or self.zoom != (1, 1))

    @property
    def _recolours(self) -> bool:
        return bool(self._strengths or self.grey)

    @property
    def _strengths(self) -> dict[str, float]:
        names = ("brightness", "contrast", "saturation", "hue") if self.jitter else ()
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    def _moved(self, x: Float[Tensor, "b h w c"], draws: Draws) -> Float[Tensor, "b h w c"]:
        direction = torch.where(draws["flip"] < self.flip, -1, 1) if self.flip else 1
        right, down = (_whole(draws[name], self.shift) if self.shift else 0 for name in ("shift_x", "shift_y"))
        if self._interpolates:
            path = AffineMap(xx=direction)
            if self._crops:
                path = path.then(self._crop(draws, (x.shape[1], x.shape[2])))
            if self.shift:
                path = path.then(AffineMap(x0=right, y0=down))
            if self._turns:
                path = path.then(self._turn(draws, (x.shape[1], x.shape[2])))
            return read_along(x, path, self.fill)
        if self._moves:
            return read_shifted(x, right, down, direction, self.fill)
        return x

    def _crop(self, draws: Draws, size: tuple[int, int]) -> AffineMap:
        low, high = (math.log(ratio) for ratio in self.crop_ratio)
        return crop_to_size(
            area=_between(draws["crop_area"], *self.crop_area),
            ratio=_between(draws["crop_ratio"], low, high).exp(),
            left=draws["crop_left"],
            top=draws["crop_top"],
            size=size,
        )

    def _turn(self, draws: Draws, size: tuple[int, int]) -> AffineMap:
        return turned_and_moved(
            degrees=_either_way(draws["rotation"], self.rotation),
            zoom=_between(draws["zoom"], *self.zoom),
            shear_degrees=_either_way(draws["shear"], self.shear),
            right=_either_way(draws["translation_x"], self.translation * size[1]),
            down=_either_way(draws["translation_y"], self.translation * size[0]),
        )

    def _recoloured(self, x: Float[Tensor, "b h w c"], draws: Draws) -> Float[Tensor, "b h w c"]:
        if not self._recolours:
            return x
        applies = draws["jitter"] < self.jitter
        factors = {}
        for name, strength in self._strengths.items():
            unchanged = 0.0 if name == "hue" else 1.0
            factors[name] = torch.where(applies, unchanged + _either_way(draws[name], strength), unchanged)
        if self.grey:
            colourful = factors.get("saturation", torch.ones_like(draws["grey"]))
            factors["saturation"] = torch.where(draws["grey"] < self.grey, 0.0, colourful)
        return recoloured(x, **factors)

    def _places_in_words(self) -> Iterator[str]:
        if self.rotation:
            yield f"a turn by up to {self.rotation:g}°"
        if self.shear:
            yield f"a shear by up to {self.shear:g}°"
        if self.zoom != (1, 1):
            yield f"a zoom by {self.zoom[0]:g} to {self.zoom[1]:g}"
        if self.translation:
            yield f"a move by up to {self.translation:.3g} of its side"
        if self.shift:
            yield f"a shift by up to {self.shift} pixels"
        if self._crops:
            yield f"a crop of {self.crop_area[0]:g} to {self.crop_area[1]:g} of its area"
        if self.flip:
            yield f"a horizontal flip with probability {self.flip:g}"

    def _colours_in_words(self) -> Iterator[str]:
        if self._strengths:
            strengths = ", ".join(f"{name} {strength:g}" for name, strength in self._strengths.items())
            yield f"colour jitter with probability {self.jitter:g} ({strengths})"
        if self.grey:
            yield f"the loss of its colours with probability {self.grey:g}"


def parameter_draws(keys: Int64[Tensor, " b"]) -> Draws:
    """The numbers in [0, 1) from which the parameters follow: the same whatever is switched on."""
    return dict(zip(_DRAWS, keyed_uniform(keys, len(_DRAWS)).unbind(-1), strict=True))


# Their order is their column: what is new goes to the end, or the views of earlier runs change.
_DRAWS = (
    *("rotation", "shear", "zoom", "translation_x", "translation_y", "shift_x", "shift_y"),
    *("crop_area", "crop_ratio", "crop_left", "crop_top", "flip"),
    *("jitter", "brightness", "contrast", "saturation", "hue", "grey"),
)
_NOISE = 1


def _between(draw: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * draw


def _either_way(draw: Tensor, most: float) -> Tensor:
    return _between(draw, -most, most)


def _whole(draw: Tensor, most: int) -> Tensor:
    return (draw * (2 * most + 1)).long() - most


def _require(met: bool, name: str, wanted: str, value: object) -> None:
    if not met:
        raise UsageError(f"{name} must {wanted}, not {value!r}")
