"""Settings of components: text becomes values, limits hold, mistakes are named, and trees bring everything back."""

import json
import math
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract_cases import each
from gedikit.components import KINDS, Component, as_tree, expand, merge, parse_assignments, setting, settings_of
from gedikit.components.component import public_fields
from gedikit.config import TABLES, Execution
from gedikit.errors import UsageError

CLASSES = [
    *(pytest.param(cls, id=f"{kind}-{name}") for kind, registry in KINDS.items() for name, cls in registry.items()),
    *(pytest.param(cls, id=name) for name, cls in (*TABLES.items(), ("execution", Execution))),
]
COMPONENTS = [param for registry in KINDS.values() for param in each(registry)]


@dataclass(frozen=True)
class Meal(Component):
    """One setting of every type."""

    plates: int = setting(2, "how many", above=0)
    salt: float = setting(0.5, "in grams", at_least=0, at_most=5)
    warm: bool = setting(True, "or cold")
    dish: str = setting("soup", "what", choices=("soup", "salad"))
    guests: tuple[str, ...] = setting((), "who")
    sizes: tuple[int, ...] = setting((1, 2), "of the plates")
    interval: tuple[float, float] = setting((0.0, 1.0), "from, to")
    limit: float | None = setting(None, "of the bill", at_least=1)
    tip: float = setting(0.1, "share", at_most=1)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("plates", "3", 3),
        ("plates", " 3 ", 3),
        ("plates", "3.0", 3),
        ("plates", "1e3", 1000),
        ("plates", 4.0, 4),
        ("salt", "0.25", 0.25),
        ("salt", "1e-3", 0.001),
        ("salt", 2, 2.0),
        *(("warm", text, True) for text in ("true", "True", "yes", "on", "1", 1, True)),
        *(("warm", text, False) for text in ("false", "FALSE", "no", "off", "0", 0, False)),
        ("dish", "salad", "salad"),
        ("guests", "ann,bob", ("ann", "bob")),
        ("guests", "", ()),
        ("sizes", "3,4,5", (3, 4, 5)),
        ("sizes", "[3, 4]", (3, 4)),
        ("sizes", "(7,)", (7,)),
        ("sizes", [1, "2"], (1, 2)),
        ("sizes", (), ()),
        ("interval", "0.2,1", (0.2, 1.0)),
        ("interval", [0, 0.5], (0.0, 0.5)),
        ("limit", "none", None),
        ("limit", "None", None),
        ("limit", "", None),
        ("limit", None, None),
        ("limit", "12", 12.0),
    ],
)
def test_text_and_plain_values_become_what_a_setting_is(name, text, value):
    found = getattr(Meal.of({name: text}), name)
    assert found == value
    assert type(found) is type(value)
    if isinstance(value, tuple):
        assert [type(v) for v in found] == [type(v) for v in value]
    assert getattr(Meal().replace(**{name: text}), name) == value


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("plates", "three", r"plates must be a whole number, not 'three'"),
        ("plates", "2.5", r"plates must be a whole number, not '2.5'"),
        ("plates", True, r"plates must be a whole number, not True"),
        ("plates", "inf", r"plates must be a whole number, not 'inf'"),
        ("plates", "nan", r"plates must be a whole number, not 'nan'"),
        ("plates", None, r"plates must be a whole number, not None"),
        ("salt", "much", r"salt must be a number, not 'much'"),
        ("salt", False, r"salt must be a number, not False"),
        ("warm", "maybe", r"warm must be true or false, not 'maybe'"),
        ("warm", 2, r"warm must be true or false, not 2"),
        ("dish", 7, r"dish must be a name, not 7"),
        ("sizes", "1,x", r"sizes must be a list of whole numbers, not '1,x'"),
        ("sizes", 5, r"sizes must be a list of whole numbers, not 5"),
        ("interval", "1,2,3", r"interval must be 2 numbers, not '1,2,3'"),
        ("interval", "1", r"interval must be 2 numbers, not '1'"),
        ("limit", "little", r"limit must be a number or none, not 'little'"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(name, value, said):
    with pytest.raises(UsageError, match=said):
        Meal.of({name: value})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("plates", 0, r"plates must be positive, not 0"),
        ("salt", -0.1, r"salt must lie between 0 and 5, not -0.1"),
        ("salt", 5.1, r"salt must lie between 0 and 5, not 5.1"),
        ("salt", math.nan, r"salt must lie between 0 and 5, not nan"),
        ("limit", 0.5, r"limit must be at least 1, not 0.5"),
        ("tip", 2, r"tip must be at most 1, not 2"),
        ("dish", "sup", r"there is no meal.dish 'sup'; did you mean 'soup'\?"),
        ("dish", "xyz", r"there is no meal.dish 'xyz'; there are: soup, salad"),
    ],
)
def test_limits_hold_however_a_component_is_made(name, value, said):
    for make in (
        lambda: Meal.of({name: value}),
        lambda: Meal().replace(**{name: value}),
        lambda: Meal(**{name: value}),
    ):
        with pytest.raises(UsageError, match=said):
            make()


def test_values_at_their_limits_are_allowed():
    meal = Meal(salt=5, limit=1, tip=1)
    assert (meal.salt, meal.limit, meal.tip) == (5, 1, 1)
    assert Meal(salt=0, tip=-3).salt == 0


def test_a_typo_is_told_the_nearest_setting():
    with pytest.raises(UsageError, match=r"^there is no setting of meal 'plate'; did you mean 'plates'\?$"):
        Meal.of({"plate": 3})
    with pytest.raises(UsageError, match=r"^there is no setting of meal 'colour'; there are: plates, salt, warm"):
        Meal().replace(colour="red")


def test_settings_are_described():
    described = {s.name: s for s in settings_of(Meal)}
    assert described["plates"].kind == "a whole number"
    assert described["interval"].kind == "2 numbers"
    assert described["guests"].kind == "a list of names"
    assert described["limit"].kind == "a number or none"
    assert described["warm"].kind == "true or false"
    assert described["dish"].choices == ("soup", "salad")
    assert (described["salt"].default, described["salt"].meaning) == (0.5, "in grams")


@pytest.mark.parametrize("cls", CLASSES)
def test_every_setting_of_every_component_says_what_it_means(cls):
    for described in settings_of(cls):
        assert len(described.meaning) > 2, described.name
        assert described.kind not in ("", "object"), described.name
        assert not described.choices or described.default in described.choices


@pytest.mark.parametrize("cls", CLASSES)
def test_every_component_names_a_typo_of_its_settings(cls):
    for field in public_fields(cls):
        with pytest.raises(UsageError, match=rf"did you mean .*'{field.name}'"):
            cls.of({field.name + "x": 1})


@pytest.mark.parametrize("cls", CLASSES)
def test_every_component_refuses_values_beyond_its_limits(cls):
    for field in public_fields(cls):
        limits = field.metadata
        for beyond in _beyond(limits):
            with pytest.raises(UsageError, match=field.name):
                cls.of({field.name: beyond})
        if limits.get("choices"):
            with pytest.raises(UsageError, match=field.name):
                cls.of({field.name: "nothing of the kind"})


def _beyond(limits: dict[str, Any]) -> list[float]:
    found = [] if limits.get("above") is None else [limits["above"]]
    found += [] if limits.get("at_least") is None else [limits["at_least"] - 1]
    return found + ([] if limits.get("at_most") is None else [limits["at_most"] + 1])


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_tree_brings_every_component_back(component):
    """Through JSON too, as files hold it."""
    tree = as_tree(component)
    assert tree["name"] == component.name
    values = {key: value for key, value in json.loads(json.dumps(tree)).items() if key != "name"}
    assert type(component).of(values) == component
    assert set(values) == {field.name for field in public_fields(component)}


@pytest.mark.parametrize("component", COMPONENTS)
def test_text_brings_every_component_back(component):
    """As typed on a command line."""

    def typed(value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

    values = {field.name: typed(getattr(component, field.name)) for field in public_fields(component)}
    assert type(component).of(values) == component


@pytest.mark.parametrize("component", COMPONENTS)
def test_components_are_values(component):
    """Frozen, equal where their settings are, and keys of dictionaries."""
    field = public_fields(component)[0].name if public_fields(component) else "name"
    with pytest.raises(FrozenInstanceError):
        setattr(component, field, 1)
    same = component.replace()
    assert same == component
    assert hash(same) == hash(component)


def test_no_component_is_the_component_none():
    assert as_tree(None) == {"name": "none"}


def test_dotted_names_are_nested_tables():
    assert expand({"sampler.steps": 3, "sampler": {"name": "mala"}, "seed": 1}) == {
        "sampler": {"steps": 3, "name": "mala"},
        "seed": 1,
    }
    assert expand({"objectives.prior.weight": 30}) == {"objectives": {"prior": {"weight": 30}}}
    assert expand({"objectives": {"prior.weight": 30}}) == {"objectives": {"prior": {"weight": 30}}}
    with pytest.raises(UsageError, match=r"'sampler.steps' and 'sampler' cannot both be set"):
        expand({"sampler": "mala", "sampler.steps": 3})


def test_changes_go_on_top_and_another_component_starts_from_its_defaults():
    base = {"sampler": {"name": "sgld", "steps": 5, "noise_std": 0.1}, "head": {"cosine": True}}
    assert merge(base, {"sampler": {"steps": 3}})["sampler"] == {"name": "sgld", "steps": 3, "noise_std": 0.1}
    assert merge(base, {"sampler": {"name": "sgld", "steps": 3}})["sampler"]["noise_std"] == 0.1
    assert merge(base, {"sampler": {"name": "mala", "steps": 3}})["sampler"] == {"name": "mala", "steps": 3}
    assert merge(base, {"sampler": {"name": "mala"}})["head"] == {"cosine": True}
    assert base["sampler"]["steps"] == 5, "what is merged is left alone"


NAMES = st.sampled_from(["a", "b", "c"])
TREES = st.recursive(st.integers(), lambda inner: st.dictionaries(NAMES, inner, max_size=3), max_leaves=8)


@given(st.dictionaries(NAMES, TREES, max_size=3), st.dictionaries(NAMES, TREES, max_size=3))
def test_merging_is_idempotent_and_keeps_what_was_not_changed(base, changes):
    merged = merge(base, changes)
    assert merge(merged, changes) == merged
    assert merge(base, {}) == base
    assert merge({}, changes) == changes
    assert set(merged) == {*base, *changes}
    for key in set(base) - set(changes):
        assert merged[key] == base[key]


def test_assignments_are_split_at_the_first_equals_sign():
    assert parse_assignments(["sampler.steps=3", " a = b=c "]) == {"sampler.steps": "3", "a": "b=c"}
    with pytest.raises(UsageError, match=r"--set takes key=value, not 'sampler.steps'"):
        parse_assignments(["sampler.steps"])
