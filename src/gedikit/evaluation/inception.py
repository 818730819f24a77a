"""The features that the Fréchet distance of images is measured in."""

import contextlib
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from gedikit.errors import DataError, UsageError

RESIZE = "bilinear to 299×299, align_corners=False, antialias=False (torch interpolate)"
RANGE = "0..255 mapped to (x − 128)/128 after the resize"

FID_NETWORK = "inception/fid_inception_v3.pt"  # where it is looked for, below the data folder

_SIDE = 299


class Inception:
    """The Inception network of December 2015 from a TorchScript file: uint8 images to its 2048 pooled features.

    The file is known by the SHA-256 of its bytes, which goes into every figure. Weights and arithmetic are float32
    throughout: autocast and TF32 are switched off around it, so that statistics from different devices agree.
    """

    def __init__(self, path: Path | str, device: torch.device | str = "cpu"):
        path = Path(path)
        if not path.is_file():
            raise UsageError(
                f"FID needs the Inception network as TorchScript at {path}: (n, 3, 299, 299) → (n, 2048) features"
            )
        content = path.read_bytes()
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.device = torch.device(device)
        try:
            network = torch.jit.load(io.BytesIO(content), map_location=self.device)
        except RuntimeError as error:
            raise DataError(f"{path} is damaged or not a TorchScript file") from error
        self._network = network.eval().float()

    @torch.no_grad()
    def features(self, images: UInt8[np.ndarray, "n h w c"]) -> Float[Tensor, "n d"]:
        """Features of all `images` in one pass, on this network's device."""
        check_images(images)
        pixels = torch.as_tensor(np.array(images, order="C"), device=self.device)
        pixels = pixels.permute(0, 3, 1, 2).float().expand(-1, 3, -1, -1)
        resized = functional.interpolate(
            pixels, (_SIDE, _SIDE), mode="bilinear", align_corners=False, antialias=False
        )
        with torch.autocast(self.device.type, enabled=False), _without_tf32():
            features: Tensor = self._network((resized - 128) / 128)
        if features.ndim != 2 or len(features) != len(images):
            raise DataError(f"the network gives features of shape {tuple(features.shape)}, not one row an image")
        return features


def check_images(images: UInt8[np.ndarray, "n h w c"]) -> None:
    if images.dtype != np.uint8:
        raise DataError(f"images must be whole numbers in 0..255 (uint8), not {images.dtype}")
    if images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise DataError(f"images must have shape (n, height, width, 1 or 3), not {images.shape}")


@contextlib.contextmanager
def _without_tf32() -> Iterator[None]:
    """Convolutions on CUDA round to TF32 unless told otherwise; elsewhere this changes nothing."""
    backend = torch.backends.cudnn
    # torch 2.9 moved the switch, and refuses to read the old one where both have been used
    owner, switch, off = (
        (backend.conv, "fp32_precision", "ieee") if hasattr(backend, "conv") else (backend, "allow_tf32", False)
    )
    before = getattr(owner, switch)
    setattr(owner, switch, off)
    try:
        yield
    finally:
        setattr(owner, switch, before)
