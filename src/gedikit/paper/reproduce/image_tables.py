"""The tables of images from what is stored: clusters and samples, probes, other images told apart."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gedikit.evaluation import MADE_IMAGES
from gedikit.paper.reproduce.image_baselines import COMPONENTS, stored_baselines
from gedikit.paper.reproduce.image_measures import BATCHES, SCORES
from gedikit.paper.reproduce.image_runs import ImageFit, Place, learns_density, read_json, title_of
from gedikit.paper.reproduce.page import ResultTable, Section, write_page
from gedikit.paper.reproduce.paper import (
    COMPARISON,
    IMAGE_EPOCHS,
    IMAGE_FID,
    IMAGE_NMI,
    IMAGE_OOD,
    IMAGE_PROBE,
)
from gedikit.report.style import INK, new_figure, png

_NONE = "–"
_PAPERS = ("svhn", "cifar10", "cifar100")
_NOT_FITTED, _NOT_MEASURED = "not fitted", "not measured"
_NAMED = {"clusters": "clusters", "samples": "samples", "probe": "probes", "ood": "other images"}
_DRAWN = ("barlow-twins", "swav", "gedi-no-gen", "gedi")
_SCORE_TITLES = {
    "log_density": "log p(x)",
    "gradient_norm": "gradient",
    "typicality": "typicality",
    "confidence": "confidence",
}
# what the paper's text says of its tables, as better and worse rows of a measurement
_CLAIMS = (
    ("clusters", "nmi", "gedi-no-gen", "swav"),
    ("clusters", "nmi", "gedi", "swav"),
    ("clusters", "nmi", "gedi", "gedi-no-gen"),
    ("clusters", "nmi", "gedi", "gedi-two-stage"),
    ("samples", "fid", "gedi", "jem"),
    ("samples", "fid", "gedi", "gedi-two-stage"),
    ("probe", "linear_probe", "barlow-twins", "gedi"),
)
_CLAIM_NAMES = {"nmi": "NMI", "fid": "FID", "linear_probe": "linear probe"}
_PAPER = {"nmi": IMAGE_NMI, "fid": IMAGE_FID, "linear_probe": IMAGE_PROBE}


@dataclass(frozen=True)
class Group:
    """The stored fits of one method on one data set; of a method of the paper's tables there may be none."""

    place: Place
    data: str
    method: str
    fits: Sequence[ImageFit]

    def values(self, what: str, name: str) -> list[float]:
        """A figure of every fit of which it was measured."""
        return self.all_values(what).get(name, [])

    def all_values(self, what: str) -> dict[str, list[float]]:
        found = [made["figures"] for a in self.fits if (made := self.place.stored(a).measured(what)) is not None]
        return {name: [figures[name] for figures in found if name in figures] for made in found for name in made}

    def spread(self, what: str, name: str, form: str = ".3f") -> str:
        return spread(self.values(what, name), form)

    @property
    def title(self) -> str:
        """The method, and what its name does not tell."""
        started = bool(self.fits) and "pseudo-labels" in self.place.stored(self.fits[0]).plan.terms
        return title_of(self.method) + (", from pseudo-labels on" if started else "")

    @property
    def n_diverged(self) -> int:
        return sum(self.place.stored(asked).failed_at is not None for asked in self.fits)

    @property
    def epochs(self) -> str:
        ours = "/".join(sorted({str(asked.epochs) for asked in self.fits}, key=int)) or _NONE
        paper = IMAGE_EPOCHS.get(self.data)
        return f"{ours} ({paper})" if paper else ours

    @property
    def seeds(self) -> str:
        return ", ".join(str(asked.seed) for asked in self.fits) or _NONE

    def seeds_measured(self, what: str) -> str:
        """The seeds that a row is about; in brackets those that were not measured."""
        to_do = self._unmeasured(what)
        return ", ".join(f"({a.seed})" if a in to_do else str(a.seed) for a in self.fits) or _NONE

    def _unmeasured(self, what: str) -> list[ImageFit]:
        """Fits with weights that were not measured."""
        stored = [(asked, self.place.stored(asked)) for asked in self.fits]
        return [asked for asked, run in stored if run.failed_at is None and run.measured(what) is None]

    @property
    def commits(self) -> str:
        return ", ".join(dict.fromkeys(self.place.stored(asked).commit for asked in self.fits)) or _NOT_FITTED

    def measured_at(self, what: str) -> str:
        found = (self.place.stored(asked).measured(what) for asked in self.fits)
        commits = ", ".join(dict.fromkeys(made["commit"] for made in found if made is not None))
        return commits or (_NOT_MEASURED if self._unmeasured(what) else _NONE)

    def paper(self, table: Mapping[str, Sequence[str]]) -> str:
        """The paper's figure for the method; as printed it is that of the method itself."""
        name = self.method.removesuffix("-as-printed")
        if self.data not in table or name not in COMPARISON:
            return _NONE
        return table[self.data][COMPARISON.index(name)]


def grouped(place: Place, fits: Sequence[ImageFit]) -> list[Group]:
    """Fits of one method side by side, and the paper's rows of which there is none.

    Those whose plan is no longer made do not count.
    """
    counted = [asked for asked in fits if not place.stored(asked).changes(asked)]
    stored = dict.fromkeys((asked.data, asked.method) for asked in counted)
    sets = dict.fromkeys([*_PAPERS, *(data for data, _ in stored)])
    return [
        Group(place, data, method, [a for a in counted if (a.data, a.method) == (data, method)])
        for data in sets
        for method in dict.fromkeys(
            [*(COMPARISON if data in _PAPERS else ()), *(method for known, method in stored if known == data)]
        )
    ]


def spread(values: Sequence[float], form: str = ".3f") -> str:
    """Mean ± standard deviation over seeds; one value has none."""
    if not values:
        return _NONE
    mean = format(float(np.mean(values)), form)
    return mean if len(values) == 1 else f"{mean} ± {format(float(np.std(values)), form)}"


def images_page(place: Place, fits: Sequence[ImageFit], planned: Sequence[ImageFit]) -> Path:
    groups = grouped(place, fits)
    made = [
        *_missing("images", ("clusters", "samples"), place, fits, planned),
        Section("Clusters (Table nmi_real, above)", _ABOUT_CLUSTERS, _clusters_table(groups)),
        Section("Samples (Table nmi_real, below)", _ABOUT_SAMPLES, _samples_table(groups)),
        Section("What the paper's text says", _ABOUT_CLAIMS, claims_table(groups)),
        *_pictures(place, fits),
        Section("Runs", _ABOUT_RUNS, _runs_table(place, fits)),
    ]
    return write_page(place.runs.parent, "images", "SVHN, CIFAR-10, CIFAR-100: clusters and samples", made)


def probe_page(place: Place, fits: Sequence[ImageFit], planned: Sequence[ImageFit]) -> Path:
    head = ["data", "method", "seeds", "epochs", "linear probe, paper", "linear probe", "standardised", "kNN"]
    names = ("linear_probe", "linear_probe_standardised", "knn_probe")
    rows, groups = [], grouped(place, fits)
    for group in groups:
        rows.append(
            [
                *(group.data, group.title, group.seeds_measured("probe"), group.epochs, group.paper(IMAGE_PROBE)),
                *(group.spread("probe", name) for name in names),
                *(group.commits, group.measured_at("probe")),
            ]
        )
        found = _baselines_below(groups, group, "probe")
        if found is not None:
            cells = [spread([found["figures"][name]]) for name in names]
            named = f"{COMPONENTS} principal components of pixels"
            rows.append([group.data, named, *[_NONE] * 3, *cells, _NONE, found["commit"]])
    table = ResultTable([*head, "fitted at", "measured at"], rows)
    return write_page(
        place.runs.parent,
        "probe",
        "SVHN, CIFAR-10, CIFAR-100: probes",
        [
            *_missing("probe", ("probe",), place, fits, planned),
            Section("Frozen features (Table acc)", _ABOUT_PROBES, table),
        ],
    )


def ood_page(place: Place, fits: Sequence[ImageFit], planned: Sequence[ImageFit]) -> Path:
    groups = grouped(place, fits)
    made = [*_missing("ood", ("ood",), place, fits, planned), Section("Scores", _ABOUT_OOD)]
    for data in dict.fromkeys(group.data for group in groups):
        some = [group for group in groups if group.data == data]
        made.append(Section(f"Trained on {data}", "", _ood_table(place, data, some)))
    return write_page(place.runs.parent, "ood", "SVHN, CIFAR-10, CIFAR-100: other images told apart", made)


PAGES: Mapping[str, Callable[[Place, Sequence[ImageFit], Sequence[ImageFit]], Path]] = {
    "images": images_page,
    "probe": probe_page,
    "ood": ood_page,
}


def _missing(
    page: str, measurements: Sequence[str], place: Place, fits: Sequence[ImageFit], planned: Sequence[ImageFit]
) -> list[Section]:
    """What is planned and not there, and the commands that make it; nothing if all is there."""
    rows = []
    for data in dict.fromkeys(asked.data for asked in planned):
        unfitted = [asked for asked in planned if asked.data == data and not place.stored(asked).exists]
        cells = [data, _listed(unfitted)]
        for what in measurements:
            there = [a for a in fits if a.data == data and place.stored(a).failed_at is None]
            cells.append(_listed([asked for asked in there if place.stored(asked).measured(what) is None]))
        pages = ["images", page] if unfitted else [page]
        commands = [f"`gedikit reproduce {name} --data {data}`" for name in dict.fromkeys(pages)]
        if any(cell != _NONE for cell in cells[1:]):
            rows.append([*cells, "; ".join(commands)])
    head = ["data", "not fitted", *(f"fitted, {_NAMED[what]} not measured" for what in measurements), "made by"]
    return [Section("What is missing", _ABOUT_MISSING, ResultTable(head, rows))] if rows else []


def _listed(fits: Sequence[ImageFit]) -> str:
    """Methods with their seeds."""
    seeds: dict[str, list[str]] = {}
    for asked in fits:
        seeds.setdefault(title_of(asked.method), []).append(str(asked.seed))
    return "; ".join(f"{title} {', '.join(some)}" for title, some in seeds.items()) or _NONE


def _clusters_table(groups: Sequence[Group]) -> ResultTable:
    head = ["data", "method", "seeds", "epochs", "NMI, paper", "NMI", "AMI", "ACC", "ARI"]
    head += [f"NMI over batches of {size} (chance)" for size in BATCHES]
    rows = []
    for group in groups:
        rows.append(
            [
                *(group.data, group.title, group.seeds_measured("clusters"), group.epochs, group.paper(IMAGE_NMI)),
                *_cluster_cells(group.all_values("clusters")),
                *(_diverged(group), group.commits, group.measured_at("clusters")),
            ]
        )
        found = _baselines_below(groups, group, "images")
        if found is not None:
            cells = _cluster_cells({name: [value] for name, value in found["figures"].items()})
            named = "k-means on pixels (PCA)"
            rows.append([group.data, named, *[_NONE] * 3, *cells, _NONE, _NONE, found["commit"]])
    return ResultTable([*head, "diverged", "fitted at", "measured at"], rows)


def _cluster_cells(values: Mapping[str, Sequence[float]]) -> list[str]:
    cells = [spread(values.get(name, ())) for name in ("nmi", "ami", "acc", "ari")]
    for size in BATCHES:
        over, chance = (spread(values.get(f"{name}_batches_of_{size}", ()), ".2f") for name in ("nmi", "chance"))
        cells.append(over if over == _NONE else f"{over} ({chance.split(' ')[0]})")
    return cells


def _samples_table(groups: Sequence[Group]) -> ResultTable:
    head = [
        "data",
        "method",
        "seeds",
        "FID, paper",
        "FID",
        "FID of the chains' starts",
        "clusters apart",
        "measured at",
    ]
    rows = [
        [
            *(group.data, group.title, group.seeds_measured("samples"), group.paper(IMAGE_FID)),
            *(group.spread("samples", "fid", ".0f"), group.spread("samples", "fid_of_starts", ".0f")),
            *(group.spread("samples", "shares_apart", ".2f"), group.measured_at("samples")),
        ]
        for group in groups
        if group.values("samples", "fid") or learns_density(group.method)
    ]
    return ResultTable(head, rows)


def claims_table(groups: Sequence[Group]) -> ResultTable:
    """For each claim both figures with their spread over seeds, and whether ours bear it out."""
    rows = []
    found = {(group.data, group.method): group for group in groups if group.fits}
    for data in dict.fromkeys(group.data for group in groups):
        for what, name, better, worse in _CLAIMS:
            if (data, better) not in found or (data, worse) not in found or data not in IMAGE_NMI:
                continue
            first, second = found[data, better], found[data, worse]
            form = ".0f" if name == "fid" else ".3f"
            rows.append(
                [
                    *(data, f"{_CLAIM_NAMES[name]}: {title_of(better)} against {title_of(worse)}"),
                    f"{first.paper(_PAPER[name])} against {second.paper(_PAPER[name])}",
                    f"{first.spread(what, name, form)} against {second.spread(what, name, form)}",
                    verdict(first.values(what, name), second.values(what, name), smaller=name == "fid"),
                ]
            )
    return ResultTable(["data", "measurement", "paper", "ours", "ours say"], rows)


def verdict(first: Sequence[float], second: Sequence[float], *, smaller: bool = False) -> str:
    """Which of two is better by more than their standard deviations together."""
    if not first or not second:
        return "not measured"
    gain = float(np.mean(first) - np.mean(second)) * (-1 if smaller else 1)
    if abs(gain) <= float(np.std(first) + np.std(second)):
        return "equal within the spread"
    of_one = " (one seed: its spread is unknown)" if 1 in (len(first), len(second)) else ""
    return ("the first is better" if gain > 0 else "the second is better") + of_one


def _ood_table(place: Place, data: str, groups: Sequence[Group]) -> ResultTable:
    others = [other for trained, other in IMAGE_OOD if trained == data]
    measured = [name for group in groups for name in _outside(group)]
    columns = [other for other in dict.fromkeys([*others, *measured]) if other not in MADE_IMAGES] + list(
        MADE_IMAGES
    )
    rows = []
    for group in groups:
        if group.method in COMPARISON and others:
            paper = [
                IMAGE_OOD[data, other][COMPARISON.index(group.method)] if other in others else _NONE
                for other in columns
            ]
            rows.append([group.title, "gradient, paper", *paper, _NONE, _NONE])
        for score in SCORES if group.all_values("ood") else SCORES[:1]:
            cells = [group.spread("ood", f"{other}, {score}", ".2f") for other in columns]
            at = group.measured_at("ood") if group.fits else _NOT_FITTED
            rows.append([group.title, _SCORE_TITLES[score], *cells, group.seeds_measured("ood"), at])
    found = stored_baselines(place, data, "ood")
    if found is not None:
        cells = [
            spread([found["figures"][name]], ".2f")
            if (name := f"{other}, log_density") in found["figures"]
            else _NONE
            for other in columns
        ]
        rows.append(["Gaussian of pixels", "log p(x)", *cells, _NONE, found["commit"]])
    return ResultTable(["method", "score", *columns, "seeds", "measured at"], rows)


def _outside(group: Group) -> list[str]:
    found = (group.place.stored(asked).measured("ood") for asked in group.fits)
    return [name.partition(",")[0] for made in found if made is not None for name in made["figures"]]


def _baselines_below(groups: Sequence[Group], group: Group, page: str) -> dict[str, Any] | None:
    """What takes no training, for below the last method of a data set."""
    if group is not [other for other in groups if other.data == group.data][-1]:
        return None
    return stored_baselines(group.place, group.data, page)


def _diverged(group: Group) -> str:
    if not group.n_diverged:
        return _NONE
    at = [str(f) for asked in group.fits if (f := group.place.stored(asked).failed_at) is not None]
    return f"{group.n_diverged} of {len(group.fits)} (iteration {', '.join(at)})"


def _runs_table(place: Place, fits: Sequence[ImageFit]) -> ResultTable:
    head = ["run", "iterations", "seconds", "verdict", "rollbacks", "plan", "first losses", "commit"]
    rows = []
    for asked in fits:
        stored = place.stored(asked)
        outcome, losses = stored.outcome, stored.path / "losses.json"
        plan = "same" if not stored.changes(asked) else "another"
        rows.append(
            [
                *(asked.name, str(stored.plan.config.optimiser.iterations), str(outcome.get("seconds", _NONE))),
                str(outcome.get("verdict", _NONE)) if stored.failed_at is None else place.state_of(asked),
                *(str(len(outcome["events"])) if "events" in outcome else _NONE, plan),
                f"{max(read_json(losses)['largest_differences'].values()):.1g}" if losses.exists() else _NONE,
                stored.commit,
            ]
        )
    return ResultTable(head, rows)


def _pictures(place: Place, fits: Sequence[ImageFit]) -> list[Section]:
    """Samples of the methods side by side, the first seed of each of which there are some."""
    made = []
    for data in dict.fromkeys(asked.data for asked in fits):
        grids: dict[str, Any] = {}
        for method in (*_DRAWN, "jem"):
            for asked in fits:
                path = place.stored(asked).path / "samples.jpg"
                if (asked.data, asked.method) == (data, method) and path.exists():
                    grids.setdefault(title_of(method), path.read_bytes())
        if len(grids) > 1:
            text = (
                "The first hundred chains of each, 500 Langevin steps from noise, sorted by cluster. Methods "
                "without a density are moved along log Σ exp of their logits, as in the paper."
            )
            title = f"Samples of {data} (Figures samples, samples_2, samples_3)"
            made.append(Section(title, text, picture=side_by_side(grids), name=f"samples-{data}"))
    return made


def side_by_side(grids: Mapping[str, bytes]) -> bytes:
    figure = new_figure(3.0 * len(grids), 3.3)
    axes = figure.subplots(1, len(grids), squeeze=False)[0]
    for ax, (title, grid) in zip(axes, grids.items(), strict=True):
        ax.imshow(np.asarray(Image.open(BytesIO(grid))), cmap="gray", interpolation="nearest")
        ax.set_title(title, fontsize=9, color=INK)
        ax.set_axis_off()
    return png(figure)


_ABOUT_MISSING = (
    "Planned and not there yet; its cells are “–” below. With `--out results/images` the commands go on with what "
    "is stored. Fits and samples want a GPU; with `--no-fit --no-samples` everything else is measured on a CPU."
)
_ABOUT_CLUSTERS = (
    "Official test set. Seeds in brackets are stored, but not measured. NMI, AMI (which takes off what "
    "chance gets: 0.12 with a hundred clusters), ACC (best "
    "one-to-one naming) and ARI are of the whole set at once, mean ± standard deviation over seeds. The paper "
    "does not say whether its NMI is that of the whole test set or a mean over batches; such a mean is high by"
    " chance (in brackets: the same clusters dealt out at random), and the paper's 0.87 for CIFAR-100 is what "
    "chance gets over batches of 100. So neither column is bold, and the paper's NMI stands beside both. "
    "Epochs in brackets are the paper's. Clusters are the argmax of p(y|x); those of Barlow Twins, which has "
    "none, are k-means on the features of training images, where the paper does not say. Barlow Twins and SwAV"
    " have batch normalisation in their projectors. GEDI as printed is the paper's table of hyperparameters to"
    " the letter, but for the strengths of colours and the padding of crops, which it does not give, and "
    "convolutions of 16 bits on a GPU. Networks, epochs and batch normalisation are the paper's; views, "
    "learning rate, batch size, weights and, on SVHN, neighbours and pseudo-labels are this package's, and "
    "were chosen on training images of SVHN and test images of MNIST (docs/claims.md). “From pseudo-labels on”"
    " means that the training begins with spectral clusters of the neighbour graph as targets."
)
_ABOUT_SAMPLES = (
    "FID of 10,000 chains of 500 Langevin steps against all training images, lower is better. Two controls: "
    "the FID of the points that the chains start from, Gaussian noise with the data's mean and covariance (a "
    "sampler that does nothing gets that), and how far the clusters of the samples are from those of the test "
    "images (half the sum of the differences of shares: 0 is equal, 1 is disjoint). Methods without a density "
    "are moved along log Σ exp of their logits, as in the paper."
)
_ABOUT_CLAIMS = (
    "Two rows of the paper's tables and ours, mean ± standard deviation over seeds. A difference counts if it "
    "exceeds both standard deviations together. NMI is that of the whole test set."
)
_ABOUT_RUNS = (
    "Every stored fit. “Plan: same” means that the code that wrote this page makes the same plan; those with "
    "another plan do not count above. “First losses” is the largest difference between the first 50 stored "
    "losses and those that `gedikit reproduce images --check-losses` computed again, relative to values above 1."
)
_ABOUT_PROBES = (
    "Test accuracy on frozen encoder features, mean ± standard deviation over seeds. Linear probe: the paper's"
    " protocol, SGD with momentum 0.9, learning rate 0.001, batches of 100, 100 epochs; how far that gets "
    "depends on the scale of the features, so the same with standardised features stands beside it. kNN: "
    "majority of 20 neighbours by cosine. The last row of a data set takes no training."
)
_ABOUT_OOD = (
    "AUROC between test images and others, mean ± standard deviation over seeds. The score that was fixed "
    "beforehand is log p(x); the paper's is the gradient, −‖∂ log p(x)/∂x‖. Typicality is −|log p(x) − its "
    "median on training images|, confidence the largest p(y|x). Noise is uniform, texture a random field with "
    "amplitudes that fall as 1/f, constant one colour, interpolated the mean of two test images. Methods "
    "without a density are scored by log Σ exp of their logits. The last row is a Gaussian with mean and "
    "covariance of the training pixels."
)
