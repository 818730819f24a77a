"""docs/extending.md as it stands: its scripts, commands and package run, and its components keep their contract."""

import math
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.datasets import load_wine
from sklearn.metrics import normalized_mutual_info_score as nmi

from gedikit import GEDI, register_objective
from gedikit.components import KINDS, import_plugin
from gedikit.config import Execution
from gedikit.data import sources
from gedikit.data.toy import moons
from gedikit.errors import UsageError
from gedikit.methods import methods
from gedikit.objectives import Objective
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.samplers import Box
from gedikit.training.callbacks import Callback
from gedikit.training.fit import fit
from gedikit.training.many import Task, fit_many

sys.path.append(str(Path(__file__).parent / "cli"))
from forked import gedikit

TEXT = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.S | re.M)
SCRIPTS = {code.splitlines()[0].removeprefix("# "): code for language, code in BLOCKS if language == "python"}
COMMANDS = [code.replace("\\\n", " ").splitlines() for language, code in BLOCKS if language == "sh"]
PROJECT = next(code for language, code in BLOCKS if language == "toml")
SENTENCES = [line for language, code in BLOCKS if language == "text" for line in code.splitlines()]

# how each component is asked for: method, and settings that differ from its defaults
USES = {
    "dcl.py": ("dcl+cluster-energy", {"objectives.dcl.temperature": 0.1}),
    "dino.py": ("dino+cluster-energy", {"objectives.dino.momentum": 0.8}),
    "mixture.py": ("bound+gaussian-mixture", {"density.components": 7}),
    "tilted.py": ("bound+tilted-energy", {"density.width": 2.0}),
    "siren.py": ("gedi", {"encoder.name": "siren", "encoder.hidden": (16, 24)}),
    "hmc.py": ("gedi", {"sampler.name": "hmc", "sampler.leapfrogs": 2}),
    "scarf.py": ("gedi", {"views.name": "scarf", "views.rate": 0.1}),
    "metric.py": ("gedi", {"similarity.name": "metric", "similarity.metric": "manhattan"}),
    "scan.py": ("scan", {}),
    "bounded.py": ("gedi", {"data.name": "bounded", "data.lowest": -1.5}),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A directory with all the files, and registries that forget what is registered in here."""
    for name, code in SCRIPTS.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    package = tmp_path / "gedikit-dcl"
    package.mkdir()
    (package / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (package / "gedikit_dcl.py").write_text(SCRIPTS["dcl.py"], encoding="utf-8")
    for registry in KINDS.values():
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    monkeypatch.setattr(methods, "_known", dict(methods._known))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in {Path(script).stem for script in SCRIPTS} - before:
        sys.modules.pop(name, None)


def component(name):
    """The module of an example, imported as --import does it."""
    import_plugin(name)
    return sys.modules[Path(name).stem]


def task_of(name, seed=0, **changes):
    method, config = USES[name]
    x = moons(120, seed)[0]
    small = {"optimiser.iterations": 30, "optimiser.batch_size": 50}
    if methods[method].density is not None and methods[method].density.endswith("-energy"):
        small["sampler.samples"] = 40
    asked = Asked(2, method, seed=seed, config={**small, **config, **changes})
    return Task(x, plan(DataProfile.of(x), asked))


def number(label, text):
    return float(re.search(rf"{label} (-?[\d.]+)", text).group(1))


# what every script prints, and what a component that does nothing would not reach
PRINTED = {
    "dcl.py": lambda out: number("NMI", out) > 0.9 and number("loss", out) > number("to", out) + 0.5,
    "dino.py": lambda out: number("NMI", out) > 0.9 and number("to", out) < 0.01,
    "mixture.py": lambda out: (
        number("log-likelihood", out) > -0.8 and "100 exact samples" in out
    ),  # 2 Gaussians: -1.7
    "tilted.py": lambda out: number("NMI", out) > 0.9 and number("log-likelihood", out) > -0.8,
    "siren.py": lambda out: number("log-likelihood", out) > -0.4,
    "hmc.py": lambda out: 0.6 < number("acceptance", out) < 1,
    "scarf.py": lambda out: number("NMI", out) > 0.7,
    "metric.py": lambda out: number("metric: NMI", out) > number("euclidean: NMI", out) + 0.05,
    "sqlite_logger.py": lambda out: number("seed 0:", out) < 1000 and out.count("(") == 2,
    "scan.py": lambda out: number("NMI", out) > 0.9,
    "bounded.py": lambda out: (
        number("vector: smallest value of a sample", out) < 0 <= number("bounded: .*sample", out)
    ),
}


def test_the_guide_has_an_example_of_every_kind_and_none_is_long():
    assert set(PRINTED) == set(SCRIPTS)
    assert set(USES) == set(SCRIPTS) - {"sqlite_logger.py"}
    used = "\n".join(SCRIPTS.values())
    for kind in ("objective", "density", "encoder", "sampler", "views", "similarity", "modality", "method"):
        assert f"register_{kind}(" in used, kind
    for name, code in SCRIPTS.items():
        assert sum(bool(line.strip()) for line in code.splitlines()) < 40, name


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_do_what_they_say(name, capsys):
    runpy.run_path(name, run_name="__main__")
    out = capsys.readouterr().out
    assert PRINTED[name](out), out


def executed(line, site):
    """A command of the guide in a process of its own; what pip installs goes to `site`."""
    program, *arguments = shlex.split(line)
    if program == "gedikit" and not any(site.iterdir()):
        done = gedikit(*arguments, cwd=Path.cwd())
    else:
        offline = "--no-deps --no-build-isolation --no-index --quiet --disable-pip-version-check --target"
        words = {
            "python": arguments,
            "gedikit": ["-m", "gedikit", *arguments],
            "pip": ["-m", "pip", *arguments, *offline.split(), str(site)],
        }[program]
        environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=600
        )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines", COMMANDS, ids=lambda lines: re.search(r"[\w-]+\.py|gedikit-dcl", lines[0]).group()
)
def test_commands_do_what_they_say(lines, tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    for line in lines:
        out = executed(line, site)
        if " settings " in line:
            assert "objectives.dcl.temperature" in out and "τ of the similarities" in out
        elif " methods" in line:
            assert "InfoNCE without the positive pair in the denominator" in out
        elif " plan " in line:
            assert "objectives.dcl" in out and not Path("runs").exists()
        elif " fit " in line:
            check_run(Path(re.search(r"--out (\S+)", line).group(1)), line)
        elif " sample " in line:
            assert len(pd.read_csv("samples.csv")) == 100
        elif "gedikit.load" in line:
            assert out.strip() == "dcl+cluster-energy"


def check_run(run, line):
    """The settings that were asked for are those of the run, and its clusters are those of the data."""
    config = (run / "config.toml").read_text(encoding="utf-8")
    for setting in re.findall(r"--set \S+\.(\w+)=(\S+)", line):
        name, value = setting
        assert re.search(rf'^{name} = "?{re.escape(value)}(\.0)?"?$', config, re.M), setting
    labels = pd.read_csv(run / "labels.csv")["cluster"]
    if " moons " in line:
        assert nmi(sources.load("moons", seed=0).y, labels) > 0.9
    else:
        assert nmi(load_wine().target, labels) > 0.7


@pytest.mark.parametrize("name", USES)
def test_models_with_such_components_are_saved_and_loaded(name):
    component(name)
    method, config = USES[name]
    x = moons(120, 0)[0]
    model = GEDI(2, method=method, config=config, max_iter=20, batch_size=50, random_state=0).fit(x)
    model.save("model.safetensors")
    again = GEDI.load("model.safetensors")
    assert again.plan_ == model.plan_
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    np.testing.assert_array_equal(again.score_samples(x), model.score_samples(x))
    if model.plan_.models_density:
        ours, theirs = (m.sample(20, steps=3, random_state=0)[0] for m in (model, again))
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", USES)
def test_members_of_a_stack_are_the_models_of_their_own_fits(name):
    component(name)
    tasks = [task_of(name, seed) for seed in (0, 1)]
    execution = Execution(device="cpu")
    for outcome, task in zip(fit_many(tasks, execution=execution), tasks, strict=True):
        alone = fit(task.plan, task.x, execution=execution).fitted
        assert outcome.failure is None
        for key, value in alone.network.state_dict().items():
            torch.testing.assert_close(outcome.fitted.network.state_dict()[key], value, rtol=1e-3, atol=1e-4)


class _Keeping(Callback):
    """The state after some iterations."""

    def __init__(self, iteration):
        self.iteration, self.kept = iteration, None

    def on_step(self, fit):
        if fit.iteration == self.iteration:
            tensors = {name: tensor.clone() for name, tensor in fit.state.tensors().items()}
            self.kept = (tensors, fit.state.meta())


@pytest.mark.parametrize("name", ["dino.py", "hmc.py"])
def test_what_components_remember_is_resumed_bit_for_bit(name):
    component(name)
    task, half_way, execution = task_of(name), _Keeping(15), Execution(device="cpu")
    whole = fit(task.plan, task.x, execution=execution, callbacks=[half_way])
    resumed = fit(task.plan, task.x, execution=execution, checkpoint=half_way.kept)
    assert torch.equal(resumed.state.weights, whole.state.weights)


def test_dcl_is_its_formula(generator):
    z, view = torch.randn(2, 3, 5, 4, generator=generator)  # three models
    out = SimpleNamespace(z=z, view_z=view)
    loss, _ = component("dcl.py").DCL(temperature=0.3)(out, {})
    z, view = (torch.nn.functional.normalize(v.double(), dim=-1).numpy() for v in (z, view))
    for ours, a, b in zip(loss, z, view, strict=True):
        expected = 0.0
        for i in range(5):
            others = [math.exp(a[i] @ b[j] / 0.3) for j in range(5) if j != i]
            expected += (math.log(sum(others)) - a[i] @ b[i] / 0.3) / 5
        assert float(ours) == pytest.approx(expected, rel=1e-5)


def test_the_centre_of_dino_is_a_running_mean(generator):
    cosines, log_p = torch.randn(2, 6, 3, generator=generator)
    out = SimpleNamespace(
        views=[None], teacher_logits=lambda _: cosines, temperature=1.0, log_p=log_p.log_softmax(-1)
    )
    before = torch.tensor([0.1, -0.2, 0.3])
    dino = component("dino.py").DINO(teacher_temperature=0.5, momentum=0.75)
    loss, memory = dino(out, {"centre": before})
    torch.testing.assert_close(memory["centre"], 0.75 * before + 0.25 * cosines.mean(0))
    target = torch.softmax((cosines - before) / 0.5, -1)
    torch.testing.assert_close(loss, -(target * log_p.log_softmax(-1)).sum() / 6)


def test_the_mixture_is_normalised_and_its_samples_are_its_own(generator):
    mixture = component("mixture.py").Mixture(3, 2, generator)
    with torch.no_grad():
        mixture.log_scales.copy_(torch.randn(3, 2, generator=generator) / 2 - 1)
        mixture.logits.copy_(torch.randn(3, generator=generator))
        x = torch.randn(10, 2, generator=generator)
        ours = mixture.log_density(None, x, None).numpy()
        weights, scales = mixture.logits.softmax(-1).numpy(), mixture.log_scales.exp().numpy()
        means = mixture.means.numpy()
        parts = [
            w * multivariate_normal(m, np.diag(s**2)).pdf(x) for w, m, s in zip(weights, means, scales, strict=True)
        ]
        np.testing.assert_allclose(ours, np.log(np.sum(parts, 0)), rtol=1e-4)
        samples = mixture.sample(50_000, generator).numpy()
    np.testing.assert_allclose(samples.mean(0), weights @ means, atol=0.02)
    second = weights @ (scales**2 + means**2)
    np.testing.assert_allclose((samples**2).mean(0), second, rtol=0.03)


def test_hmc_leaves_its_density_invariant_and_finds_it(generator):
    def log_density(x):
        return -(x.square() * torch.tensor([1.0, 4.0])).sum(-1) / 2  # deviations 1 and 1/2

    hmc = component("hmc.py").HMC(step_size=0.4, leapfrogs=2)
    box = Box(torch.full((2,), -9.0), torch.full((2,), 9.0))
    for x in (torch.zeros(4000, 2), torch.randn(4000, 2, generator=generator) * torch.tensor([1.0, 0.5])):
        done, info = hmc.sample(log_density, x, steps=15, step_size=0.0, box=box, generator=generator)
        np.testing.assert_allclose(done.std(0).numpy(), [1, 0.5], rtol=0.05)
        assert 0.8 < info.acceptance < 1
    small = Box(torch.full((2,), -0.1), torch.full((2,), 0.1))
    done, info = hmc.sample(
        log_density, torch.zeros(500, 2), steps=10, step_size=0.0, box=small, generator=generator
    )
    assert small.contains(done).all() and info.acceptance < 0.3


def test_scarf_replaces_columns_by_those_of_other_rows(generator):
    x = torch.arange(4000.0).reshape(1000, 4)
    view = component("scarf.py").Scarf(rate=0.3).change(x, 0.0, generator)
    assert float((view != x).float().mean()) == pytest.approx(0.3, abs=0.03)
    for before, after in zip(x.T, view.T, strict=True):
        assert np.isin(after.numpy(), before.numpy()).all()


def test_neighbours_are_those_of_the_metric(generator):
    points = torch.randn(30, 3, generator=generator)
    metric = component("metric.py").Metric(metric="manhattan")
    distance, index = metric.nearest(SimpleNamespace(data=lambda: points))(np.arange(5, 30), 4)
    every = torch.cdist(points[5:], points[5:], p=1).fill_diagonal_(math.inf)
    np.testing.assert_allclose(distance, every.topk(4, largest=False).values, rtol=1e-5)
    np.testing.assert_array_equal(index, every.topk(4, largest=False).indices)


def removed(name):
    """The registries as they are where nobody has imported the example."""
    sys.modules.pop(Path(name).stem)
    for registry in KINDS.values():
        for key, cls in list(registry._classes.items()):
            if not cls.__module__.startswith("gedikit."):
                del registry._classes[key]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("dcl.py", "objective 'dcl'"),
        ("mixture.py", "density 'gaussian-mixture'"),
        ("siren.py", "encoder 'siren'"),
        ("hmc.py", "sampler 'hmc'"),
        ("scarf.py", "views 'scarf'"),
        ("metric.py", "similarity 'metric'"),
        ("bounded.py", "data 'bounded'"),
    ],
)
def test_a_model_says_which_component_it_lacks(name, what):
    component(name)
    task = task_of(name)
    fit(task.plan, task.x).fitted.save(Path("model.safetensors"))
    removed(name)
    sentence = SENTENCES[0].replace("objective 'dcl'", what).replace("module 'dcl'", f"module '{Path(name).stem}'")
    with pytest.raises(UsageError, match=f"^{re.escape(sentence)}$"):
        GEDI.load("model.safetensors")
    import_plugin(name)
    assert GEDI.load("model.safetensors").plan_.tree() == task.plan.tree()


def test_a_model_says_when_a_script_defined_its_component():
    runpy.run_path("siren.py", run_name="__main__")
    sys.modules["siren"] = sys.modules["__main__"]  # so that `removed` finds it
    task = task_of("siren.py")
    fit(task.plan, task.x).fitted.save(Path("model.safetensors"))
    removed("siren.py")
    with pytest.raises(
        UsageError, match=r"needs the encoder 'siren' of the script it was trained by: import that script"
    ):
        GEDI.load("model.safetensors")


def test_a_name_that_is_nearly_right_is_recognised():
    component("dcl.py")
    x = moons(50, 0)[0]
    with pytest.raises(UsageError) as method:
        GEDI(2, method="dlc").fit(x)
    with pytest.raises(UsageError) as setting:
        GEDI(2, method="dcl", config={"objectives.dcl.temprature": 0.1}).fit(x)
    for sentence, raised in zip(SENTENCES[1:], (method, setting), strict=True):
        assert str(raised.value).startswith(sentence)
    with pytest.raises(UsageError, match=r"did you mean 'siren'"):
        component("siren.py")
        GEDI(2, config={"encoder.name": "sirene"}).fit(x)


def test_one_name_is_one_component():
    component("dcl.py")
    with pytest.raises(UsageError, match=r"the objective 'dcl' is there already, of the module 'dcl'"):
        import_plugin("gedikit-dcl/gedikit_dcl.py")
    import_plugin("dcl.py")  # the same file again is the same component


def test_a_file_is_imported_with_what_lies_beside_it():
    Path("constants_of_mine.py").write_text("TAU = 0.3\n")
    code = SCRIPTS["dcl.py"].replace("import torch\n", "import torch\nfrom constants_of_mine import TAU\n", 1)
    Path("dcl_of_mine.py").write_text(code.replace("setting(0.2,", "setting(TAU,"))
    assert component("dcl_of_mine.py").DCL().temperature == 0.3
    for name in ("constants_of_mine", "dcl_of_mine"):
        del sys.modules[name]


def test_a_file_that_cannot_be_imported_leaves_nothing_behind():
    Path("broken_of_mine.py").write_text("import torch\nraise ValueError('half way')\n")
    Path("math.py").write_text("")
    with pytest.raises(UsageError, match=r"^broken_of_mine.py could not be imported: ValueError: half way$"):
        import_plugin("broken_of_mine.py")
    assert "broken_of_mine" not in sys.modules
    with pytest.raises(UsageError, match=r"math.py has the name of the module 'math', which is in use"):
        import_plugin("math.py")
    assert sys.modules["math"] is math
    with pytest.raises(UsageError, match=r"there is no file other.py to import components from"):
        import_plugin("other.py")


def test_a_model_of_a_named_method_does_not_need_the_method():
    component("scan.py")
    task = task_of("scan.py")
    fit(task.plan, task.x).fitted.save(Path("model.safetensors"))
    del methods._known["scan"]
    assert GEDI.load("model.safetensors").predict(task.x).shape == (120,)


def test_names_that_could_not_be_asked_for_are_refused():
    @dataclass(frozen=True)
    class Plain(Objective):
        pass

    @dataclass(frozen=True)
    class Named(Objective):
        name: str = "x"

    for name in ("a+b", "a.b", "a b", "none", ""):
        with pytest.raises(UsageError, match="a name has letters, digits, - and _"):
            register_objective(name)(Plain)
    with pytest.raises(UsageError, match="has a setting 'name'"):
        register_objective("named")(Named)
