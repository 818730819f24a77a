"""The scikit-learn face of the project."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    DensityMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from gedikit.diagnosis import Diagnosis, diagnose
from gedikit.errors import DataError
from gedikit.fitted import FittedModel
from gedikit.methods import get_method
from gedikit.settings import Settings
from gedikit.symbolic import Constraint
from gedikit.training import Observer, fit
from gedikit.training.devices import resolve_device
from gedikit.training.fit import Checkpoint
from gedikit.training.loop import History
from gedikit.training.rules import Rules


class GEDI(ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, DensityMixin, BaseEstimator):
    """Clusters, density and samples from one network trained without labels.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    method : str, default="gedi"
        A name from the method table, which `gedikit methods` lists, or a pair of a self-supervised loss and a
        density such as "swav+cluster-energy".
    prior : array-like of shape (n_clusters,), default=None
        How often each cluster is expected; None means equally often.
    max_iter : int, default=None
        Training iterations; None takes the method's own (3000 for "gedi").
    batch_size : int, default=None
        Rows per iteration; None takes the method's own (400).
    learning_rate : float, default=None
        Peak learning rate; None takes the method's own (1e-3).
    options : dict, default=None
        Any other setting by name, for example ``{"invariance": 20, "sampler": "mala"}``.
    random_state : int, RandomState or None, default=None
        The same integer gives the same model, bit for bit on a CPU.
    image_shape : tuple of int, default=None
        (height, width, channels) where rows are images, flattened in this order. Arrays of shape
        (n_samples, height, width) or (n_samples, height, width, channels) need not say so.
    like : str, default=None
        A data set that the images resemble, whose augmentation and idea of neighbours to take: "mnist" for drawings
        and scans, "fashion-mnist", "cifar10" for photographs, "svhn" for writing in any colours and light.
    encoder : torch.nn.Module, default=None
        Your own network, from images (n, channels, height, width) or rows (n, n_features) to features (n, k),
        without batch statistics. A copy of it is trained.
    device : str, default="auto"
        "auto" takes a GPU where there is one.
    verbose : int, default=0
        1 shows a live progress line.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row.
    n_features_in_ : int
        Number of features seen during fit.
    n_iter_ : int
        Iterations run.
    history_ : list of dict
        Losses and health signs over the training, at most 1024 rows.
    values_ : ndarray of shape (n_clusters,)
        What each cluster stands for, after `fit_examples`.
    log_normaliser_ : float or None
        log Γ: `score_samples(X) - log_normaliser_` is a log-likelihood in nats. None where it cannot be
        estimated (more than three features, or a method without a density).

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gedikit import GEDI
    >>> X, y = make_moons(200, noise=0.05, random_state=0)
    >>> model = GEDI(n_clusters=2, max_iter=200, random_state=0).fit(X)
    >>> model.predict(X).shape, model.score_samples(X).shape
    ((200,), (200,))
    >>> new_points, clusters = model.sample(5)
    >>> new_points.shape
    (5, 2)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        method: str = "gedi",
        prior: ArrayLike | None = None,
        max_iter: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        options: Mapping[str, Any] | None = None,
        image_shape: tuple[int, ...] | None = None,
        like: str | None = None,
        encoder: nn.Module | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 0,
    ):
        self.n_clusters = n_clusters
        self.method = method
        self.prior = prior
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.options = options
        self.image_shape = image_shape
        self.like = like
        self.encoder = encoder
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def resolved_settings(self, image_shape: tuple[int, ...] | None = None) -> Settings:
        """Every setting of the fit: the method's, changed by this estimator's parameters."""
        options = dict(self.options or {})
        shape = tuple(options.get("image_shape") or image_shape or self.image_shape or ())
        forced = self.encoder is not None or options.get("network") == "resnet8"
        if "network" in options and not forced:
            shape = ()
        direct = {
            "iterations": self.max_iter,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
        }
        given = {name: value for name, value in direct.items() if value is not None}
        on_gpu = resolve_device(self.device).type == "cuda"
        changes = {**options, **given}
        return get_method(self.method).settings_for(
            shape, "", on_gpu=on_gpu, like=self.like, forced=forced, **changes
        )

    def fit(self, X: ArrayLike, y: Any = None) -> Self:  # noqa: ARG002
        """Train on the rows of X; y is ignored."""
        return self._fit_shown(X)

    def fit_examples(self, X: ArrayLike, constraint: Constraint, examples: ArrayLike) -> Self:
        """Learn what clusters stand for from examples that satisfy a constraint.

        Every row of `examples` has the number of a row of X for each variable of the constraint; rows that none of
        them names are not trained on. For methods with the term "constraint", such as "gedi-symbols".
        Cluster i then stands for the i-th value of the variables: `values_[predict(X)]`.
        """
        return self._fit_shown(X, Rules.of(constraint, examples))

    def _fit_shown(self, X: ArrayLike, rules: Rules | None = None) -> Self:
        if not self.verbose:
            return self.fit_observed(X, Observer(), rules=rules)
        from gedikit.progress import ProgressLine

        with ProgressLine() as line:
            return self.fit_observed(X, line, rules=rules)

    def fit_observed(
        self,
        X: ArrayLike,
        observer: Observer,
        checkpoint: Checkpoint | None = None,
        history: History | None = None,
        rules: Rules | None = None,
    ) -> Self:
        """`fit`, telling `observer` how it goes and going on from `checkpoint` and `history` if given."""
        rows, shape = _as_rows(X)
        x = validate_data(self, rows, dtype=[np.float64, np.float32, np.uint8], ensure_min_samples=2)
        settings = self.resolved_settings(shape)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if isinstance(self.random_state, int | np.integer):
            seed = int(self.random_state)
        self.fitted_, kept, state = fit(
            x,
            get_method(self.method),
            settings,
            n_clusters=self.n_clusters,
            prior=None if self.prior is None else np.asarray(self.prior),
            seed=seed,
            device=self.device,
            encoder=self.encoder,
            rules=rules,
            observer=observer,
            checkpoint=checkpoint,
            history=history,
        )
        self.n_iter_ = state.iteration
        self.history_ = kept.rows
        self.labels_ = self.fitted_.training_labels
        return self

    def fit_predict(self, X: ArrayLike, y: Any = None, **kwargs: Any) -> NDArray[np.int64]:  # noqa: ARG002
        """Train on X and return its clusters."""
        return self.fit(X).labels_

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The most probable cluster of each row."""
        return self._fitted().labels(self._validated(X))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """p(y|x): one column a cluster."""
        return self._fitted().posterior(self._validated(X))

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """The encoder's features."""
        return self._fitted().features(self._validated(X))

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """Unnormalised log-density of each row: higher is more normal."""
        return self._fitted().log_density(self._validated(X))

    def score(self, X: ArrayLike, y: Any = None) -> float:  # noqa: ARG002
        """Mean log-density of the rows, normalised where `log_normaliser_` is known."""
        return float(self.score_samples(X).mean() - (self.log_normaliser_ or 0.0))

    def outlier_score(self, X: ArrayLike) -> NDArray[np.float64]:
        """Share of the training data that is more typical than each row: near 1 is strange."""
        return self._fitted().outlier_score(self.score_samples(X))

    def sample(
        self,
        n_samples: int = 1,
        *,
        steps: int | None = None,
        start: str = "buffer",
        cluster: int | None = None,
        random_state: int | None = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """New rows by Langevin dynamics, with the cluster of each.

        start="buffer" goes on from the chains of the training, "noise" begins anew: uniformly in the
        domain or, for images, with noise that has the data's mean and covariance;
        `cluster` samples p(x|y) of one cluster; `steps` is the number of Langevin steps.
        """
        fitted = self._fitted()
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        x, info = fitted.sample(n_samples, steps=steps, start=start, cluster=cluster, seed=seed)
        self.sample_info_ = info._asdict()
        return x, fitted.labels(x)

    def diagnose(self, X: ArrayLike | None = None) -> Diagnosis:
        """Which failure mode the fit has hit, if any; X is a batch that was not trained on, where there is one."""
        fitted = self._fitted()
        x = fitted.scaler.inverse(fitted.reference.cpu().numpy()) if X is None else self._validated(X)
        return diagnose(fitted, x, self.history_[-1] if self.history_ else None)

    def save(self, path: str | Path) -> None:
        """Write the model to one safetensors file, settings and history as JSON in its header."""
        fitted = self._fitted()
        fitted.info["history"] = self.history_
        if hasattr(self, "feature_names_in_"):
            fitted.info["feature_names"] = self.feature_names_in_.tolist()
        fitted.save(Path(path))

    @classmethod
    def load(cls, path: str | Path, device: str = "auto", encoder: nn.Module | None = None) -> "GEDI":
        """A model that `save` wrote; nothing is unpickled. An encoder of your own is needed again."""
        return cls.from_fitted(FittedModel.load(Path(path), resolve_device(device), encoder), device, encoder)

    @classmethod
    def from_fitted(cls, fitted: FittedModel, device: str = "auto", encoder: nn.Module | None = None) -> "GEDI":
        method = get_method(fitted.method)
        shape, on_gpu = fitted.settings.image_shape, resolve_device(device).type == "cuda"
        unasked = [
            method.settings().as_dict(),
            method.settings_for(shape, "", on_gpu=on_gpu, forced=True).as_dict(),
        ]
        named = {"iterations": "max_iter", "batch_size": "batch_size", "learning_rate": "learning_rate"}
        options = {
            k: v
            for k, v in fitted.settings.as_dict().items()
            if k not in named and any(v != base[k] for base in unasked)
        }
        uniform = np.allclose(fitted.prior, 1 / fitted.n_clusters)
        model = cls(
            fitted.n_clusters,
            method=fitted.method,
            prior=None if uniform else fitted.prior,
            options=options or None,
            encoder=encoder,
            random_state=fitted.info["seed"],
            device=device,
            **{param: getattr(fitted.settings, name) for name, param in named.items()},
        )
        model.fitted_ = fitted
        model.n_features_in_ = fitted.n_features
        model.n_iter_ = fitted.info["iterations"]
        model.labels_ = fitted.training_labels
        if "feature_names" in fitted.info:
            model.feature_names_in_ = np.array(fitted.info["feature_names"], dtype=object)
        model.history_ = fitted.info.get("history", [])
        return model

    @property
    def values_(self) -> NDArray[Any]:
        info = self._fitted().info
        if "values" not in info:
            raise AttributeError("values_ is there after fit_examples: clusters of other fits have no names")
        return np.array(info["values"])

    @property
    def log_normaliser_(self) -> float | None:
        return self._fitted().log_normaliser

    @property
    def _n_features_out(self) -> int:
        return int(self._fitted().network.centers.shape[0])

    def _fitted(self) -> FittedModel:
        check_is_fitted(self, "fitted_")
        fitted: FittedModel = self.fitted_
        return fitted

    def _validated(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self, "fitted_")
        rows, _ = _as_rows(X)
        x: NDArray[Any] = validate_data(self, rows, dtype=[np.float64, np.float32, np.uint8], reset=False)
        return x

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")


def _as_rows(X: ArrayLike) -> tuple[ArrayLike, tuple[int, ...] | None]:
    """Arrays of images as rows, and their shape; anything else as it is."""
    if not isinstance(X, np.ndarray) or X.ndim not in (3, 4):
        return X, None
    shape = (*X.shape[1:3], X.shape[3] if X.ndim == 4 else 1)
    if shape[2] not in (1, 3):
        raise DataError(f"arrays of images have 1 or 3 channels in their last dimension, not the shape {X.shape}")
    return X.reshape(len(X), -1), shape
