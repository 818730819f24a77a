import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gedikit import GEDI
from gedikit.data.toy import moons
from gedikit.errors import DataError, StorageError, UsageError
from gedikit.evaluation import grid_log_normaliser

SMALL_SAMPLER = {"sampler.bank": 2000, "sampler.samples": 64, "sampler.name": "importance"}


# batches are drawn by weight: equal in the mean and not bit for bit, as scikit-learn says of its own k-means
IN_EXPECTATION = {
    "check_sample_weight_equivalence_on_dense_data": "a weight repeats a row in expectation",
}


@parametrize_with_checks(
    [GEDI(n_clusters=3, max_iter=150, batch_size=64, config=SMALL_SAMPLER)],
    expected_failed_checks=lambda _: IN_EXPECTATION,
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def test_clusters_moons_that_k_means_cannot(fitted_moons):
    x, y = moons(500, 99)
    assert normalized_mutual_info_score(y, fitted_moons.predict(x)) > 0.95
    np.testing.assert_allclose(fitted_moons.predict_proba(x).sum(1), 1, atol=1e-6)
    assert (fitted_moons.predict_proba(x).argmax(1) == fitted_moons.predict(x)).all()


def test_scores_are_log_likelihoods(fitted_moons):
    """exp(score_samples) integrates to one over the domain, by quadrature."""
    low, high = fitted_moons.fitted_.bounds()
    assert fitted_moons.normalised_
    assert grid_log_normaliser(fitted_moons.score_samples, low, high) == pytest.approx(0, abs=0.05)


def test_outliers_score_lower_than_data_however_far(fitted_moons, moons_xy):
    data = fitted_moons.score_samples(moons_xy[0])
    far = np.array([[0.5, 0.25], [3.0, 3.0], [50.0, 0.0], [1e4, -1e4]])
    scores = fitted_moons.score_samples(far)
    assert scores.max() < np.quantile(data, 0.02)
    assert scores[1] > scores[2] > scores[3], "stranger the farther"
    assert fitted_moons.outlier_score(far).min() > 0.97
    assert np.median(fitted_moons.outlier_score(moons_xy[0])) == pytest.approx(0.5, abs=0.02)


def test_samples_look_like_data_and_carry_their_cluster(fitted_moons):
    x, y = fitted_moons.sample(300, random_state=0)
    assert x.shape == (300, 2)
    assert (fitted_moons.predict(x) == y).all()
    assert np.mean(fitted_moons.outlier_score(x) < 0.99) > 0.9
    assert 0.3 < fitted_moons.sample_info_["acceptance"] < 0.9
    for cluster in (0, 1):
        _, y = fitted_moons.sample(100, cluster=cluster, random_state=0)
        assert (y == cluster).mean() > 0.98


def test_samples_from_noise_find_the_data(fitted_moons):
    x, _ = fitted_moons.sample(300, start="noise", random_state=0)
    assert np.mean(fitted_moons.outlier_score(x) < 0.999) > 0.85


def test_same_seed_same_model_and_another_seed_another(moons_xy):
    fit = lambda seed: GEDI(2, max_iter=30, random_state=seed).fit(moons_xy[0]).score_samples(moons_xy[0])  # noqa: E731
    assert np.array_equal(fit(1), fit(1))
    assert not np.array_equal(fit(1), fit(2))


def test_units_do_not_matter(moons_xy):
    x = moons_xy[0]
    plain = GEDI(2, max_iter=150, random_state=0).fit(x)
    moved = GEDI(2, max_iter=150, random_state=0).fit(100 * x + 1e3)
    assert (plain.labels_ == moved.labels_).mean() > 0.99
    assert plain.score(x) - moved.score(100 * x + 1e3) == pytest.approx(2 * np.log(100), abs=0.05)


def test_a_given_prior_is_followed():
    x, _ = make_blobs(400, centers=[[0, 0]], random_state=0)
    model = GEDI(2, prior=[0.75, 0.25], max_iter=400, random_state=0).fit(x)
    assert np.bincount(model.labels_) == pytest.approx([300, 100], abs=20)
    assert model.history_[-1]["prior"] == pytest.approx(0.562, abs=0.02), "H(0.75, 0.25)"


def test_save_and_load_change_nothing(fitted_moons, moons_xy, tmp_path):
    x = moons_xy[0]
    fitted_moons.save(tmp_path / "model.safetensors")
    loaded = GEDI.load(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.score_samples(x), fitted_moons.score_samples(x))
    assert np.array_equal(loaded.predict_proba(x), fitted_moons.predict_proba(x))
    assert np.array_equal(loaded.sample(20, random_state=3)[0], fitted_moons.sample(20, random_state=3)[0])
    assert loaded.history_ == fitted_moons.history_
    assert loaded.diagnose().numbers == fitted_moons.diagnose().numbers
    again = clone(loaded).fit(x)
    assert np.array_equal(again.score_samples(x), fitted_moons.score_samples(x)), "parameters survive as well"


def test_damaged_files_are_named(fitted_moons, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted_moons.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StorageError, match=r"model\.safetensors is damaged"):
        GEDI.load(path)
    with pytest.raises(StorageError, match="there is no model"):
        GEDI.load(tmp_path / "nothing")


def test_works_in_a_pipeline_and_a_grid_search(moons_xy):
    x = moons_xy[0]
    labels = make_pipeline(StandardScaler(), GEDI(2, max_iter=200, random_state=0)).fit_predict(x)
    assert normalized_mutual_info_score(moons_xy[1], labels) > 0.9
    search = GridSearchCV(GEDI(2, random_state=0), {"max_iter": [1, 200]}, cv=2).fit(x)
    assert search.best_params_ == {"max_iter": 200}, "score is a held-out log-likelihood"


def test_transform_gives_features(fitted_moons, moons_xy):
    assert fitted_moons.transform(moons_xy[0]).shape == (400, 64)
    assert len(fitted_moons.get_feature_names_out()) == 64


def test_history_is_bounded_and_ends_with_the_last_iteration(moons_xy):
    model = GEDI(2, max_iter=40, config={"execution.log_every": 1}, random_state=0).fit(moons_xy[0])
    assert [row["iteration"] for row in model.history_] == list(range(1, 41))
    assert model.n_iter_ == 40


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"method": "gdi"}, UsageError, "'gdi'"),
        ({"config": {"objectives.invarance.weight": 1}}, UsageError, "'invarance'; did you mean 'invariance'"),
        ({"config": {"sampler.name": "hmc"}}, UsageError, "'hmc'"),
        ({"max_iter": 0}, UsageError, "iterations must be positive"),
        ({"views": "photo"}, UsageError, "'photo'; did you mean 'photos'"),
        ({"budget": "fast"}, UsageError, "'fast'; there are: quick, default, best"),
        ({"n_clusters": 0}, UsageError, "n_clusters must be at least 1"),
        ({"n_clusters": 500}, DataError, "n_samples=400 should be >= n_clusters=500"),
        ({"prior": [0.5, 0.6]}, UsageError, "sum to 1"),
        ({"prior": [0.2, 0.3, 0.5]}, UsageError, "each of 2 clusters"),
        ({"device": "cuda:77"}, UsageError, "'cuda:77'"),
    ],
)
def test_wrong_parameters_are_named(change, error, word, moons_xy):
    with pytest.raises(error, match=word):
        GEDI(**{"n_clusters": 2, **change}).fit(moons_xy[0])


def test_wrong_data_is_named(fitted_moons):
    with pytest.raises(DataError, match="column 'x1' has 1 infinite value in row 0"):
        GEDI(2).fit([[0.0, np.inf], [1.0, 2.0]])
    with pytest.raises(ValueError, match="1 sample"):
        GEDI(1).fit([[0.0, 1.0]])
    with pytest.raises(
        DataError, match=r"column 'x1' has gaps, the first in row 1, .* trained on an array without"
    ):
        fitted_moons.predict([[0.0, 1.0], [0.0, np.nan]])
    with pytest.raises(DataError, match="all rows are the same"):
        GEDI(2).fit(np.ones((10, 3)))
    with pytest.raises(DataError, match="NaN or infinite, the first in row 4"):
        GEDI(2).fit(np.where(np.arange(10)[:, None, None] < 4, 0.5, np.nan) * np.ones((10, 16, 16)))
    with pytest.raises(ValueError, match="X has 3 features, but GEDI is expecting 2"):
        fitted_moons.predict(np.ones((2, 3)))
    with pytest.raises(UsageError, match="cluster must lie between 0 and 1"):
        fitted_moons.sample(3, cluster=2)


def test_a_constant_column_does_no_harm(moons_xy):
    x = np.c_[moons_xy[0], np.full(400, 7.0)]
    model = GEDI(2, max_iter=300, random_state=0).fit(x)
    assert normalized_mutual_info_score(moons_xy[1], model.labels_) > 0.9
    assert np.isfinite(model.score_samples(x)).all()


@pytest.mark.parametrize("far", [5.0, 100.0])
def test_one_outlier_is_flagged_and_spoils_nothing(far, moons_xy):
    x = np.r_[moons_xy[0], [[far, far]]]
    model = GEDI(2, max_iter=500, random_state=0).fit(x)
    assert normalized_mutual_info_score(moons_xy[1], model.labels_[:-1]) > 0.95
    assert model.score_samples(x).argmin() == 400, "the outlier is the strangest row"


def test_rounded_and_repeated_rows_cluster_as_well(moons_xy):
    x = np.repeat(np.round(moons_xy[0], 1), 5, axis=0)
    model = GEDI(2, max_iter=500, random_state=0).fit(x)
    assert normalized_mutual_info_score(np.repeat(moons_xy[1], 5), model.labels_) > 0.95


def test_numbers_far_out_of_range_are_strange_not_undefined(fitted_moons):
    x = np.array([[1e39, 0.0], [0.0, -1e300]])
    assert np.isfinite(fitted_moons.predict_proba(x)).all()
    assert (fitted_moons.outlier_score(x) == 1).all()


def test_a_model_without_density_refuses_to_sample(moons_xy):
    model = GEDI(2, method="gedi-no-gen", max_iter=5, random_state=0).fit(moons_xy[0])
    with pytest.raises(UsageError, match="learns no density"):
        model.sample(3)


def test_column_names_survive_saving(moons_xy, tmp_path):
    frame = pd.DataFrame(moons_xy[0], columns=["a", "b"])
    model = GEDI(2, max_iter=5, random_state=0).fit(frame)
    model.save(tmp_path / "m.safetensors")
    loaded = GEDI.load(tmp_path / "m.safetensors")
    assert loaded.feature_names_in_.tolist() == ["a", "b"]
    assert np.array_equal(loaded.labels_, model.labels_)
    with pytest.raises(DataError, match="X lacks the column 'a'"):
        loaded.predict(frame.rename(columns={"a": "c"}))


@pytest.mark.parametrize(
    "given", [{"views": "photos"}, {"views": "drawings"}, {"config": {"views.walks": False}}, {"budget": "best"}]
)
def test_a_model_of_images_keeps_its_settings_in_a_file(given, tmp_path):
    """Also those by which it differs from what grey images get, but not from what vectors do."""
    x = np.random.default_rng(0).integers(0, 256, (40, 16, 16), dtype=np.uint8)
    small = {"encoder.width": 4, "sampler.steps": 1, "sampler.chains": 20, "sampler.samples": 8}
    small |= {"similarity.copies": 2, **given.get("config", {})}
    model = GEDI(2, max_iter=2, batch_size=16, random_state=0, device="cpu", **{**given, "config": small}).fit(x)
    model.save(tmp_path / "model.safetensors")
    again = GEDI.load(tmp_path / "model.safetensors", device="cpu")
    assert again.plan_ == model.plan_ == model.plan(x)
    assert again.plan(x).config == model.plan_.config, "a fit of what was read would be the same fit"
    assert again.plan(x).stages == model.plan_.stages


def test_the_plan_is_what_a_fit_does(moons_xy):
    model = GEDI(2, max_iter=3, random_state=0, config={"objectives.prior.weight": 3})
    made = model.plan(moons_xy[0])
    assert not hasattr(model, "fitted_") and not hasattr(model, "n_features_in_")
    assert model.fit(moons_xy[0]).plan_ == made
    assert made.config.optimiser.iterations == 3
    assert made.config.objectives["prior"].weight == 3
    with pytest.raises(ValueError, match="2D array"):
        model.plan(moons_xy[0][:, 0])


def test_callbacks_reach_every_way_to_fit(moons_xy):
    from gedikit.callbacks import Callback

    class Counter(Callback):
        steps = 0

        def on_step(self, fit):  # noqa: ARG002
            Counter.steps += 1

    GEDI(2, max_iter=3, random_state=0).fit(moons_xy[0], callbacks=[Counter()])
    GEDI(2, max_iter=4, random_state=0).fit_predict(moons_xy[0], callbacks=[Counter()])
    assert Counter.steps == 7
