"""Models that were trained on well-known images, opened from a folder: nothing is downloaded."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gedikit.errors import UsageError

if TYPE_CHECKING:
    from gedikit.estimator import GEDI

WEIGHTS = "GEDIKIT_WEIGHTS"


def weights_folder() -> Path:
    """GEDIKIT_WEIGHTS if it is set, else where a checkout of the repository has them; a wheel has none."""
    given = os.environ.get(WEIGHTS)
    return Path(given).expanduser() if given else Path(__file__).parents[2] / "results" / "images" / "weights"


def load_pretrained(name: str, device: str = "auto") -> "GEDI":
    """The GEDI model of a data set of the paper, such as "svhn": one of the fits behind `results/images/images.md`.

    Its weights were rounded to 16 bits. It holds no training images: chains begin at samples of its own.
    """
    from gedikit.estimator import GEDI

    folder = weights_folder()
    path = folder / f"{name}.safetensors"
    if not path.is_file():
        known = sorted(file.stem for file in folder.glob("*.safetensors"))
        there = (
            f"{folder} has {', '.join(known)}. `gedikit reproduce images --data NAME --method gedi` fits others on "
            f"a GPU, and with --pretrained writes them; {WEIGHTS} names another folder"
            if known
            else f"there are no weights in {folder}. They are in results/images/weights of the repository, not in "
            f"the installed package; set {WEIGHTS} to that folder"
        )
        raise UsageError(f"no pretrained model {name!r}: {there}")
    model = GEDI.load(path, device)
    fitted = model.fitted_
    fitted.reference, fitted.buffer = fitted.reference.float(), fitted.buffer.float()
    return model
