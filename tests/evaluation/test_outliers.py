import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from gedikit.errors import DataError, UsageError
from gedikit.evaluation import (
    MADE_IMAGES,
    SCORES,
    confidence,
    constant_images,
    gradient_norm,
    interpolated_images,
    noise_images,
    ood_metrics,
    ood_scores,
    texture_images,
    typicality,
)

few_values = st.lists(st.integers(-4, 4), min_size=1, max_size=40).map(lambda v: np.array(v, float))


def measured(inside, outside):
    figures = ood_metrics(inside, outside, score="log_density", inside_name="a", outside_name="b")
    return {f.name.removeprefix("ood_"): f.value for f in figures}


def by_sklearn(inside, outside):
    scores = np.concatenate([inside, outside])
    is_inside = np.arange(len(scores)) < len(inside)
    false, true, _ = metrics.roc_curve(is_inside, scores, drop_intermediate=False)
    return {
        "auroc": metrics.roc_auc_score(is_inside, scores),
        "aupr_in": metrics.average_precision_score(is_inside, scores),
        "aupr_out": metrics.average_precision_score(~is_inside, -scores),
        "fpr95": false[true >= 0.95].min(),
    }


@given(few_values, few_values)
def test_figures_agree_with_sklearn_ties_included(inside, outside):
    assert measured(inside, outside) == pytest.approx(by_sklearn(inside, outside), abs=1e-12)


def test_figures_agree_with_sklearn_on_many_scores():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(1, 1, 3000), rng.normal(0, 2, 1000)
    ours = measured(inside, outside)
    assert ours == pytest.approx(by_sklearn(inside, outside), abs=1e-12)
    assert ours["auroc"] == pytest.approx(0.6726, abs=0.03)  # Φ(1/√5)


@given(few_values, few_values)
def test_only_the_order_of_scores_matters(inside, outside):
    assert measured(np.arctan(inside) * 3 - 7, np.arctan(outside) * 3 - 7) == measured(inside, outside)


@given(few_values, few_values)
def test_swapping_the_sides_turns_the_score_round(inside, outside):
    there, back, mirrored = measured(inside, outside), measured(outside, inside), measured(-outside, -inside)
    assert there["auroc"] == pytest.approx(1 - back["auroc"], abs=1e-12)
    assert there["auroc"] == pytest.approx(mirrored["auroc"], abs=1e-12)
    assert there["aupr_out"] == pytest.approx(mirrored["aupr_in"], abs=1e-12)


def test_values_by_hand():
    perfect = measured([3.0, np.inf], [1.0, -np.inf])
    assert perfect == {"auroc": 1.0, "aupr_in": 1.0, "aupr_out": 1.0, "fpr95": 0.0}
    useless = measured(np.zeros(30), np.zeros(10))
    assert useless == {"auroc": 0.5, "aupr_in": 0.75, "aupr_out": 0.25, "fpr95": 1.0}
    # 19 of 20 inside rows reach 1: exactly 95 %, so the row at −1 need not be accepted
    inside = np.append(np.arange(1.0, 20.0), -1.0)
    assert measured(inside, [0.0, 0.5, 1.0, 2.0])["fpr95"] == 0.5


def test_protocol_states_orientation_and_numbers():
    figures = ood_metrics([1.0, 2.0], [0.0], score="gradient_norm", inside_name="svhn", outside_name="noise")
    for figure in figures:
        assert figure.protocol["orientation"] == "larger is more in-distribution"
        assert (figure.protocol["n_inside"], figure.protocol["n_outside"]) == (2, 1)
        assert (figure.protocol["inside"], figure.protocol["outside"]) == ("svhn", "noise")
        assert figure.protocol["score_is"] == SCORES["gradient_norm"]
    assert [f.protocol["positive"] for f in figures] == ["inside", "inside", "outside", "inside"]


def test_bad_scores_are_refused_in_a_sentence():
    with pytest.raises(DataError, match="no scores of b: both sides"):
        measured([1.0], [])
    with pytest.raises(DataError, match="1 of 2 scores of a are not numbers"):
        measured([1.0, np.nan], [0.0])
    with pytest.raises(UsageError, match="one number a row"):
        measured(np.zeros((3, 2)), [0.0])


def test_scores_are_larger_inside():
    assert confidence(np.array([[0.2, 0.8], [0.5, 0.5]])) == pytest.approx([0.8, 0.5])
    gradients = np.stack([np.full((2, 2, 1), 3.0), np.zeros((2, 2, 1))])
    assert gradient_norm(gradients) == pytest.approx([-6.0, 0.0])
    log_density = np.random.default_rng(0).gamma(2.0, size=5000)
    quantiles = np.quantile(log_density, np.linspace(0, 1, 1001))
    rows = np.array([0.0, np.median(log_density), 50.0])
    expected = -np.abs(rows - np.median(log_density))
    assert typicality(rows, quantiles) == pytest.approx(expected, abs=1e-12)
    assert typicality(rows, log_density) == pytest.approx(expected, abs=1e-12)
    assert typicality(rows, log_density).argmax() == 1


def test_noise_covers_the_whole_range_evenly():
    images = noise_images(200, (8, 8, 3), 0)
    assert (images.dtype, images.shape) == (np.uint8, (200, 8, 8, 3))
    counts = np.bincount(images.ravel(), minlength=256)
    assert counts.min() > 90 and counts.max() < 220  # 150 expected
    assert (images == noise_images(200, (8, 8, 3), 0)).all()
    assert (images != noise_images(200, (8, 8, 3), 1)).any()


def test_constant_images_have_one_colour_each():
    images = constant_images(500, (4, 6, 3), 0)
    assert (images.dtype, images.shape) == (np.uint8, (500, 4, 6, 3))
    assert (images == images[:, :1, :1]).all()
    assert len(np.unique(images[:, 0, 0], axis=0)) > 490
    assert (images[:, 0, 0, 0] != images[:, 0, 0, 1]).mean() > 0.95


def test_interpolated_images_are_means_of_two_different_ones():
    bits = 2 ** np.arange(8)
    images = np.broadcast_to(bits[:, None, None, None], (8, 2, 2, 1)).astype(np.uint8)
    made = interpolated_images(images, 0)
    assert (made.dtype, made.shape) == (np.uint8, images.shape)
    pairs = {(a + b) // 2 for a in bits for b in bits if a != b}
    assert set(made[:, 0, 0, 0].tolist()) <= {int(p) for p in pairs}
    bright = interpolated_images(np.full((3, 1, 1, 1), 255, np.uint8), 0)
    assert (bright == 255).all()  # no overflow
    apart = np.array([0, 255], np.uint8).reshape(2, 1, 1, 1)
    assert (interpolated_images(apart, 3) == 127).all()  # never an image with itself
    with pytest.raises(DataError, match="at least two images, not 1"):
        interpolated_images(images[:1], 0)


def test_textures_fall_as_natural_images_do():
    made = texture_images(200, (32, 32, 3), seed=0).astype(float)
    amplitude = np.abs(np.fft.fft2(made - made.mean((1, 2), keepdims=True), axes=(1, 2))).mean((0, 3))
    assert amplitude[0, 2] / amplitude[0, 8] == pytest.approx(4, rel=0.1)
    assert np.corrcoef(made[..., 0].ravel(), made[..., 1].ravel())[0, 1] == pytest.approx(0.81 / 0.97, abs=0.03)


def test_made_images_are_as_many_and_as_large_as_those_they_are_made_for():
    images = noise_images(7, (8, 12, 3), seed=5)
    for name, make in MADE_IMAGES.items():
        made = make(images, 0)
        assert made.shape == images.shape and made.dtype == np.uint8, name
        assert not np.array_equal(made, make(images, 1)), name


def test_every_score_is_made_from_blocks_of_what_a_model_says():
    rng = np.random.default_rng(0)
    logits, log_density = rng.normal(size=(7, 3)), rng.normal(size=7)
    gradients = rng.normal(size=(7, 4)).astype(np.float32)
    blocks = [
        (torch.tensor(logits[rows]), torch.tensor(log_density[rows]), torch.tensor(gradients[rows]))
        for rows in (slice(0, 5), slice(5, 7))
    ]
    training = rng.normal(size=9)
    found = ood_scores(blocks, training)
    assert set(found) == set(SCORES)
    assert found["log_density"].tolist() == log_density.tolist()
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert found["confidence"] == pytest.approx(shares.max(1))
    assert found["gradient_norm"] == pytest.approx(-np.sqrt(np.square(gradients.astype(float)).sum(1)))
    assert found["typicality"] == pytest.approx(-np.abs(log_density - np.median(training)))
    runaway = [(blocks[0][0], blocks[0][1] * float("inf"), blocks[0][2])]
    with pytest.raises(DataError, match="log-densities are not finite"):
        ood_scores(runaway, training)
