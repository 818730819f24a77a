"""Make the pictures in README: moons, clustered and modelled by the default estimator, and generated images."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from gedikit import GEDI
from gedikit.data.toy import moons
from gedikit.report.plane import Plane
from gedikit.report.style import png

WIDTH, GAP = 1400, 20


def main() -> None:
    x, _ = moons(1000, 0)
    model = GEDI(2, random_state=0).fit(x)
    plane = Plane(model.fitted_, ["first feature", "second feature"])
    samples, _ = model.sample(500, random_state=0)
    density = model.score_samples(x)
    figures = [
        plane.clusters(x, model.labels_),
        plane.density(samples, density, "learned log-density, with 500 generated points"),
    ]
    beside([Image.open(BytesIO(png(figure))) for figure in figures], Path("docs/moons.png"), 0)
    print(f"docs/moons.png, clusters {np.bincount(model.labels_).tolist()}")
    generated()


def generated() -> None:
    """Grids of version 0.1's fits, the first hundred samples of each model as they came."""
    grids = [
        Path(f"results/images/{name}-100/samples.png") for name in ("mnist", "svhn", "fashion-mnist", "cifar10")
    ]
    beside([Image.open(grid).convert("RGB") for grid in grids], Path("docs/images.png"), GAP)


def beside(pictures: Sequence[Image.Image], path: Path, gap: int) -> None:
    height = max(p.height for p in pictures)
    tall = [p.resize((round(p.width * height / p.height), height), Image.Resampling.LANCZOS) for p in pictures]
    whole = Image.new("RGB", (sum(p.width + gap for p in tall) - gap, height), "white")
    left = 0
    for picture in tall:
        whole.paste(picture, (left, 0))
        left += picture.width + gap
    small = whole.resize((WIDTH, round(WIDTH * height / whole.width)), Image.Resampling.LANCZOS)
    small.quantize(256).save(path, optimize=True)


if __name__ == "__main__":
    main()
