"""The same code on a CUDA device."""

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score

from gedikit import GEDI
from gedikit.data.toy import moons
from gedikit.methods import METHODS, get_method
from gedikit.training import fit
from gedikit.training.many import Task, fit_many

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("sampler", ["importance", "mala", "sgld"])
def test_fit_on_the_device_clusters_and_comes_back_to_the_cpu(sampler, tmp_path):
    x, y = moons(1000, 0)
    options = {"sampler": sampler, "negatives": 200}
    if sampler == "sgld":
        options |= {"step_size": 5e-5, "noise_std": 0.01, "energy_l2": 0.01}
    model = GEDI(2, max_iter=400, random_state=0, device="cuda", options=options).fit(x)
    assert model.fitted_.device.type == "cuda"
    assert normalized_mutual_info_score(y, model.labels_) > 0.95
    model.save(tmp_path / "model.safetensors")
    on_cpu = GEDI.load(tmp_path / "model.safetensors", device="cpu")
    np.testing.assert_allclose(on_cpu.score_samples(x), model.score_samples(x), atol=1e-2)
    samples, clusters = model.sample(200, random_state=0)
    assert np.isfinite(samples).all()
    assert (on_cpu.predict(samples) == clusters).mean() > 0.99


@pytest.mark.parametrize("name", ["gedi", "gedi-as-printed", "swav", "ebclr"])
def test_a_stack_on_the_device_equals_its_members_alone(name):
    method = get_method(name)
    settings = method.settings(iterations=20, log_every=5)
    tasks = [Task(moons(300, i)[0], settings, i, 2) for i in range(3)]
    outcomes = fit_many(tasks, method, device="cuda")
    for task, outcome in zip(tasks, outcomes, strict=True):
        alone, history, _ = fit(task.x, method, settings, n_clusters=2, seed=task.seed, device="cuda")
        assert outcome.fitted is not None
        for ours, theirs in zip(outcome.history.rows, history.rows, strict=True):
            for key in theirs:
                assert ours[key] == pytest.approx(theirs[key], rel=2e-2, abs=2e-3), key
        np.testing.assert_allclose(outcome.fitted.log_density(task.x), alone.log_density(task.x), atol=0.05)


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if n not in ("gedi", "jem") and not m.needs_rules])
def test_every_method_runs_on_the_device(name):
    x, _ = moons(200, 0)
    model = GEDI(2, method=name, max_iter=30, random_state=0, device="cuda").fit(x)
    assert np.isfinite(model.predict_proba(x)).all()
    assert np.isfinite([v for row in model.history_ for v in row.values()]).all()


def test_cpu_and_device_agree_on_the_density_of_moons():
    x, _ = moons(1000, 0)
    values = [GEDI(2, max_iter=1000, random_state=0, device=d).fit(x).score(x) for d in ("cpu", "cuda")]
    assert abs(values[0] - values[1]) < 0.05
