"""The scikit-learn face of the project."""

import dataclasses
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    DensityMixin,
    TransformerMixin,
)
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from gedikit.callbacks import Callback, ProgressLine
from gedikit.components import expand, merge
from gedikit.config import Execution
from gedikit.diagnosis import Diagnosis, diagnose
from gedikit.errors import DataError, GediWarning, UsageError
from gedikit.fitted import FittedModel
from gedikit.groups import GroupProfiles
from gedikit.known import Known
from gedikit.modalities import Image
from gedikit.planning import AUTO, GIVEN, Asked, Decision, Plan, check_rows, plan, split_execution
from gedikit.presentation import PresentationMixin
from gedikit.processes import first_says, n_processes
from gedikit.profile import DataProfile, as_rows
from gedikit.rows import Rows
from gedikit.starts import Starts
from gedikit.symbolic import Constraint, Examples, Names, Symbols, names_of
from gedikit.symbolic.examples import parted
from gedikit.symbolic.neighbours import MOST_ROWS, by_neighbours
from gedikit.tables import ColumnOptions, TableEncoding
from gedikit.training.callbacks import FitView
from gedikit.training.devices import resolve_device
from gedikit.training.fit import Checkpoint, fit
from gedikit.training.loop import History
from gedikit.training.rules import Rules

_DTYPES = [np.float64, np.float32, np.uint8]


class GEDI(
    PresentationMixin,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    DensityMixin,
    BaseEstimator,
):
    """Clusters, density and samples from one network trained without labels.

    Rows are an array, in which NaN is a gap, or a DataFrame of numbers, booleans, categories, dates, ids and gaps.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Number of clusters; "auto" looks for it in the data. Images that their pixels do not part, such as
        photographs of things, get 8, and the plan says so.
    method : str, default="gedi"
        A name from the table that `gedikit methods` prints, or objectives and a density joined by "+", such as
        "swav+cluster-energy".
    prior : "auto", "uniform" or array-like of shape (n_clusters,), default="auto"
        How often each cluster is expected: as found in the data, equally often, or as given.
    views : str, default="auto"
        What pictures are of, which decides how views of them are made: "photos", "drawings", "writing" or "things".
        "auto" takes views that are safe for any picture. Also any registered views by name.
    budget : str, default="default"
        "quick", "default" or "best": how large the network is and how long it trains.
    max_iter : int, default=None
        Training iterations; None leaves it to the plan.
    batch_size : int, default=None
        Rows per iteration; None leaves it to the plan.
    learning_rate : float, default=None
        Peak learning rate; None leaves it to the plan.
    config : dict, default=None
        Any other setting by section and name, for example
        ``{"objectives.prior.weight": 20, "sampler.name": "mala"}`` or the same as nested dicts.
        `gedikit settings` lists them.
    random_state : int, RandomState or None, default=None
        The same integer gives the same model, bit for bit on a CPU.
    symbols : dict, default=None
        For `fit_examples`: the kinds of symbols that rows show, with the values of each or their number, such as
        ``{"digit": 10, "operator": ("+", "-")}``. Clusters are numbered kind after kind, so leave `n_clusters` out.
        None: one kind, with the values that images have in the constraint.
    columns : ColumnOptions or dict, default=None
        What columns are, where that is not to be inferred: ``{"drop": ["notes"], "ids": ["customer"],
        "types": {"region": "category"}, "columns": [...], "label": "species"}``, any of them. Columns of an array
        are called x0, x1 ...
    image_shape : tuple of int, default=None
        (height, width, channels) where rows are images, flattened in this order. Arrays of shape
        (n_samples, height, width) or (n_samples, height, width, channels) need not say so.
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
    plan_ : Plan
        Everything that was decided about the fit, with reasons.
    encoding_ : TableEncoding or None
        What each column of a DataFrame, or of an array with gaps, is taken for; None for other arrays.
    n_features_in_ : int
        Number of columns seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of a DataFrame.
    profile_ : DataFrame
        One row a cluster: ("cluster", "rows"), ("cluster", "share"), what sets it apart in words
        ("cluster", "apart"), and of every column medians and quartiles, shares of categories, of what is true and
        of what is missing, or the range of dates. Of the 200 most telling columns where there are more.
    n_iter_ : int
        Iterations run.
    history_ : list of dict
        Losses and health signs over the training, at most 1024 rows.
    values_ : ndarray of shape (n_clusters,)
        What each cluster stands for, after `fit_examples`; None where the rules leave that undecided.
    names_ : Names
        The same with a probability for every name, and what a cluster could stand for as well.
    normalised_ : bool
        Whether `score_samples` is a log-likelihood in nats, in the units of the data. False for energies whose
        normaliser is not known (images) and for tables with categories or gaps, where only differences mean
        something.

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
        n_clusters: int | str = "auto",
        *,
        method: str = "gedi",
        prior: ArrayLike | str = "auto",
        views: str = "auto",
        budget: str = "default",
        max_iter: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        config: Mapping[str, Any] | None = None,
        symbols: Mapping[str, Any] | None = None,
        columns: ColumnOptions | Mapping[str, Any] | None = None,
        image_shape: tuple[int, ...] | None = None,
        encoder: nn.Module | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 0,
    ):
        self.n_clusters = n_clusters
        self.method = method
        self.prior = prior
        self.views = views
        self.budget = budget
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.config = config
        self.symbols = symbols
        self.columns = columns
        self.image_shape = image_shape
        self.encoder = encoder
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def plan(
        self,
        X: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        partial_labels: ArrayLike | None = None,
        must_link: ArrayLike | None = None,
        cannot_link: ArrayLike | None = None,
    ) -> Plan:
        """What `fit` with the same arguments would do, with a reason for each decision; nothing is fitted."""
        read = self._read(X)
        known = Known.of(len(read.x), sample_weight, partial_labels, must_link, cannot_link)
        read, known = read.counted(known)
        made, _ = plan_rows(read.x, read.image_shape, self._asked(None, known), read.encoding)
        return made

    def fit(
        self,
        X: ArrayLike,
        y: Any = None,  # noqa: ARG002
        *,
        sample_weight: ArrayLike | None = None,
        partial_labels: ArrayLike | None = None,
        must_link: ArrayLike | None = None,
        cannot_link: ArrayLike | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Train on the rows of X; y is ignored.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            The rows.
        y : ignored
            For pipelines.
        sample_weight : array-like of shape (n_samples,), default=None
            How much each row counts, relative to the others: 2 is a row that is there twice, 0 one that plays no
            part and gets a label all the same.
        partial_labels : array-like of shape (n_samples,), default=None
            Labels that are known of some rows, from 0 on; -1 (or NaN) where nothing is known. Label c becomes
            cluster c. Clusters without any known label are found as always.
        must_link, cannot_link : array-like of shape (n_pairs, 2), default=None
            Pairs of row numbers that are in one cluster, or in two different ones.
        callbacks : sequence of Callback, default=()
            What follows the training.

        Columns of a DataFrame that are ids, labels or of one value are not trained on, with a warning that names
        them. Ctrl-C ends the training early and keeps the model, with a warning; a second one aborts.
        """
        given = (sample_weight, partial_labels, must_link, cannot_link)
        return self._fit(X, callbacks, known=lambda n_rows: Known.of(n_rows, *given))

    def fit_examples(
        self,
        X: ArrayLike,
        constraint: Constraint | Examples | Sequence[Examples],
        examples: ArrayLike | Mapping[str, Any] | None = None,
        *,
        holds: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        probability: ArrayLike | None = None,
        kinds: Mapping[str, str] | None = None,
        partial_labels: ArrayLike | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Learn what clusters stand for from examples that satisfy constraints.

        For methods with the objective "constraint", such as "gedi-symbols". Rows that no example names are not
        trained on. Cluster i then stands for the i-th value of the symbols: `values_[predict(X)]`.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            The rows.
        constraint : Constraint, or Examples, or several of these
            What holds. Several constraints over the same rows are a list of `gedikit.symbolic.Examples`, each of
            which has its constraint and takes the arguments from `examples` to `kinds`.
        examples : mapping or DataFrame of columns, or array-like of shape (n_examples, n_variables)
            A column for every variable of the constraint: numbers of rows of X where the variable is of a kind of
            symbols that the model has, else values that are known; `Rows([...])` and `Known([...])` say which it
            is. −1, NaN or None are gaps. An array has numbers of rows alone.
        holds : array-like of shape (n_examples,), default=None
            False of examples that are known to violate the constraint.
        weights : array-like of shape (n_examples,), default=None
            How much each example counts.
        probability : float or array-like of shape (n_examples,), default=None
            How sure it is that the constraint holds, or does not: above 0.5; None is 1.
        kinds : dict, default=None
            The kind of symbols of a variable, where its values do not say it.
        partial_labels : array-like of shape (n_samples,), default=None
            Numbers of clusters that are known of some rows, −1 or NaN of others.
        callbacks : sequence of Callback, default=()
            What follows the training.
        """
        rules = Rules.of(
            constraint,
            examples,
            symbols=None if self.symbols is None else Symbols.of(self.symbols),
            n_clusters=_number(self.n_clusters),
            holds=holds,
            weights=weights,
            probability=probability,
            kinds=kinds,
        )
        return self._fit(X, callbacks, rules, lambda n_rows: Known.of(n_rows, partial_labels=partial_labels))

    def _fit(
        self,
        X: ArrayLike,
        callbacks: Sequence[Callback],
        rules: Rules | None = None,
        known: Callable[[int], Known | None] = lambda _: None,
    ) -> Self:
        everything = self._read(X)
        found = known(len(everything.x))
        read, about = everything.counted(found)
        if rules is not None:
            rules.check(len(read.x), _number(self.n_clusters) or rules.symbols.n_clusters)
            if rules.absent:
                text = f"no example can show {', '.join(rules.absent)}: their clusters stay empty"
                warnings.warn(GediWarning(text), stacklevel=3)
        elif self.symbols is not None:
            raise UsageError("symbols are learned from examples of rules: call fit_examples, or leave them out")
        asked = self._asked(rules, about)
        validate_data(self, _as_rows(X)[0], skip_check_array=True)  # notes the number and the names of columns
        if read.encoding is not None:
            _tell_set_aside(read.encoding, ColumnOptions.of(self.columns))
        with ExitStack() as stack:
            shown = [stack.enter_context(ProgressLine())] if self.verbose else []
            made, starts = plan_rows(read.x, read.image_shape, asked, read.encoding)
            watching = [*callbacks, *shown, stack.enter_context(_CtrlC())]
            self.fit_planned(
                made, read.x, watching, encoding=read.encoding, rules=rules, starts=starts, known=about
            )
        if found is not None and len(read.x) < len(everything.x):  # rows that did not count have labels too
            for concern in self.fitted_.info.get("concerns", []):
                concern["rows"] = found.counted[concern["rows"]].tolist()
            self.fitted_.training_rows = everything.x
            self.fitted_.training_predictions = self.fitted_.predictions(everything.x)
            self.fitted_.training_labels = self.labels_ = self.fitted_.training_predictions.labels
        return self

    def _read(self, X: ArrayLike) -> "_Rows":
        """Rows of finite numbers from whatever X is; nothing is noted."""
        rows, shape = _as_rows(X)
        tree, _ = split_execution(self.config)
        given = Image.of({"shape": tree.get("data", {}).get("shape", ())}).shape
        shape = shape or tuple(self.image_shape or given)
        check = {"dtype": _DTYPES, "ensure_min_samples": 2, "estimator": self, "input_name": "X"}
        if shape:
            images = check_array(rows, **check, ensure_all_finite=False)
            if not _all_finite(images):
                first = int((~np.isfinite(images)).any(1).argmax())
                raise DataError(f"X holds images with values that are NaN or infinite, the first in row {first}")
            return _Rows(images, shape)
        if not isinstance(rows, pd.DataFrame):
            rows = check_array(rows, **check, ensure_all_finite=False)
            if self.columns is None and _all_finite(rows):
                return _Rows(rows)
            rows = pd.DataFrame(rows, columns=_positions(rows.shape[1]))
        encoding = TableEncoding.infer(rows, ColumnOptions.of(self.columns), "X")
        return _Rows(check_array(encoding.encode(rows, "X"), **check), (), encoding)

    def fit_planned(
        self,
        plan: Plan,
        x: Rows,
        callbacks: Sequence[Callback] = (),
        *,
        encoding: TableEncoding | None = None,
        feature_names: Sequence[str] = (),
        rules: Rules | None = None,
        starts: Starts | None = None,
        known: Known | None = None,
        checkpoint: Checkpoint | None = None,
        history: History | None = None,
    ) -> Self:
        """Compute a plan on rows of finite numbers, going on from `checkpoint` and `history` if given.

        `encoding` says which table the rows stand for, and `feature_names` are the names of its columns.
        """
        result = fit(
            plan,
            x,
            execution=self._execution(),
            encoder=self.encoder,
            rules=rules,
            starts=starts,
            known=known,
            callbacks=callbacks,
            checkpoint=checkpoint,
            history=history,
        )
        self.fitted_ = result.fitted
        self.encoding_ = encoding
        if encoding is not None:
            self.fitted_.info["table"] = encoding.tree()
        groups = GroupProfiles.of(x, self.fitted_.training_labels, self.fitted_.n_clusters, self._described())
        self.fitted_.info["groups"] = groups.tree()
        if rules is not None:
            labelled = () if known is None else known.agreeing(self.fitted_.training_labels)
            shown = self._shown_symbols(rules, x[:])
            few, _ = parted(rules.placed, MOST_ROWS, plan.seed)
            untaught = None if result.likeness is None else by_neighbours(few, shown, result.likeness.nearest)
            placed = rules.placed if untaught is None else few
            self.fitted_.info["names"] = names_of(placed, shown, labelled, untaught=untaught).tree()
        self.n_features_in_ = x.shape[1] if encoding is None else len(encoding.columns)
        if feature_names:
            self.feature_names_in_ = np.array(feature_names, dtype=object)
        self.n_iter_ = result.state.iteration
        self.history_ = result.history.rows
        self.labels_ = self.fitted_.training_labels
        return self

    def _shown_symbols(self, rules: Rules, x: NDArray[Any]) -> NDArray[np.int64]:
        """The cluster of every row, among those of its kind where an example says which that is."""
        labels = self.fitted_.training_labels
        if len(rules.symbols.kinds) == 1:
            return labels
        posterior, labels = self.fitted_.posterior(x), labels.copy()
        for placed in rules.placed:
            for kind, rows in zip(placed.kinds, placed.rows.T, strict=True):
                if kind is not None:
                    named = rows[rows >= 0]
                    labels[named] = kind.first + posterior[named, kind.clusters].argmax(1)
        return labels

    def _asked(self, rules: Rules | None, known: Known | None = None) -> Asked:
        direct = {
            "optimiser.iterations": self.max_iter,
            "optimiser.batch_size": self.batch_size,
            "optimiser.learning_rate": self.learning_rate,
        }
        given = {name: value for name, value in direct.items() if value is not None}
        if self.max_iter is not None:
            given["optimiser.epochs"] = 0
        tree, _ = split_execution(self.config)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if isinstance(self.random_state, int | np.integer):
            seed = int(self.random_state)
        return Asked(
            _number(self.n_clusters),
            self.method,
            self.prior if isinstance(self.prior, str) else np.asarray(self.prior),
            self.views,
            self.budget,
            seed,
            merge(tree, expand(given)),
            self.encoder is not None,
            None if rules is None else rules.profile(),
            known,
        )

    def _execution(self) -> Execution:
        _, asked = split_execution(self.config)
        return Execution.of({"device": self.device, **asked})

    def fit_predict(self, X: ArrayLike, y: Any = None, **kwargs: Any) -> NDArray[np.int64]:  # noqa: ARG002
        """Train on X and return its clusters."""
        return self.fit(X, **kwargs).labels_

    def predict(self, X: ArrayLike, kinds: str | Iterable[str | None] | None = None) -> NDArray[np.int64]:
        """The most probable cluster of each row; of those of its kind of symbols, where that is known.

        `kinds` is the kind of all rows, or one for each, None where it is not known.
        """
        if kinds is not None:
            return np.asarray(self.predict_proba(X, kinds).argmax(1))
        return self._fitted().labels(self._validated(X))

    def predict_proba(self, X: ArrayLike, kinds: str | Iterable[str | None] | None = None) -> NDArray[np.float64]:
        """p(y|x), or p(y|x, kind) where kinds are given as for `predict`: one column a cluster."""
        fitted = self._fitted()
        p = fitted.posterior(self._validated(X))
        return p if kinds is None else fitted.within_kinds(p, kinds)

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """The encoder's features."""
        return self._fitted().features(self._validated(X))

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log-likelihood of each row in nats; unless `normalised_`, a log-density that ranks rows."""
        return self._fitted().log_density(self._validated(X))

    def score(self, X: ArrayLike, y: Any = None) -> float:  # noqa: ARG002
        """Mean of `score_samples`; an error for tables with categories or gaps, which have no log-likelihood."""
        check_is_fitted(self, "fitted_")
        if self.encoding_ is not None:
            self.encoding_.check_likelihood()
        return float(self.score_samples(X).mean())

    def outlier_score(self, X: ArrayLike) -> NDArray[np.float64]:
        """Share of the training rows that are less strange than each row: near 1 is an outlier.

        More than three columns are judged by how far typical neighbours are, which outliers among the training rows
        do not mislead as they do `score_samples`; fewer columns, and images, by their log-density.
        """
        return self._fitted().outlier_score(self._validated(X))

    def outlier_reasons(self, X: ArrayLike) -> NDArray[np.float64]:
        """What each column adds to how strange a row is; the largest of a row is its reason."""
        fitted = self._fitted()
        if fitted.outliers is None:
            raise UsageError("reasons are told of more than three columns of numbers whose density was learned")
        return fitted.outliers.reasons(fitted.to_scaled(self._validated(X)))

    def sample(
        self,
        n_samples: int = 1,
        *,
        steps: int | None = None,
        start: str = "buffer",
        cluster: int | None = None,
        random_state: int | None = None,
    ) -> tuple[Any, NDArray[np.int64]]:
        """New rows, with the cluster of each: a table with the columns and types of the one fitted, or an array.

        start="buffer" goes on from the chains of the training, "noise" begins anew: uniformly in the
        domain or, for images, with noise that has the data's mean and covariance;
        `cluster` samples p(x|y) of one cluster; `steps` is the number of Langevin steps.
        """
        fitted = self._fitted()
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        x, info = fitted.sample(n_samples, steps=steps, start=start, cluster=cluster, seed=seed)
        self.sample_info_ = info._asdict()
        labels = fitted.labels(x)
        if self.encoding_ is None:
            return x, labels
        table = self.encoding_.decode(x)
        return table if hasattr(self, "feature_names_in_") else table.to_numpy(), labels

    def diagnose(self, X: ArrayLike | None = None) -> Diagnosis:
        """Which failure mode the fit has hit, if any; X is a batch that was not trained on, where there is one."""
        fitted = self._fitted()
        x = fitted.scaler.inverse(fitted.reference.cpu().numpy()) if X is None else self._validated(X)
        return diagnose(fitted, x, self.history_[-1] if self.history_ else None)

    @property
    def plan_(self) -> Plan:
        return self._fitted().plan

    def save(self, path: str | Path) -> None:
        """Write the model to one safetensors file, settings and history as JSON in its header."""
        fitted = self._fitted()
        fitted.info["history"] = self.history_
        if hasattr(self, "feature_names_in_"):
            fitted.info["feature_names"] = self.feature_names_in_.tolist()
        if self.columns is not None:
            fitted.info["columns"] = ColumnOptions.of(self.columns).tree()
        fitted.save(Path(path))

    @classmethod
    def load(cls, path: str | Path, device: str = "auto", encoder: nn.Module | None = None) -> "GEDI":
        """A model that `save` wrote; nothing is unpickled. An encoder of your own is needed again."""
        return cls.from_fitted(FittedModel.load(Path(path), resolve_device(device), encoder), device, encoder)

    @classmethod
    def from_fitted(cls, fitted: FittedModel, device: str = "auto", encoder: nn.Module | None = None) -> "GEDI":
        """An estimator around a fitted model; its parameters repeat the fit."""
        made = fitted.plan
        config = made.config.tree()
        config["data"].pop("codes", None)  # which columns these are is found in the table
        optimiser, symbols = config["optimiser"], fitted.info.get("symbols")
        model = cls(
            fitted.n_clusters,
            method=made.method,
            prior=fitted.prior if made.shares == GIVEN else made.shares,
            budget=made.budget,
            max_iter=optimiser["iterations"],
            batch_size=optimiser["batch_size"],
            learning_rate=optimiser["learning_rate"],
            config=config,
            symbols=symbols if symbols is not None and len(symbols) > 1 else None,
            columns=fitted.info.get("columns"),
            image_shape=made.data.image_shape or None,
            encoder=encoder,
            random_state=made.seed,
            device=device,
        )
        model.fitted_ = fitted
        table = fitted.info.get("table")
        model.encoding_ = None if table is None else TableEncoding.from_tree(table)
        model.n_features_in_ = fitted.n_features if table is None else len(table["columns"])
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
        if "names" not in info or not self.names_.undecided:
            mixed = len({isinstance(value, str) for value in info["values"]}) > 1  # of several kinds of symbols
            return np.array(info["values"], dtype=object if mixed else None)
        return np.array([name.value if name.decided else None for name in self.names_.names], dtype=object)

    @property
    def names_(self) -> Names:
        info = self._fitted().info
        if "names" not in info:
            raise AttributeError("names_ is there after fit_examples: clusters of other fits have no names")
        return Names.from_tree(info["names"])

    @property
    def normalised_(self) -> bool:
        return self._fitted().normalised and not (self.encoding_ and self.encoding_.without_likelihood)

    @property
    def _n_features_out(self) -> int:
        return int(self._fitted().network.centers.shape[0])

    def _fitted(self) -> FittedModel:
        check_is_fitted(self, "fitted_")
        fitted: FittedModel = self.fitted_
        return fitted

    def _validated(self, X: ArrayLike) -> NDArray[Any]:
        """Rows as the model was trained on: columns of a DataFrame by name, those of an array by position."""
        check_is_fitted(self, "fitted_")
        rows, _ = _as_rows(X)
        encoding = self.encoding_
        if encoding is None:
            x = validate_data(self, rows, dtype=_DTYPES, ensure_all_finite=False, reset=False)
            if _all_finite(x):
                return np.asarray(x)
            encoding = TableEncoding.of_numbers(_positions(x.shape[1]))
            rows = pd.DataFrame(x, columns=_positions(x.shape[1]))
        elif not isinstance(rows, pd.DataFrame):
            x = validate_data(self, rows, dtype=None, ensure_all_finite=False, reset=False)
            rows = pd.DataFrame(x, columns=[column.name for column in encoding.columns])
        encoded: NDArray[Any] = check_array(encoding.encode(rows, "X"), dtype=_DTYPES, estimator=self)
        return encoded

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def plan_rows(
    x: Rows, image_shape: tuple[int, ...], asked: Asked, encoding: TableEncoding | None = None
) -> tuple[Plan, Starts]:
    """The plan for rows of finite numbers, which may stand for a table, and the partitions it was made from.

    Of several processes the first one makes it.
    """
    check_rows(x, asked.n_clusters or 1)
    codes = () if encoding is None else encoding.codes
    if codes:
        asked = dataclasses.replace(asked, config=merge(dict(asked.config), {"data": {"codes": codes}}))
    starts = Starts(x, asked.seed, codes, asked.known)
    if n_processes() == 1:
        return _planned(x, image_shape, asked, encoding, starts), starts
    tree = first_says(lambda: _planned(x, image_shape, asked, encoding, starts).tree())
    return Plan.from_tree(tree), starts


def _planned(
    x: Rows, image_shape: tuple[int, ...], asked: Asked, encoding: TableEncoding | None, starts: Starts
) -> Plan:
    made = plan(DataProfile.of(x, image_shape), asked, starts)
    if encoding is None:
        return made
    decisions = [Decision("columns", encoding.summary(), "; ".join(encoding.notes) or "as they look")]
    aside = encoding.parts(starts.aside(made.config.data.scaling).tolist())
    if aside:
        why = "rows that are near by all other columns do not share them, so they would part every group"
        decisions.append(Decision("groups", f"looked for without {', '.join(aside)}", why))
    return dataclasses.replace(made, decisions=(*decisions, *made.decisions))


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Rows of finite numbers, and what they stand for."""

    x: NDArray[Any]
    image_shape: tuple[int, ...] = ()
    encoding: TableEncoding | None = None

    def counted(self, known: Known | None) -> "tuple[_Rows, Known | None]":
        """The rows that count, and what is known of them."""
        if known is None or len(known.counted) == len(self.x):
            return self, known
        return dataclasses.replace(self, x=self.x[known.counted]), known.among(known.counted)


def _tell_set_aside(encoding: TableEncoding, options: ColumnOptions) -> None:
    """Warn of columns that are not trained on though nobody said so."""
    aside = [c for c in encoding.columns if not c.learned and options.kind_of(c.name) is None]
    if aside:
        why = [f"{column.name!r} ({column.note.partition(';')[0] or 'a label'})" for column in aside]
        warnings.warn(GediWarning(f"not trained on: {', '.join(why)}; `columns` changes that"), stacklevel=4)


def _positions(n_columns: int) -> list[str]:
    """What columns of an array are called."""
    return [f"x{i}" for i in range(n_columns)]


def _all_finite(x: NDArray[Any]) -> bool:
    return x.dtype.kind != "f" or bool(np.isfinite(x).all())


def _number(n_clusters: Any) -> int | None:
    if isinstance(n_clusters, str):
        if n_clusters != AUTO:
            raise UsageError(f"n_clusters must be a number or {AUTO!r}, not {n_clusters!r}")
        return None
    return int(n_clusters)


def _as_rows(X: ArrayLike) -> tuple[ArrayLike, tuple[int, ...]]:
    """Arrays of images as rows, and their shape; tables and all else as they are."""
    return as_rows(X) if isinstance(X, np.ndarray) else (X, ())


class _CtrlC(Callback):
    """The first Ctrl-C ends the training early and keeps the model; the second aborts."""

    everywhere: ClassVar[bool] = True

    def __init__(self) -> None:
        self.asked = False
        self.view: FitView | None = None
        self._previous: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.asked or self.view is None:
            raise KeyboardInterrupt
        self.asked = True
        self.view.stop("interrupted")

    def on_start(self, fit: FitView) -> None:
        self.view = fit

    def on_end(self, fit: FitView) -> None:
        if self.asked:
            text = f"interrupted at iteration {fit.iteration} of {fit.iterations}: the model is kept as it is"
            warnings.warn(GediWarning(text), stacklevel=8)
        self.view = None
