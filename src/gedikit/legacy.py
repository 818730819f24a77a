"""Models and runs that 0.1 wrote, as this version has them."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gedikit.components import as_tree
from gedikit.flat_settings import new_config
from gedikit.planning import Asked, Execution, ExamplesProfile, Plan, plan, split_execution
from gedikit.profile import DataProfile

FIRST_WITH_PLANS = 2  # the format of files
_RENAMED = {"network.critic": "network.heads.cpc.weight"}


def model(
    tensors: Mapping[str, Tensor], meta: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
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
    config = new_config(method, settings, n_features)
    config.pop("encoder.name", None) if user_encoder else None
    tree, execution = split_execution(config)
    profile = DataProfile(n_rows, n_features, tuple(settings.get("image_shape", ())))
    # models that learned from a constraint are used, not trained: any examples will do
    examples = ExamplesProfile(n_rows, 1, tuple(prior)) if "nesy" in method or "symbols" in method else None
    asked = Asked(
        len(prior),
        method,
        prior,
        seed=seed,
        config=tree,
        user_encoder=user_encoder,
        examples=examples,
    )
    return plan(profile, asked), Execution.of(execution)
