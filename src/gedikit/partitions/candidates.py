"""Partitions of the anchors into a given number of groups, by methods that err in different ways."""

import warnings
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from scipy import sparse
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.manifold import spectral_embedding
from sklearn.mixture import GaussianMixture

from gedikit.partitions.balanced import balanced_walks
from gedikit.partitions.dips import splits
from gedikit.partitions.neighbourhood import Neighbourhood
from gedikit.partitions.tree import SpanningTree, branches, genie, most_persistent, widest_parted
from gedikit.views.neighbours import spectral_clusters

Labels = Int64[np.ndarray, " a"]
Shares = Float[np.ndarray, " k"]
BALANCED = "balanced walks"
_GINI = (0.3, 0.5, 0.7)
_SMALLEST = (0.01, 0.02)  # shares below which a branch of a tree is noise
_MOST_LINKED = 5000  # anchors: all their distances are kept at once, 100 MB
_MIXTURE_COLUMNS = 20  # principal components at most, for covariances that few rows can tell
_LEAST_COVARIANCE = 1e-5
_MIXTURE_ROWS = 3000  # that a mixture is fitted to, at most


def candidates(
    near: Neighbourhood,
    n_clusters: int,
    seed: int,
    shares: Shares | None = None,
    only: Collection[str] | None = None,
) -> dict[str, Labels]:
    """Each with `n_clusters` groups that have members; falling `shares` if they are known, `only` some methods."""
    found: dict[str, Labels] = {}
    for name, method in _methods(near, n_clusters, seed, shares):
        if only is not None and name not in only:
            continue
        with warnings.catch_warnings():
            # an iteration that stops early is one candidate among many, and that a graph has parts is welcome
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", UserWarning)
            labels = method()
        if labels is not None and len(np.unique(labels)) == n_clusters:
            found[name] = labels.astype(np.int64)
    return found


def _methods(
    near: Neighbourhood, n_clusters: int, seed: int, shares: Shares | None
) -> Iterator[tuple[str, Callable[[], NDArray[np.int64] | None]]]:
    spectral: list[Labels] = []

    def from_spectral() -> Labels:
        if not spectral:
            spectral.append(spectral_clusters(near.weights, n_clusters, seed))
        return spectral[0]

    yield "spectral", from_spectral
    yield BALANCED, lambda: _by_walks(near.weights, from_spectral(), n_clusters, shares)
    yield "dips", lambda: _by_dips(near, n_clusters)
    for measure, tree in near.trees.items():
        for largest in (*_GINI, *(() if shares is None else (_gini(shares),))):
            yield f"genie, {measure}, {largest:.2f}", partial(genie, tree, n_clusters, largest)
        for share in _SMALLEST:
            root = branches(tree, max(3, int(share * near.n_anchors)))
            yield (
                f"widest gaps, {measure}, {share}",
                partial(_leaves, tree, widest_parted(root, n_clusters)),
            )
        yield f"persistence, {measure}", partial(_leaves, tree, most_persistent(root, n_clusters))
    points = near.points
    if points is None:
        yield "k-means, embedded", lambda: _k_means(_embedded(near, n_clusters, seed), n_clusters, seed)
        yield "ward, embedded", lambda: _linked(_embedded(near, n_clusters, seed), "ward", n_clusters)
        return
    yield "k-means", lambda: _k_means(points, n_clusters, seed)
    if near.n_anchors <= _MOST_LINKED:
        kinds: tuple[Literal["ward", "average"], ...] = ("ward", "average")
        for kind in kinds:
            yield kind, partial(_linked, points, kind, n_clusters)
    reduced = _reduced(points, seed)
    for covariance in ("full", "tied"):
        mixture = GaussianMixture(
            n_clusters, covariance_type=covariance, reg_covar=_LEAST_COVARIANCE, random_state=seed
        )
        yield f"mixture, {covariance}", partial(_mixed, mixture, reduced, seed)
    yield "mixture from spectral", lambda: _mixture_from(reduced, from_spectral(), n_clusters, seed)


def _k_means(points: NDArray[np.float64], n_clusters: int, seed: int) -> NDArray[np.int64]:
    labels: NDArray[np.int64] = KMeans(n_clusters, n_init=5, random_state=seed).fit_predict(points).astype(np.int64)
    return labels


def _linked(points: NDArray[np.float64], kind: Literal["ward", "average"], n_clusters: int) -> NDArray[np.int64]:
    labels: NDArray[np.int64] = (fcluster(linkage(points, kind), n_clusters, criterion="maxclust") - 1).astype(
        np.int64
    )
    return labels


def _by_walks(weights: sparse.csr_matrix, labels: Labels, n_clusters: int, shares: Shares | None) -> Labels:
    if shares is None:
        return balanced_walks(weights, labels, np.full(n_clusters, 1 / n_clusters))
    rank = np.empty(n_clusters, dtype=np.int64)
    rank[np.argsort(-np.bincount(labels, minlength=n_clusters), kind="stable")] = np.arange(n_clusters)
    return balanced_walks(weights, rank[labels], shares)


def _by_dips(near: Neighbourhood, n_clusters: int) -> Labels | None:
    made = splits(near.wide, near.least, n_clusters)
    return made[-1].labels if made else None


def _gini(shares: Shares) -> float:
    k = len(shares)
    return float(np.abs(shares[:, None] - shares).sum() / 2 / max(k - 1, 1))


def _leaves(tree: SpanningTree, parts: list[NDArray[np.int64]]) -> Labels:
    labels = np.full(tree.n_nodes, -1)
    for number, members in enumerate(parts):
        labels[members] = number
    return tree.spread(labels)


def _embedded(near: Neighbourhood, n_clusters: int, seed: int) -> NDArray[np.float64]:
    embedded: NDArray[np.float64] = spectral_embedding(
        near.weights, n_components=n_clusters, drop_first=False, random_state=seed
    )
    return embedded


def _reduced(points: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    if points.shape[1] <= _MIXTURE_COLUMNS:
        return points
    dimensions = max(1, min(_MIXTURE_COLUMNS, len(points) - 1))  # n points span n − 1 dimensions
    reduced: NDArray[np.float64] = PCA(dimensions, random_state=seed).fit_transform(points)
    return reduced


def _mixed(mixture: GaussianMixture, points: Float[np.ndarray, "a d"], seed: int) -> NDArray[np.int64]:
    """Groups by a mixture that is fitted to some of the points."""
    some = points
    if len(points) > _MIXTURE_ROWS:
        some = points[np.random.default_rng(seed).permutation(len(points))[:_MIXTURE_ROWS]]
    labels: NDArray[np.int64] = mixture.fit(some).predict(points)
    return labels


def _mixture_from(
    points: Float[np.ndarray, "a d"], labels: Labels, n_clusters: int, seed: int
) -> NDArray[np.int64] | None:
    """A Gaussian mixture whose first step is a partition."""
    counts = np.bincount(labels, minlength=n_clusters)
    if counts.min() == 0:
        return None
    d = points.shape[1]
    means, precisions = [], []
    for c in range(n_clusters):
        own = points[labels == c]
        centred = own - own.mean(0)
        covariance = centred.T @ centred / len(own) + 1e-3 * np.eye(d)
        means.append(own.mean(0))
        precisions.append(np.linalg.inv(covariance))
    mixture = GaussianMixture(
        n_clusters,
        weights_init=counts / counts.sum(),
        means_init=np.array(means),
        precisions_init=np.array(precisions),
        reg_covar=_LEAST_COVARIANCE,
        random_state=seed,
    )
    return _mixed(mixture, points, seed)
