"""Groups of images that a fit starts from: by pixels or outlines, without copies, and only where they are clear."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from drawn_pictures import KINDS, SIDE, drawn
from gedikit import GEDI, image_descriptors, image_graphs, starts
from gedikit.known import Known
from gedikit.objectives.base import TrainingData
from gedikit.objectives.pseudo_labels import PseudoLabels
from gedikit.partitions import choose_number
from gedikit.planning import Asked, Plan, plan
from gedikit.profile import DataProfile
from gedikit.starts import ImageStarts, Starts
from gedikit.views.neighbours import neighbour_graph

SHAPE = (SIDE, SIDE, 1)


@pytest.fixture(autouse=True)
def few_copies(monkeypatch):
    monkeypatch.setattr(image_graphs, "_MOST_COPIES", 8)


def rows(pictures: np.ndarray) -> np.ndarray:
    return pictures.reshape(len(pictures), -1)


def looked_at(pictures: np.ndarray, seed: int = 0, known: Known | None = None) -> ImageStarts:
    return Starts(rows(pictures), seed, known=known).of_images(SHAPE, None)


def noise(n: int = 64) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, SIDE, SIDE), dtype=np.uint8)


def planned(pictures: np.ndarray, looked_for: Starts | None = None, **given) -> Plan:
    x = rows(pictures)
    return plan(DataProfile.of(x, SHAPE), Asked(**given), looked_for or Starts(x, 0))


def reasons(made: Plan) -> dict[str, tuple[str, str]]:
    return {decision.what: (decision.choice, decision.reason) for decision in made.decisions}


# partitions


def test_kinds_of_pictures_are_found_with_their_number_and_shares():
    pictures, kinds = drawn()
    start = looked_at(pictures).find_number()
    assert start.n_clusters == start.number.n_clusters == 3
    assert adjusted_rand_score(kinds, start.labels) == 1
    np.testing.assert_allclose(start.shares, np.array(KINDS) / sum(KINDS))
    assert start.believed


def test_a_kind_of_few_pictures_is_found_where_methods_agree_on_it():
    pictures, kinds = drawn((40, 20, 8))
    images = looked_at(pictures)
    by_dips = [choose_number(None, seed=0, graph=graph) for graph in images.graphs.by.values()]
    assert [found.n_clusters for found in by_dips] == [2, 2], "their dip alone could be chance"
    start = images.find_number()
    assert adjusted_rand_score(kinds, start.labels) > 0.95
    assert (start.number.n_clusters, start.number.runner_up) == (3, 2)
    assert start.number.curve[3] == start.number.threshold
    assert start.number.margin == 0, "none could be less sure"


def test_pictures_dark_on_bright_and_bright_on_dark_are_alike_by_their_outlines():
    pictures, kinds = drawn(inverted=True)
    start = looked_at(pictures).find(3)
    assert start.similarity == "outlines"
    assert adjusted_rand_score(kinds, start.labels) == 1
    assert start.believed


def test_pictures_without_kinds_have_no_number_and_no_partition_to_believe():
    images = looked_at(noise())
    assert images.find_number() is None
    assert not images.find(3).believed
    assert images.graphs.likeness < 0.5


def test_pictures_of_one_kind_are_one_group():
    images = looked_at(drawn((60,))[0])
    assert images.graphs.likeness > 0.8
    start = images.find_number()
    assert start.n_clusters == 1
    assert not start.believed, "there is nothing to learn from it"


def test_a_number_that_was_found_is_the_same_start_as_that_number_given():
    """A run that goes on from a checkpoint knows the number only."""
    pictures, _ = drawn()
    images = looked_at(pictures)
    found = images.find_number()
    assert images.find(3) is found
    given = looked_at(pictures).find(3)
    assert given.number is None
    np.testing.assert_array_equal(found.labels, given.labels)
    assert (found.similarity, found.choice.chosen.name) == (given.similarity, given.choice.chosen.name)


def test_each_start_is_found_once(monkeypatch):
    pictures, _ = drawn()
    calls = []
    choose = starts.choose_partition
    monkeypatch.setattr(
        starts, "choose_partition", lambda points, k, **given: calls.append(k) or choose(points, k, **given)
    )
    of_rows = Starts(rows(pictures), 0)
    images = of_rows.of_images(SHAPE, None)
    assert of_rows.of_images(SHAPE, None) is images
    assert of_rows.of_images(SHAPE, -1.0) is not images, "other surroundings, other likeness"
    assert images.find(3) is images.find(3)
    assert images.find(3, [0.5, 0.3, 0.2]) is not images.find(3)
    assert calls == [3] * 4, "by pixels and by outlines, without shares and with them"


def test_a_known_label_is_the_group_of_its_picture():
    pictures, kinds = drawn()
    labels = np.full(len(kinds), -1)
    first = [int(np.flatnonzero(kinds == kind)[0]) for kind in range(3)]
    labels[first] = [2, 0, 1]
    start = looked_at(pictures, known=Known.of(len(kinds), partial_labels=labels)).find(3)
    np.testing.assert_array_equal(start.labels, np.array([2, 0, 1])[kinds])


# graphs


def with_copies(n: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pictures, their kinds, and which of them are saved-again copies of the first."""
    pictures, kinds = drawn()
    rng = np.random.default_rng(1)
    again = np.clip(pictures[:1] + rng.integers(-2, 3, (n, SIDE, SIDE)), 0, 255).astype(np.uint8)
    order = rng.permutation(len(pictures) + n)
    every, of_every = np.concatenate([pictures, again])[order], np.concatenate([kinds, np.repeat(kinds[0], n)])
    return every, of_every[order], order >= len(pictures)


def test_copies_of_a_picture_count_once_and_go_where_it_goes():
    pictures, kinds, copies = with_copies()
    images = looked_at(pictures)
    assert images.graphs.near_duplicates == 12
    assert len(images.graphs.rows) == len(pictures) - 12
    start = images.find_number()
    assert start.n_clusters == 3, "copies are no group of their own"
    assert adjusted_rand_score(kinds, start.labels) == 1
    heap = images.graphs.by["pixels"].anchor[copies]
    assert len(np.unique(heap)) == 1


def test_many_pictures_are_stood_for_by_some(monkeypatch):
    monkeypatch.setattr(image_graphs, "MAX_ANCHORS", 40)
    pictures, kinds = drawn((100, 70, 50))
    images = looked_at(pictures)
    seen = images.graphs
    assert len(seen.rows) == 40
    for graph in seen.by.values():
        assert graph.weights.shape == (40, 40)
        np.testing.assert_array_equal(graph.anchor[graph.rows], np.arange(40))
    assert adjusted_rand_score(kinds, images.find(3).labels) == 1, "the others go with the one most like them"


def test_fewer_copies_are_compared_the_more_pictures_there_are(monkeypatch):
    monkeypatch.setattr(image_graphs, "_MOST_COPIES", 48)
    compared = []
    nearest = image_graphs.nearest_images

    def noted(images, k, moves, copies, by):
        compared.append((by, copies))
        return nearest(images, k, moves, 0, by)

    monkeypatch.setattr(image_graphs, "nearest_images", noted)
    for n in (64, 1000):
        image_graphs.image_graphs(rows(noise(n)), SHAPE, None, 0)
    assert compared == [("pixels", 48), ("outlines", 48), ("pixels", 24), ("outlines", 24)]


def test_too_few_different_pictures_are_not_looked_at():
    pictures, _ = drawn()
    images = looked_at(pictures[:19])
    assert not images.can_be(2) and images.find_number() is None
    assert looked_at(pictures).can_be(32) and not looked_at(pictures).can_be(33)
    same = looked_at(np.repeat(pictures[:1], 30, axis=0))
    assert same.graphs.near_duplicates == 29
    assert same.find_number() is None


# plans


def test_clear_kinds_of_pictures_are_what_a_fit_starts_from():
    pictures, _ = drawn()
    made = planned(pictures)
    assert (made.n_clusters, made.shares) == (3, "auto")
    assert made.agreement is None
    np.testing.assert_allclose(made.prior, np.array(KINDS) / sum(KINDS))
    assert reasons(made)["prior"][1].endswith(": 47%, 31%, 22%")
    assert "next would be" in reasons(made)["n_clusters"][1]
    assert [(stage.until, "pseudo-labels" in stage.terms) for stage in made.stages] == [(0.7, True), (1, False)]
    assert made.config.objectives["pseudo-labels"].started
    assert made.config.views.walks and (made.config.views.hold, made.config.views.end) == (0.0, 0.01)
    uniform = planned(pictures, n_clusters=3, prior="uniform")
    assert made.config.optimiser.iterations == round(0.4 * uniform.config.optimiser.iterations)
    assert GEDI(random_state=0).plan(pictures) == made, "these are the defaults"


def test_clear_kinds_of_pictures_in_colour_have_views_from_neighbours_and_no_crops():
    pictures, _ = drawn()
    colour = np.repeat(pictures[..., None], 3, axis=-1)
    x = colour.reshape(len(colour), -1)
    profile = DataProfile.of(x, colour.shape[1:])
    made = plan(profile, Asked(), Starts(x, 0))
    assert (made.n_clusters, made.shares) == (3, "auto")
    assert made.config.views.walks
    assert made.config.views.crop_area == (1.0, 1.0) and made.config.views.jitter == 0
    uniform = plan(profile, Asked(3, prior="uniform"), Starts(x, 0))
    assert not uniform.config.views.walks and uniform.config.views.crop_area == (0.3, 1.0)


def test_with_a_uniform_prior_images_are_not_looked_at(monkeypatch):
    pictures, _ = drawn()
    monkeypatch.setattr(starts, "image_graphs", lambda *_: pytest.fail("nothing was to be looked for"))
    made = planned(pictures, n_clusters=3, prior="uniform")
    without = plan(DataProfile.of(rows(pictures), SHAPE), Asked(3, prior="uniform"))
    assert made == without
    assert not made.config.objectives["pseudo-labels"].started


def test_unclear_pictures_have_the_plan_of_equal_shares():
    pictures = noise()
    made, uniform = planned(pictures, n_clusters=4), planned(pictures, n_clusters=4, prior="uniform")
    assert (made.stages, made.config, made.prior) == (uniform.stages, uniform.config, uniform.prior)
    assert reasons(made)["prior"] == (
        "uniform",
        "no partition of the images is clear enough to take shares from",
    )
    assert made.agreement == looked_at(pictures).find(4).choice.chosen.agreement < 0.85
    assert Plan.from_tree(made.tree()).agreement == made.agreement
    number = planned(pictures)
    assert number.n_clusters == 8
    assert reasons(number)["n_clusters"] == ("8", "nothing in their pixels parts these images: give n_clusters")


def test_a_given_prior_is_looked_for_among_pictures():
    pictures, _ = drawn()
    prior = np.array(KINDS)[[2, 0, 1]] / sum(KINDS)
    made = planned(pictures, n_clusters=3, prior=prior)
    assert made.shares == "given"
    np.testing.assert_allclose(made.prior, prior)
    assert made.config.objectives["pseudo-labels"].started


def test_near_duplicates_are_told_once():
    told = [d for d in planned(with_copies()[0]).decisions if d.what == "near-duplicates"]
    assert [decision.choice for decision in told] == ["12"]
    assert "count once" in told[0].reason
    assert "near-duplicates" not in reasons(planned(drawn()[0]))


def test_a_method_that_looks_for_equal_shares_does_not_look_at_images(monkeypatch):
    monkeypatch.setattr(starts, "image_graphs", lambda *_: pytest.fail("nothing was to be looked for"))
    assert planned(drawn()[0], n_clusters=3, method="swav").shares == "uniform"


# fits


def test_targets_of_images_are_the_start_where_it_is_clear_and_else_clusters_of_the_graph():
    points = np.repeat(np.eye(2) * 9, 20, axis=0) + np.random.default_rng(0).normal(size=(40, 2))
    graph = neighbour_graph(points.astype(np.float32), torch.Generator().manual_seed(0))
    start = (np.arange(40) % 2).astype(np.int64)

    def targets(**settings) -> np.ndarray:
        data = TrainingData(
            *(40, np.array([0.5, 0.5]), 0, torch.device("cpu"), lambda: graph),
            points=lambda *_: pytest.fail("there are no links"),
            partition=lambda: start,
            images=True,
        )
        return PseudoLabels(**settings).bind(data)._targets.argmax(-1).numpy()

    np.testing.assert_array_equal(targets(started=True), start)
    assert adjusted_rand_score(np.repeat([0, 1], 20), targets()) == 1


def test_a_verdict_on_pictures_without_clear_kinds_is_uncertain_at_best():
    small = {"encoder.width": 8, "optimiser.warmup": 2, "optimiser.batch_size": 32}
    model = GEDI(2, method="gedi-no-gen", max_iter=4, config=small, random_state=0).fit(noise(40))
    numbers = model.diagnose().numbers
    assert numbers["start_agreement"] == model.plan_.agreement < 0.6
    assert "kept_of_start" not in numbers, "nothing started from it"
    assert not model.diagnose().healthy


def test_a_fit_learns_the_kinds_and_predicts_those_of_new_pictures():
    pictures, kinds = drawn()
    new, of_new = drawn(seed=1)
    small = {"encoder.width": 16, "optimiser.warmup": 5}
    model = GEDI(method="gedi-no-gen", max_iter=60, learning_rate=2e-3, config=small, random_state=0).fit(pictures)
    assert adjusted_rand_score(kinds, model.labels_) > 0.95
    assert adjusted_rand_score(of_new, model.predict(new)) > 0.9
    np.testing.assert_array_equal(np.bincount(model.labels_), KINDS)
    numbers = model.diagnose().numbers
    assert numbers["start_agreement"] > 0.9 and numbers["kept_of_start"] > 0.95


# descriptors


def test_descriptors_know_directions_of_edges_and_shares_of_colours():
    lying, standing = np.full((2, SIDE, SIDE, 1), 220, dtype=np.uint8)
    lying[8:], standing[:, 8:] = 30, 30
    directions = image_descriptors._directions(np.stack([lying, standing])).reshape(2, 8, 4, 4)
    assert directions[0, 4].any() and not np.delete(directions[0], 4, axis=0).any(), "edges that run across"
    assert directions[1, 0].any() and not np.delete(directions[1], 0, axis=0).any(), "edges that run down"
    np.testing.assert_allclose(np.linalg.norm(directions.reshape(2, -1) ** 2, axis=1), 1, rtol=1e-5)
    colour = np.zeros((1, SIDE, SIDE, 3), dtype=np.uint8)
    colour[:, :4] = (
        255,
        0,
        51,
    )  # a quarter; 51 is four fifths of the way to the second shade
    shares = image_descriptors._colours(colour).reshape(5, 3) ** 2
    np.testing.assert_allclose(shares[:, 0], [0.75, 0, 0, 0, 0.25])
    np.testing.assert_allclose(shares[:, 1], [1, 0, 0, 0, 0])
    np.testing.assert_allclose(shares[:, 2], [0.8, 0.2, 0, 0, 0])


def test_a_start_by_descriptors_is_learned_without_walks(monkeypatch):
    """Pictures of one kind need not be alike in their pixels to have the same layout."""
    monkeypatch.setattr(starts, "MEASURES", {})
    made = planned(drawn()[0], n_clusters=3)
    assert made.config.objectives["pseudo-labels"].started and not made.config.views.walks
    assert "layout" in reasons(made)["views"][1]
