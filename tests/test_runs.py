"""Run directories: what their files hold and how they are read again, unbroken and broken."""

import dataclasses
import json
import math
import signal
import tomllib

import pytest

from gedikit.config import Execution
from gedikit.data.sources import ShardReading
from gedikit.data.toy import moons
from gedikit.errors import StorageError, UsageError
from gedikit.planning import Asked, plan
from gedikit.profile import DataProfile
from gedikit.runs import Run, RunConfig, RunRecorder, to_toml
from gedikit.storage import FORMAT
from gedikit.training.callbacks import FitView
from gedikit.training.state import TrainState


def made(asked: Asked | None = None, **changes) -> RunConfig:
    config = RunConfig(
        source="moons",
        data_seed=3,
        columns=("a", 'b "quoted" \\ é'),
        image_shape=(),
        fingerprint="0123456789abcdef",
        imports=(),
        plan=plan(DataProfile.of(moons(100, 0)[0]), asked or Asked(2, seed=3)),
        execution=Execution(log_every=10),
    )
    return dataclasses.replace(config, **changes)


class State(TrainState):
    """How far a fit is, and nothing else."""

    def __init__(self, iteration: int):
        self.iteration = iteration


def view(config: RunConfig, iteration: int) -> FitView:
    return FitView(config.plan, State(iteration), {})


ASKED = {
    "vectors": Asked(2, seed=3),
    "no density": Asked(4, "gedi-no-gen", prior=[0.4, 0.3, 0.2, 0.1]),
    "stages": Asked(2, "gedi-two-stage", config={"objectives.prior.weight": 1e-5}),
    "a flow": Asked(2, "swav+flow", budget="quick"),
    "a recipe": Asked(2, "gedi-as-printed"),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_what_determines_a_run_is_read_as_it_was_written(asked, tmp_path):
    config = made(asked)
    Run(tmp_path).create(config)
    assert Run(tmp_path).config() == config


def test_pictures_come_back_with_their_views(tmp_path):
    profile = DataProfile(100, 768, (16, 16, 3), mirrored=0.5, border=-1.0)
    config = made(plan=plan(profile, Asked(3, views="photos")), image_shape=(16, 16, 3))
    Run(tmp_path).create(config)
    again = Run(tmp_path).config()
    assert again == config
    assert again.plan.config.views.fill is None and again.plan.data == profile


def test_the_file_has_a_section_for_each_part_of_the_plan(tmp_path):
    config = made()
    Run(tmp_path).create(config)
    table = tomllib.loads((tmp_path / "config.toml").read_text(encoding="utf-8"))
    assert table["format"] == FORMAT
    assert table["plan"]["profile"] == {"n_rows": 100, "n_features": 2, "image_shape": []}
    assert {section: table[section] for section in config.plan.config.tree()} == config.plan.config.tree()
    assert Execution.of(table["execution"]) == config.execution
    assert [stage["terms"] for stage in table["stages"]] == [["generative", "invariance", "prior"]]
    assert all(set(decision) == {"what", "choice", "reason"} for decision in table["decisions"])


def test_toml_of_anything_that_settings_can_be():
    table = {
        "text": 'a "b" \\ \n \x7f é 😀',
        "true": True,
        "whole": -3,
        "number": 1e-05,
        "list": [1, [2.5, "x"], []],
        "infinite": [math.inf, -math.inf],
        "a b.c": 1,
        "part": {"x": 1, "in.ner": {"": "empty"}, "nothing": {}},
        "rows": [{"a": 1}, {"a": 2, "b c": "d"}],
    }
    assert tomllib.loads(to_toml(table)) == table
    assert math.isnan(tomllib.loads(to_toml({"x": math.nan}))["x"])
    assert tomllib.loads(to_toml({"x": None, "y": [None]})) == {"x": "none", "y": ["none"]}


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ("format = 2", "format = 99", StorageError, "newer than"),
        ("format = 2", "format = 0", StorageError, "older than"),
        ("format = 2\n", "", StorageError, "was not written by gedikit"),
        ('source = "moons"\n', "", StorageError, "source is missing"),
        ("[sampler]", "[sampling]", StorageError, "sampler is missing"),
        ("batch_size = 100", "batch_size = 0", UsageError, "batch_size must be positive"),
        ("batch_size = 100", "batch_sizes = 100", UsageError, "'batch_sizes'; did you mean 'batch_size'"),
        ('name = "importance"', 'name = "sorcery"', UsageError, "sampler 'sorcery'"),
        ("[plan]", "[plan", StorageError, "config.toml is damaged"),
    ],
)
def test_what_is_wrong_with_a_file_is_a_sentence(old, new, error, words, tmp_path):
    Run(tmp_path).create(made())
    text = (tmp_path / "config.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "config.toml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(error, match=words):
        Run(tmp_path).config()


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ("memory = 5", 'memory = "a"', StorageError, "damaged"),
        ("memory = 5", "memory = 0.5", StorageError, "damaged"),
        ("memory = 5\n", "", StorageError, "memory is missing"),
        ('bad = "skip"', 'bad = "anything"', UsageError, "takes skip or stop, not 'anything'"),
        ('bad = "skip"', "bad = 1", UsageError, "takes skip or stop, not 1"),
    ],
)
def test_how_shards_are_read_is_checked(old, new, error, words, tmp_path):
    Run(tmp_path).create(made(shards=ShardReading(5, "skip")))
    text = (tmp_path / "config.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "config.toml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(error, match=words):
        Run(tmp_path).config()
    foreign = text.replace("[shards]", '[shards]\nindex = "/elsewhere"')
    (tmp_path / "config.toml").write_text(foreign, encoding="utf-8")
    assert Run(tmp_path).config().shards == ShardReading(5, "skip", None), "a run cannot say where to write"


def test_what_is_no_run_is_told_apart(tmp_path):
    with pytest.raises(UsageError, match="there is no run directory"):
        Run(tmp_path / "absent").config()
    with pytest.raises(UsageError, match=r"is not a run directory: it has no config\.toml"):
        Run(tmp_path).config()
    Run(tmp_path).create(made())
    with pytest.raises(UsageError, match="already holds a run: add --resume"):
        Run(tmp_path).create(made())


def test_removing_a_run_leaves_what_is_not_of_it(tmp_path):
    run = Run(tmp_path / "run")
    run.create(made())
    (run.path / "checkpoints").mkdir()
    for path in (run.metrics_path, run.model_path, run.path / "checkpoints" / "step-000000001.safetensors"):
        path.touch()
    (run.path / "notes.txt").touch()
    with run.locked() as lock:
        run.remove_if_nothing_was_done(lock)
    assert run.exists, "something was done"
    run.remove()
    assert [path.name for path in run.path.iterdir()] == ["notes.txt"]
    with pytest.raises(UsageError):
        run.remove()
    with run.locked() as lock:
        run.create(made())
        run.remove_if_nothing_was_done(lock)
    assert [path.name for path in run.path.iterdir()] == ["notes.txt"]


def test_a_history_is_cut_back_to_the_checkpoint(tmp_path):
    run = Run(tmp_path)
    run.metrics_path.write_text(
        "".join(f'{{"iteration": {i}, "prior": {i / 10}}}\n' for i in (10, 20, 30)) + '{"it'
    )
    run.evaluations_path.write_text('{"iteration": 20, "nmi": 0.5}\n{"iteration": 30, "nmi": 0.6}\n')
    assert [row["iteration"] for row in run.history().rows] == [10, 20, 30]
    assert [row["iteration"] for row in run.history(up_to=20).rows] == [10, 20]
    assert [json.loads(line)["iteration"] for line in run.metrics_path.read_text().splitlines()] == [10, 20]
    assert run.evaluations() == [{"iteration": 20, "nmi": 0.5}]


def test_a_history_with_a_damaged_line_is_refused(tmp_path):
    """Only the last line can have been cut short; all behind another one would be lost without a word."""
    run = Run(tmp_path)
    whole = "".join(f'{{"iteration": {i}}}\n' for i in (10, 20, 30))
    run.metrics_path.write_text(whole.replace('{"iteration": 20', '{"iteration" 20'))
    for up_to in (None, 30):
        with pytest.raises(StorageError, match=r"metrics\.jsonl is damaged: line 2 is no measurement"):
            run.history(up_to=up_to)
    assert "30" in run.metrics_path.read_text()


def test_a_measurement_that_only_an_interruption_made_is_not_kept(tmp_path):
    """A run that was stopped and resumed has the history of one that was not."""
    run, config = Run(tmp_path), made(Asked(2, config={"optimiser.iterations": 45}))
    with run.locked() as lock:
        recorder = RunRecorder(run, config, lock)
        for iteration, interrupted in ((10, False), (13, True), (20, True), (45, True)):
            fit = view(config, iteration)
            fit.interrupted = interrupted
            recorder.on_metrics(fit, {"iteration": iteration})
    assert [row["iteration"] for row in run.history().rows] == [10, 20, 45]


def test_the_first_signal_asks_and_ctrl_c_after_it_aborts(tmp_path, capfd):
    config = made()
    fit = view(config, 0)
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Run(tmp_path).locked() as lock, RunRecorder(Run(tmp_path), config, lock) as recorder:
        recorder.on_start(fit)
        assert not fit.interrupted
        signal.raise_signal(signal.SIGTERM)
        assert fit.interrupted
        assert "stopping after a checkpoint" in capfd.readouterr().err
        signal.raise_signal(signal.SIGTERM)  # from torchrun, which got one itself
        assert capfd.readouterr().err == ""
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
