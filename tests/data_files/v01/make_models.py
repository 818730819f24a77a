"""How the models beside this file came to be: PYTHONPATH=GEDIKIT_0.1/src python make_models.py

Small models of gedikit 0.1 (commit 30b9df3), and what that version says about some rows.
"""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import make_moons
from torch import nn

from gedikit import GEDI
from gedikit.symbolic import Constraint

HERE = Path(__file__).parent
SMALL = {"hidden": (8,), "features": 4, "frequencies": 4, "batch_size": 20, "negatives": 20, "log_every": 5}
PICTURE = {"width": 4, "steps": 2, "negatives": 4, "buffer": 8, "batch_size": 8, "walk_copies": 2, "log_every": 5}
VECTORS = {
    "gedi": ("gedi", {"bank": 200, "invariance": 7.5}),
    "gedi-no-gen": ("gedi-no-gen", {"spectral_start": 0.5, "augmentation": "noise"}),
    "jem-mala": ("jem", {"sampler": "mala", "buffer": 50, "steps": 2}),
    "cpc": ("cpc", {}),
    "ebclr": ("ebclr", {"references": 6, "bank": 200}),
    "swav": ("swav", {"queue": 30, "temperature": 0.2}),
    "swav-flow": ("swav+flow", {"flow_transforms": 1, "flow_hidden": (8,)}),
    "barlow-twins-as-printed": ("barlow-twins-as-printed", {}),
}
SUM = Constraint(lambda a, b, c: a + b == c, domains=(2, 2, 2))


def pictures(n: int, channels: int = 1) -> np.ndarray:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 60, (n, 16, 16, channels))
    for i, image in enumerate(images):
        image[8 * (i % 2) : 8 * (i % 2) + 8] += 150
    return images.astype(np.uint8)


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 6), nn.Tanh())


def trimmed(model: GEDI) -> GEDI:
    """With fewer samples to start from than a fit keeps."""
    fitted = model.fitted_
    fitted.buffer = fitted.buffer[:100]
    fitted.quantiles = fitted.quantiles[::10]
    return model


def told(model: GEDI, x: np.ndarray) -> dict[str, np.ndarray]:
    said = {"proba": model.predict_proba(x), "score": model.score_samples(x), "features": model.transform(x)}
    said |= {"labels": model.labels_, "outlier": model.outlier_score(x)}
    if model.fitted_.models_density:
        said["samples"] = model.sample(5, steps=3, random_state=3)[0]
        said["from_noise"] = model.sample(5, steps=3, start="noise", random_state=4)[0]
        said["of_a_cluster"] = model.sample(5, steps=3, cluster=1, random_state=5)[0]
    return said


def models() -> dict[str, tuple[GEDI, np.ndarray]]:
    x, y = make_moons(40, noise=0.05, random_state=0)
    made = {}
    for name, (method, options) in VECTORS.items():
        model = GEDI(2, method=method, max_iter=10, random_state=0, device="cpu", options={**SMALL, **options})
        made[name] = (model.fit(x), x)
    brought = {name: SMALL[name] for name in ("batch_size", "negatives", "log_every")} | {"bank": 200}
    user = GEDI(2, encoder=encoder(), max_iter=10, random_state=0, device="cpu", options=brought)
    made["user-encoder"] = (user.fit(x), x)
    ones = np.flatnonzero(y)[:8]
    zeros = np.flatnonzero(1 - y)[:8]
    examples = np.stack([zeros, ones, np.roll(ones, 1)], 1)
    few = {**SMALL, "bank": 200}
    rules = GEDI(2, method="gedi-symbols", max_iter=10, random_state=0, device="cpu", options=few)
    made["gedi-symbols"] = (rules.fit_examples(x, SUM, examples), x)
    grey, colour = pictures(12), pictures(8, 3)
    image = GEDI(2, max_iter=3, random_state=0, device="cpu", options=PICTURE)
    made["image"] = (image.fit(grey), grey.reshape(12, -1))
    printed = {**PICTURE, "epochs": 0, "augmentation": "cifar10-printed"}
    image = GEDI(2, method="barlow-twins-as-printed", like="cifar10", max_iter=3, device="cpu", options=printed)
    made["image-as-printed"] = (image.set_params(random_state=0).fit(colour), colour.reshape(8, -1))
    return made


def main() -> None:
    expected: dict[str, np.ndarray] = {}
    for name, (model, x) in models().items():
        path = HERE / f"{name}.safetensors"
        trimmed(model).save(path)
        own = encoder() if name == "user-encoder" else None
        loaded = GEDI.load(path, device="cpu", encoder=own)
        some = x[:: max(1, len(x) // 8)][:8]
        expected |= {f"{name}/x": some}
        expected |= {f"{name}/{key}": value for key, value in told(loaded, some).items()}
        print(name, path.stat().st_size, loaded.fitted_.settings.network, loaded.fitted_.method)
    capability = torch.backends.cpu.get_cpu_capability()
    expected["made_with"] = np.array([torch.__version__, capability])
    np.savez_compressed(HERE / "expected.npz", **expected)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
