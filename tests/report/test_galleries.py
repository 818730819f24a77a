"""The page about images: what it shows of each cluster, of outliers and of files, and how large it gets."""

import dataclasses
import re
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from gedikit.report import render
from gedikit.report.findings import Findings, find, plotted_rows
from gedikit.report.galleries import galleries, suspects
from gedikit.report.mosaics import Darkroom

SHAPE = (8, 8, 3)
FEW = {"sampler.samples": 32, "sampler.chains": 200}


@pytest.fixture(scope="module")
def photos(report_of):
    """Reddish, greenish and bluish images in files with names that are no good for a page."""
    rng = np.random.default_rng(0)
    tint = np.repeat(np.eye(3), 50, axis=0)[:, None, None] * 120
    x = np.clip(rng.normal(60 + tint, 20, (150, *SHAPE)), 0, 255).astype(np.uint8).reshape(150, -1)
    data = report_of(x, n_clusters=3, image_shape=SHAPE, config=FEW)
    names = tuple(f"a & b/<script>alert({i})</script>.png" for i in range(150))
    return dataclasses.replace(data, names=names)


@pytest.fixture(scope="module")
def digits(report_of):
    x, y = load_digits(return_X_y=True)
    return report_of(x[:300], y[:300], 10, image_shape=(8, 8, 1), config=FEW)


@pytest.fixture(scope="module")
def pages(photos, digits):
    return {"photos": render(photos), "digits": render(digits)}


def pretended(n, shape, n_clusters, *, empty=None):
    """Findings about noise, which no format can compress, and a model that generates more of it."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (n, int(np.prod(shape))), dtype=np.uint8)
    fitted = SimpleNamespace(
        sample=lambda count, **_: (rng.uniform(0, 255, (count, x.shape[1])), None), models_density=True
    )
    data = SimpleNamespace(images=x, pixels=None, fitted=fitted, row_name=str)
    clusters = np.arange(n) % n_clusters
    clusters[clusters == empty] = 0
    sizes = np.bincount(clusters, minlength=n_clusters)
    log_density = rng.normal(size=n)
    return data, Findings(clusters, log_density, log_density, np.linspace(0, 1, n), sizes)


def shown(data, found, shape):
    darkroom = Darkroom.of(data.images[plotted_rows(len(data.images))], shape)
    return galleries(data, found, darkroom), suspects(data, found, darkroom)


@pytest.mark.parametrize("name", ["photos", "digits"])
def test_nothing_points_outside_the_file(pages, name):
    references = re.findall(r'(?:src|href)\s*=\s*["\']?([^"\'> ]+)', pages[name])
    assert references and all(reference.startswith("data:") for reference in references)
    assert "<script" not in pages[name]


def test_each_cluster_shows_members_extremes_and_samples(pages, digits):
    html = pages["digits"]
    used = len(np.unique(digits.fitted.labels(digits.x)))
    for title, times in (("Closest", used), ("Most typical", used), ("Least typical", used), ("Generated", 10)):
        assert html.count(f'alt="{title} images of cluster') == times
    assert html.count("This cluster is empty") == 10 - used
    assert "image-rendering: pixelated" in html and "8×8 grey" in html


def test_without_density_there_is_nothing_generated_and_nothing_typical(report_of):
    x, _ = load_digits(return_X_y=True)
    html = render(report_of(x[:200], None, 3, image_shape=(8, 8, 1), method="gedi-no-gen"))
    assert "Closest images of cluster" in html
    for left_out in ("Generated", "Least typical", "Most typical", "Suspected outliers"):
        assert left_out not in html


def test_nearest_members_are_sorted_by_their_logit(digits):
    found = find(digits.fitted, digits.predictions)
    cluster = int(found.sizes.argmax())
    nearest = found.nearest(cluster, 5)
    logits = digits.fitted.network.logits(digits.fitted.to_scaled(digits.x)).detach().numpy()
    members = np.flatnonzero(logits.argmax(1) == cluster)
    np.testing.assert_array_equal(nearest, members[np.argsort(-logits[members, cluster])][:5])


def test_the_extremes_of_a_cluster_are_its_own_rows_of_lowest_and_highest_density(photos, pages):
    log_density, labels = photos.fitted.log_density(photos.x), photos.fitted.labels(photos.x)
    darkroom = Darkroom.of(photos.x, SHAPE)
    for k in np.unique(labels):
        members = np.flatnonzero(labels == k)
        by_density = members[np.argsort(log_density[members])]
        for title, rows, columns in (
            ("Least typical", by_density[:10], 10),
            ("Most typical", by_density[::-1][:5], 5),
        ):
            mosaic = darkroom.mosaic(photos.x[rows], columns)
            assert f'src="{mosaic.uri}" alt="{title} images of cluster {k}"' in pages["photos"]


def test_suspects_are_named_and_the_strangest_comes_first(photos, pages):
    log_density = photos.fitted.log_density(photos.x)
    listed = re.findall(r"<b>a &amp; b/&lt;script&gt;alert\((\d+)\)&lt;/script&gt;.png</b>", pages["photos"])
    assert [int(row) for row in listed] == np.argsort(log_density)[:24].tolist()
    first = pages["photos"].split('class="suspects"')[1].split("</li>")[0]
    row = int(log_density.argmin())
    assert Darkroom.of(photos.x, SHAPE).mosaic(photos.x[[row]], 1).uri in first
    strange = photos.fitted.outlier_score(photos.x)[row]
    assert f"cluster {photos.fitted.labels(photos.x)[row]}<" in first and f"outlier score {strange:.3f}" in first


def test_suspects_without_names_are_known_by_their_row(digits, pages):
    assert f"<b>row {digits.fitted.outlier_score(digits.x).argmax()}</b>" in pages["digits"]
    assert "Rows count from 0" in pages["digits"] and "Rows count from 0" not in pages["photos"]


def test_files_that_could_not_be_read_are_listed_with_their_reasons(photos):
    one = (("<script>.jpg", "cut & short"),)
    html = render(dataclasses.replace(photos, skipped=one, history=[]))
    assert "1 file could not be read and is left out" in html
    assert "<li>&lt;script&gt;.jpg <span>cut &amp; short</span></li>" in html and "more</span>" not in html
    html = render(dataclasses.replace(photos, skipped=one * 1234, history=[]))
    assert "1,234 files could not be read and are left out" in html
    assert html.count("<li>&lt;script&gt;.jpg") == 200 and "and 1,034 more" in html


def test_all_files_read_are_no_news(pages):
    assert "could not be read" not in pages["photos"]


@pytest.mark.usefixtures("unchecked")
def test_the_page_stays_small():
    data, found = pretended(1000, (32, 32, 3), 10)
    made, strange = shown(data, found, (32, 32, 3))
    mosaics = [strip.mosaic for item in made for stack in item.stacks for strip in stack]
    assert len(made) == 10 and len(mosaics) == 40
    assert sum(len(mosaic.uri) for mosaic in [*mosaics, *(item.image for item in strange)]) < 2.5e6


@pytest.mark.usefixtures("unchecked")
def test_of_many_clusters_the_largest_are_shown_and_an_empty_one_only_generates():
    data, found = pretended(100, (2, 2, 3), 30, empty=3)
    assert [item.cluster for item in shown(data, found, (2, 2, 3))[0]] == [k for k in range(25) if k != 3]
    data, found = pretended(100, (2, 2, 3), 5, empty=3)
    empty = shown(data, found, (2, 2, 3))[0][3]
    assert empty.size == 0 and [[strip.title for strip in stack] for stack in empty.stacks] == [["Generated"]]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("shape", "lines"), [((32, 32, 3), [3, 3]), ((96, 96, 3), [5, 4])])
def test_the_stacks_of_a_cluster_fit_side_by_side(shape, lines):
    data, found = pretended(80, shape, 1)
    stacks = shown(data, found, shape)[0][0].stacks
    assert sum(max(strip.mosaic.width for strip in stack) for stack in stacks) <= 990
    tile = Darkroom.of(data.images, shape).tile_width
    counts = {"Closest": 20, "Generated": 10, "Least typical": 10, "Most typical": 5}
    tall = [sum(-(-counts[s.title] // round(s.mosaic.width / tile)) for s in stack) for stack in stacks]
    assert tall == lines


@pytest.mark.usefixtures("unchecked")
def test_many_images_are_never_copied_at_once():
    data, found = pretended(20, (32, 32, 3), 4)
    data.images = np.zeros((20_000, 3072), dtype=np.uint8)
    tracemalloc.start()
    shown(data, found, (32, 32, 3))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < data.images.nbytes / 2
