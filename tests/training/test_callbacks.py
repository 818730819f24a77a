"""Callbacks: what they are told and when, and how they end a fit."""

import csv
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from step_cases import SMALL

from gedikit import GEDI
from gedikit.callbacks import Callback, CSVLogger, EarlyStopping, FitView, JSONLLogger, TensorBoardLogger
from gedikit.config import Execution
from gedikit.data.toy import moons
from gedikit.errors import DivergenceError, Interrupted, UsageError
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.training import fit
from gedikit.training.callbacks import Callbacks

X = moons(80, 0)[0]


def estimator(max_iter=20, method="gedi", **config):
    config = {**SMALL, "execution.log_every": 5, **config}
    config.pop("optimiser.iterations", None)
    return GEDI(2, method=method, max_iter=max_iter, config=config, random_state=0, device="cpu")


class Recorder(Callback):
    """Writes down every call."""

    def __init__(self):
        self.calls: list[tuple[str, int]] = []

    def names(self):
        return [name for name, _ in self.calls]

    def on_start(self, fit):
        self.calls.append(("start", fit.iteration))

    def on_step(self, fit):
        self.calls.append(("step", fit.iteration))

    def on_metrics(self, fit, metrics):
        assert metrics["iteration"] == fit.iteration
        self.calls.append(("metrics", fit.iteration))

    def on_event(self, text):
        self.calls.append((text, -1))

    def on_checkpoint(self, fit):
        self.calls.append(("checkpoint", fit.iteration))
        return False

    def on_end(self, fit):
        self.calls.append(("end", fit.iteration))


class StopAt(Callback):
    """Asks for the end after so many iterations."""

    def __init__(self, iteration):
        self.at = iteration

    def on_step(self, fit):
        if fit.iteration == self.at:
            fit.stop("enough")


def test_callbacks_are_told_in_order():
    seen = Recorder()
    estimator(7, **{"execution.log_every": 3}).fit(X, callbacks=[seen])
    measured = [("metrics", 0), ("checkpoint", 0)]

    def at(i):
        return [("step", i), *([(name, i) for name, _ in measured] if i in (3, 6, 7) else [])]

    assert seen.calls == [("start", 0), *[call for i in range(1, 8) for call in at(i)], ("end", 7)]


def test_several_callbacks_are_called_one_after_the_other():
    order = []

    class Named(Callback):
        def __init__(self, name):
            self.name = name

        def on_start(self, fit):  # noqa: ARG002
            order.append(self.name)

        def on_checkpoint(self, fit):  # noqa: ARG002
            order.append(self.name)
            return self.name == "first"

        def on_interrupt(self, fit):
            return (
                super().on_interrupt(fit) if self.name == "first" else "stopped; go on with: gedikit fit --resume"
            )

    both = Callbacks([Named("first"), Named("second")])
    view = FitView(plan(DataProfile.of(X), Asked(2)), type("State", (), {"iteration": 3})(), {})
    both.on_start(view)
    assert both.on_checkpoint(view), "one of them wrote one"
    assert order == ["first", "second"] * 2, "each is asked, whatever the others said"
    assert both.on_interrupt(view) == "stopped; go on with: gedikit fit --resume"
    assert Callbacks([]).on_interrupt(view) == "stopped at iteration 3"
    assert not Callbacks([]).on_checkpoint(view)


def test_a_callback_that_does_nothing_changes_nothing():
    plain, watched = estimator(10).fit(X), estimator(10).fit(X, callbacks=[Callback(), Recorder()])
    assert np.array_equal(plain.score_samples(X), watched.score_samples(X))
    assert plain.history_ == watched.history_


def test_what_a_callback_sees_of_a_fit():
    seen = {}

    class Looker(Callback):
        def on_start(self, fit):
            seen["plan"], seen["iterations"], seen["optima"] = fit.plan, fit.iterations, dict(fit.optima)

        def on_step(self, fit):
            seen["weights"] = fit.state.weights.detach().clone()

    model = estimator(6).fit(X, callbacks=[Looker()])
    assert seen["plan"] == model.plan_
    assert seen["iterations"] == 6
    best = pytest.approx(np.log(2))
    assert seen["optima"] == {"invariance": 0.0, "prior": best, "mutual_information": best}
    assert len(seen["weights"]) == sum(p.numel() for p in model.fitted_.network.parameters())


# ends


@pytest.mark.parametrize(("at", "end"), [(1, 2), (4, 5), (5, 5), (6, 7), (19, 20), (20, 20)])
def test_stopping_in_an_iteration_ends_at_the_next_measurement(at, end):
    """Iterations 5, 10, 15 and 20 are measured anyway; where it is asked for, the one after it is."""
    seen = Recorder()
    model = estimator(20).fit(X, callbacks=[StopAt(at), seen])
    assert model.n_iter_ == end
    assert [call for call in seen.calls if call[0] == "step"] == [("step", i) for i in range(1, end + 1)]
    assert seen.calls[-1] == ("end", end)
    assert model.history_[-1]["iteration"] == end
    if end < 20:
        assert (f"iteration {end}: enough", -1) in seen.calls
        assert model.fitted_.info["events"] == [f"iteration {end}: enough"]
    assert np.isfinite(model.score_samples(X)).all()
    assert model.predict(X).shape == (80,)


def test_the_first_reason_to_stop_is_the_one_that_is_told():
    class Twice(Callback):
        def on_metrics(self, fit, metrics):  # noqa: ARG002
            fit.stop("first")
            fit.stop("second")

    model = estimator(20).fit(X, callbacks=[Twice()])
    assert model.fitted_.info["events"] == ["iteration 5: first"]


def test_a_stopped_model_is_saved_and_read(tmp_path):
    model = estimator(20).fit(X, callbacks=[StopAt(7)])
    model.save(tmp_path / "model.safetensors")
    again = GEDI.load(tmp_path / "model.safetensors", device="cpu")
    assert (again.n_iter_, again.max_iter) == (8, 20)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_an_interrupted_fit_raises_and_can_go_on(tmp_path):
    """A stopped fit ends with a model, an interrupted one with a checkpoint."""

    class Interrupter(Callback):
        kept = None

        def on_metrics(self, fit, metrics):
            if metrics["iteration"] == 10:
                fit.interrupt()

        def on_interrupt(self, fit):
            copies = {name: tensor.clone() for name, tensor in fit.state.tensors().items()}
            self.kept = (copies, fit.state.meta())
            return f"left at iteration {fit.iteration}"

    config = {**SMALL, "optimiser.iterations": 20}
    asked, execution = plan(DataProfile.of(X), Asked(2, config=config)), Execution(device="cpu", log_every=5)
    interrupter = Interrupter()
    with pytest.raises(Interrupted, match="left at iteration 10"):
        fit(asked, X, execution=execution, callbacks=[interrupter])
    path = tmp_path / "metrics.jsonl"
    whole = fit(asked, X, execution=execution, callbacks=[JSONLLogger(path)])
    seen = Recorder()
    resumed = fit(asked, X, execution=execution, checkpoint=interrupter.kept, callbacks=[seen])
    assert seen.calls[0] == ("start", 10)
    assert resumed.history.rows == whole.history.rows[2:]
    assert np.array_equal(resumed.fitted.log_density(X), whole.fitted.log_density(X))


def test_early_stopping_keeps_a_usable_model():
    seen = Recorder()
    stopping = EarlyStopping("gradient_norm", patience=3, min_change=1e9)  # nothing improves by that much
    model = estimator(200).fit(X, callbacks=[stopping, seen])
    assert model.n_iter_ == 20, "the first measurement, and three that are no better"
    assert model.n_iter_ < model.max_iter
    assert "gradient_norm has not improved for 3 measurements" in model.fitted_.info["events"][-1]
    assert np.isfinite(model.predict_proba(X)).all()
    points, _ = model.sample(3, steps=2, random_state=0)
    assert np.isfinite(points).all()


@pytest.mark.parametrize(
    ("metric", "values", "waited"),
    [
        ("prior", [3, 2, 1, 2, 1], 2),
        ("mutual_information", [0.1, 0.2, 0.15, 0.3], 0),
        ("log_density", [5, 4, 3], 2),
        ("invariance", [1, 1, 1], 2),
    ],
)
def test_losses_improve_downwards_and_information_upwards(metric, values, waited):
    stopping = EarlyStopping(metric, patience=10)
    view = FitView(plan(DataProfile.of(X), Asked(2)), type("State", (), {"iteration": 1})(), {})
    stopping.on_start(view)
    for value in values:
        stopping.on_metrics(view, {metric: float(value)})
    assert stopping.waited == waited
    assert view.stopped is None
    stopping.on_start(view)
    assert (stopping.best, stopping.waited) == (np.inf, 0), "each fit begins anew"


def test_early_stopping_on_what_is_not_measured_is_refused():
    with pytest.raises(UsageError, match=r"there is no measurement 'priorr'; did you mean 'prior'\?"):
        estimator(20).fit(X, callbacks=[EarlyStopping("priorr")])
    with pytest.raises(UsageError, match="patience must be at least 1, not 0"):
        EarlyStopping("prior", patience=0)


def test_early_stopping_waits_for_the_stage_that_measures():
    model = estimator(40, "gedi-two-stage").fit(X, callbacks=[EarlyStopping("prior", patience=1, min_change=1e9)])
    assert model.n_iter_ == 30, "measured from iteration 25 on"


# loggers


def test_a_file_of_json_lines_holds_every_measurement(tmp_path):
    path = tmp_path / "new" / "metrics.jsonl"
    model = estimator(20, "gedi-two-stage").fit(X, callbacks=[JSONLLogger(path)])
    assert [json.loads(line) for line in path.read_text().splitlines()] == model.history_
    estimator(10).fit(X, callbacks=[JSONLLogger(path)])
    assert len(path.read_text().splitlines()) == 2, "another fit begins another file"


def test_a_table_holds_every_measurement_of_every_stage(tmp_path):
    path = tmp_path / "metrics.csv"
    model = estimator(20, "gedi-two-stage").fit(X, callbacks=[CSVLogger(path)])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = [{name: float(value) for name, value in row.items() if value != ""} for row in rows]
    assert found == [{name: float(value) for name, value in row.items()} for row in model.history_]
    assert "generative" in found[0] and "invariance" in found[-1]
    assert path.read_text().count("iteration") == 1, "one line of names"


@pytest.mark.parametrize("kind", [CSVLogger, JSONLLogger])
def test_a_fit_that_goes_on_is_added_to_its_file(kind, tmp_path):
    class Keeper(Callback):
        kept = None

        def on_checkpoint(self, fit):
            if fit.iteration == 10:
                copies = {name: tensor.clone() for name, tensor in fit.state.tensors().items()}
                self.kept = (copies, fit.state.meta())
            return False

    path, keeper = tmp_path / "metrics", Keeper()
    asked = plan(DataProfile.of(X), Asked(2, "gedi-two-stage", config={**SMALL, "optimiser.iterations": 20}))
    execution = Execution(device="cpu", log_every=5)
    fit(asked, X, execution=execution, callbacks=[kind(path), keeper])
    whole = path.read_text().splitlines()
    shorter = [
        line for line in whole if not line.startswith(("15,", "20,", '{"iteration": 15', '{"iteration": 20'))
    ]
    path.write_text("\n".join(shorter) + "\n")
    fit(asked, X, execution=execution, callbacks=[kind(path)], checkpoint=keeper.kept)
    assert path.read_text().splitlines() == whole


def test_a_file_is_closed_and_readable_while_it_is_written(tmp_path):
    path = tmp_path / "metrics.csv"
    logger = CSVLogger(path)
    seen = []

    class Reader(Callback):
        def on_metrics(self, fit, metrics):  # noqa: ARG002
            seen.append(len(path.read_text().splitlines()))

    estimator(15).fit(X, callbacks=[logger, Reader()])
    assert seen == [2, 3, 4]
    assert logger.file is None


def test_tensorboard_is_asked_for_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(
        UsageError, match=r"TensorBoardLogger needs tensorboard: pip install 'gedikit\[tensorboard\]'"
    ):
        estimator(5).fit(X, callbacks=[TensorBoardLogger(tmp_path)])


def test_tensorboard_gets_every_measurement(tmp_path):
    pytest.importorskip("tensorboard", reason="needs gedikit[tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = estimator(20).fit(X, callbacks=[TensorBoardLogger(tmp_path)])
    assert list(tmp_path.glob("events.out.tfevents.*"))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    prior = events.Scalars("prior")
    assert [event.step for event in prior] == [5, 10, 15, 20]
    assert [event.value for event in prior] == pytest.approx([row["prior"] for row in model.history_])


def test_tensorboard_writes_scalars_and_events(tmp_path, monkeypatch):
    """The same by a writer that only remembers, where tensorboard is not installed."""
    import types

    written = []

    class Writer:
        def __init__(self, directory):
            written.append(("open", directory))

        def add_scalar(self, name, value, step):
            written.append((name, value, step))

        def add_text(self, name, text):
            written.append((name, text))

        def close(self):
            written.append(("close",))

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    model = estimator(20).fit(X, callbacks=[TensorBoardLogger(tmp_path), StopAt(12)])
    assert written[0] == ("open", str(tmp_path)) and written[-1] == ("close",)
    assert ("prior", model.history_[1]["prior"], 10) in written
    assert ("events", "iteration 13: enough") in written
    assert not any(entry[0] == "iteration" for entry in written)


def test_rollbacks_are_events():
    seen = Recorder()
    config = {"optimiser.max_rollbacks": 1, "optimiser.learning_rate": 1e9, "execution.log_every": 1}
    model = estimator(300, **config)
    with pytest.raises(DivergenceError, match="training diverged at iteration"):
        model.fit(X, callbacks=[seen])
    assert sum("went back to iteration" in name for name in seen.names()) == 1
    assert "end" not in seen.names(), "there is no model"


# Ctrl-C

CTRL_C = """
import os, signal, sys, warnings
import numpy as np
from gedikit import GEDI
from gedikit.callbacks import Callback
from gedikit.data.toy import moons


class Presses(Callback):
    def on_step(self, fit):
        if fit.iteration == 7:
            for _ in range({times}):
                os.kill(os.getpid(), signal.SIGINT)


before = signal.getsignal(signal.SIGINT)
model = GEDI(2, max_iter=100_000, random_state=0, device="cpu", config={{"execution.log_every": 1000}})
x = moons(100, 0)[0]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        model.fit(x, callbacks=[Presses()])
    except KeyboardInterrupt:
        print("aborted", hasattr(model, "fitted_"))
    else:
        print("fitted", model.n_iter_, np.isfinite(model.score_samples(x)).all())
for warning in caught:
    print(type(warning.message).__name__, warning.message)
print(signal.getsignal(signal.SIGINT) is before)
"""


def press(times: int) -> list[str]:
    """Run a fit in a process of its own that sends itself SIGINT in its seventh iteration."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-c", CTRL_C.format(times=times)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_ctrl_c_ends_a_fit_with_a_model_and_a_warning():
    told = press(1)
    assert told[0] == "fitted 8 True", "at the next iteration, however rarely it measures"
    assert told[1].startswith("GediWarning interrupted at iteration 8 of 100000")
    assert told[2] == "True", "the handler of before is back"


def test_a_second_ctrl_c_aborts():
    """Where the fit does not get to its next measurement in between."""
    told = press(2)
    assert told == ["aborted False", "True"], "no model, and the handler of before is back"


def test_a_fit_in_a_thread_leaves_signals_alone():
    import threading

    before = signal.getsignal(signal.SIGINT)
    found = []
    thread = threading.Thread(target=lambda: found.append(estimator(5).fit(X)))
    thread.start()
    thread.join()
    assert found[0].n_iter_ == 5
    assert signal.getsignal(signal.SIGINT) is before
