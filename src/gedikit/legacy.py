"""Models and runs that 0.1 wrote, as this version has them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from gedikit.components import as_tree, merge
from gedikit.config import Execution
from gedikit.flat_settings import new_config
from gedikit.methods import methods
from gedikit.planning import UNIFORM, Asked, ExamplesProfile, Plan, plan, split_execution
from gedikit.profile import DataProfile

FIRST_WITH_PLANS = 2  # the format of files
_RENAMED = {"network.critic": "network.heads.cpc.weight"}


def model(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the header of a model of 0.1."""
    settings, info = meta["settings"], dict(meta["info"])
    made, execution = plan_of(
        meta["method"],
        settings,
        prior=tensors["prior"].tolist(),
        seed=info["seed"],
        n_rows=info["n_samples"],
        n_features=len(tensors["scaler.mean"]),
        user_encoder=info.get("brought", False),
    )
    kept = {_RENAMED.get(name, name): tensor for name, tensor in tensors.items() if name != "prior"}
    kept["quantiles"] = kept["quantiles"] - (meta["log_normaliser"] or 0.0)  # they were not normalised then
    return kept, {**meta, "plan": made.tree(), "execution": as_tree(execution), "info": info}


def plan_of(
    method: str,
    settings: Mapping[str, Any],
    *,
    prior: list[float],
    seed: int,
    n_rows: int,
    n_features: int,
    user_encoder: bool = False,
) -> tuple[Plan, Execution]:
    """The plan that flat settings were."""
    tree, execution = split_execution(new_config(method, settings, n_features))
    if user_encoder:
        tree.pop("encoder", None)
    name = _name_of(method, settings)
    if methods[name].density is not None:
        tree.setdefault("density", {}).setdefault("name", methods[name].density)
    profile = DataProfile(n_rows, n_features, tuple(settings.get("image_shape", ())))
    if not profile.image_shape:  # no partition of the rows was looked for then
        tree = merge({"objectives": {"pseudo-labels": {"share": 0.0}}}, tree)
    # models that learned from a constraint are used, not trained: any examples will do
    examples = ExamplesProfile(n_rows, 1, tuple(prior)) if methods[name].needs_examples else None
    asked = Asked(
        len(prior),
        name,
        UNIFORM if np.allclose(prior, 1 / len(prior)) else prior,
        seed=seed,
        config=tree,
        user_encoder=user_encoder,
        examples=examples,
    )
    return plan(profile, asked), Execution.of(execution)


def _name_of(method: str, settings: Mapping[str, Any]) -> str:
    """What the method is called now: recipes for images have the name of their data in theirs."""
    data = str(settings.get("augmentation", "")).removesuffix("-printed")
    name = f"{method}-{data}"
    return name if method.endswith("-as-printed") and name in methods else method


def run(table: Mapping[str, Any]) -> dict[str, Any]:
    """What determined a run of 0.1."""
    settings = table["settings"]
    shape = table.get("image_shape", settings.get("image_shape", ()))
    made, execution = plan_of(
        table["method"],
        settings,
        prior=list(table["prior"]),
        seed=table["seed"],
        n_rows=settings["batch_size"],  # the file does not say more
        n_features=int(np.prod(shape)) if shape else max(len(table["columns"]), 2),
    )
    return {
        "source": table["source"],
        "data_seed": table["data_seed"],
        "columns": tuple(table["columns"]),
        "image_shape": tuple(shape),
        "fingerprint": table["fingerprint"],
        "imports": (),
        "plan": made,
        "execution": dataclasses.replace(execution, device=table["device"]),
        "format": table["format"],
    }
