"""The same code on a CUDA device."""

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score

from gedikit import GEDI
from gedikit.config import Execution
from gedikit.data.toy import moons
from gedikit.methods import methods
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.training import fit
from gedikit.training.many import Task, fit_many

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("sampler", ["importance", "mala", "sgld"])
def test_fit_on_the_device_clusters_and_comes_back_to_the_cpu(sampler, tmp_path):
    x, y = moons(1000, 0)
    config = {"sampler.name": sampler, "sampler.samples": 200}
    if sampler == "sgld":
        config |= {"sampler.step_size": 5e-5, "sampler.noise_std": 0.01, "density.l2": 0.01}
    model = GEDI(2, max_iter=400, random_state=0, device="cuda", config=config).fit(x)
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
    execution = Execution(device="cuda", log_every=5)
    tasks = []
    for seed in range(3):
        x = moons(300, seed)[0]
        asked = Asked(2, name, seed=seed, config={"optimiser.iterations": 20})
        tasks.append(Task(x, plan(DataProfile.of(x), asked)))
    outcomes = fit_many(tasks, execution=execution)
    for task, outcome in zip(tasks, outcomes, strict=True):
        alone = fit(task.plan, task.x, execution=execution)
        assert outcome.fitted is not None
        for ours, theirs in zip(outcome.history.rows, alone.history.rows, strict=True):
            for key in theirs:
                assert ours[key] == pytest.approx(theirs[key], rel=2e-2, abs=2e-3), key
        theirs = alone.fitted.log_density(task.x)
        np.testing.assert_allclose(outcome.fitted.log_density(task.x), theirs, atol=0.05)


OTHERS = [
    method.name
    for method in methods.values()
    if method.name not in ("gedi", "jem") and "-as-printed" not in method.name and not method.needs_examples
]


@pytest.mark.parametrize("name", OTHERS)
def test_every_method_runs_on_the_device(name):
    x, _ = moons(200, 0)
    model = GEDI(2, method=name, max_iter=30, random_state=0, device="cuda").fit(x)
    assert np.isfinite(model.predict_proba(x)).all()
    assert np.isfinite([v for row in model.history_ for v in row.values()]).all()


def test_cpu_and_device_agree_on_the_density_of_moons():
    x, _ = moons(1000, 0)
    values = [GEDI(2, max_iter=1000, random_state=0, device=d).fit(x).score(x) for d in ("cpu", "cuda")]
    assert abs(values[0] - values[1]) < 0.05
