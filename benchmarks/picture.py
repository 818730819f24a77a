"""Make the picture in README: moons, clustered and modelled by the default estimator."""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from gedikit import GEDI
from gedikit.data.toy import moons
from gedikit.report.plane import Plane
from gedikit.report.style import png


def main() -> None:
    x, _ = moons(1000, 0)
    model = GEDI(2, random_state=0).fit(x)
    plane = Plane(model.fitted_, ["first feature", "second feature"])
    samples, _ = model.sample(500, random_state=0)
    density = model.score_samples(x) - (model.log_normaliser_ or 0.0)
    figures = [
        plane.clusters(x, model.labels_),
        plane.density(samples, density, "learned log-density, with 500 generated points"),
    ]
    pictures = [Image.open(BytesIO(png(figure))) for figure in figures]
    both = Image.new("RGB", (sum(p.width for p in pictures), max(p.height for p in pictures)), "white")
    both.paste(pictures[0], (0, 0))
    both.paste(pictures[1], (pictures[0].width, 0))
    small = both.resize((1400, round(1400 * both.height / both.width)), Image.Resampling.LANCZOS)
    small.quantize(128).save(Path("docs/moons.png"), optimize=True)
    print(f"docs/moons.png, clusters {np.bincount(model.labels_).tolist()}")


if __name__ == "__main__":
    main()
