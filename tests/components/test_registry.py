"""Components by name: what can be registered, how names are found, and how other packages add theirs."""

import dataclasses
import importlib
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

import pytest

from gedikit.components import KINDS, Component, Registry, import_plugin, load_plugins, setting, settings_of
from gedikit.config import REGISTRIES
from gedikit.densities import densities
from gedikit.encoders import encoders
from gedikit.errors import UsageError
from gedikit.features import feature_networks
from gedikit.modalities import modalities
from gedikit.objectives import Objective, objectives
from gedikit.samplers import samplers
from gedikit.views import similarities, views


@dataclass(frozen=True)
class Fruit(Component):
    """What the registry of these tests holds."""

    weight: float = setting(1.0, "in grams", at_least=0)


@pytest.fixture
def fruits(monkeypatch) -> Registry[Fruit]:
    """A registry that nobody else sees."""
    registry = importlib.import_module("gedikit.components.registry")
    monkeypatch.setattr(registry, "KINDS", {})
    return Registry("fruit", Fruit)


def apple() -> type[Fruit]:
    @dataclass(frozen=True)
    class Apple(Fruit):
        red: bool = setting(True, "of its skin")

    return Apple


def test_a_registered_class_is_found_by_its_name_and_knows_it(fruits):
    made = fruits.register("apple")(apple())
    assert fruits.get("apple") is made
    assert made.name == made().name == "apple"
    assert list(fruits) == ["apple"]
    assert list(fruits.items()) == [("apple", made)]
    assert "apple" in fruits
    assert "pear" not in fruits
    assert [s.name for s in settings_of(made)] == ["weight", "red"]


def test_the_kind_is_known_by_its_name(fruits):
    known = sys.modules["gedikit.components.registry"].KINDS
    assert known == {"fruit": fruits}


def test_something_else_is_refused(fruits):
    @dataclass(frozen=True)
    class Stone(Component):
        pass

    for other in (Stone, int, lambda: None):
        with pytest.raises(UsageError, match=r"^fruit 'stone' must be a subclass of Fruit$"):
            fruits.register("stone")(other)
    assert not list(fruits)


def test_fields_must_be_settings(fruits):
    """A class without the decorator has the fields of its parent alone."""

    class Pear(Fruit):
        soft: bool = True

    with pytest.raises(UsageError, match=r"^fruit 'pear' must be a frozen dataclass: its fields are its settings$"):
        fruits.register("pear")(Pear)


def test_a_setting_needs_a_default(fruits):
    @dataclass(frozen=True, kw_only=True)
    class Plum(Fruit):
        stone: int

    with pytest.raises(UsageError, match=r"^fruit 'plum' needs a default for its setting 'stone'$"):
        fruits.register("plum")(Plum)

    @dataclass(frozen=True)
    class Cherry(Fruit):
        stones: tuple[int, ...] = dataclasses.field(default_factory=tuple)

    assert fruits.register("cherry")(Cherry)().stones == ()


def test_a_name_is_given_once(fruits):
    fruits.register("apple")(apple())

    @dataclass(frozen=True)
    class Other(Fruit):
        pass

    with pytest.raises(UsageError, match=rf"^the fruit 'apple' is there already, of the module '{__name__}'$"):
        fruits.register("apple")(Other)


def test_a_script_that_is_run_again_may_register_again(fruits):
    fruits.register("apple")(apple())
    again = fruits.register("apple")(apple())
    assert fruits.get("apple") is again


def test_unknown_names_are_told_the_nearest(fruits):
    fruits.register("apple")(apple())
    with pytest.raises(UsageError, match=r"^there is no fruit 'aple'; did you mean 'apple'\?$"):
        fruits.get("aple")
    with pytest.raises(UsageError, match=r"^there is no fruit 'banana'; there are: apple$"):
        fruits.get("banana")


def test_a_component_of_a_module_that_is_missing_names_the_module(fruits):
    with pytest.raises(UsageError, match=r"needs the fruit 'apple' of the module 'orchard': import that module"):
        fruits.get("apple", needed_from="orchard")
    with pytest.raises(UsageError, match=r"^there is no fruit 'apple'; there are: none$"):
        fruits.get("apple", needed_from="gedikit.orchard")


@pytest.mark.parametrize(
    ("registry", "typo", "meant"),
    [
        (objectives, "barlow-twin", "barlow-twins"),
        (densities, "cluster_energy", "cluster-energy"),
        (samplers, "sgdl", "sgld"),
        (encoders, "resnet", "resnet8"),
        (views, "augmented", "augment"),
        (similarities, "pixel", "pixels"),
        (modalities, "images", "image"),
    ],
)
def test_every_kind_suggests_what_may_have_been_meant(registry, typo, meant):
    with pytest.raises(UsageError, match=rf"there is no {registry.kind} '{typo}'; did you mean .*'{meant}'"):
        registry.get(typo)


def test_every_registry_of_the_package_is_a_kind():
    assert {*KINDS.values()} == {*REGISTRIES.values(), objectives, feature_networks}
    for kind, registry in KINDS.items():
        assert registry.kind == kind
        for name, cls in registry.items():
            assert cls.name == name
            assert issubclass(cls, registry.base)
            assert cls.summary, f"{name} has no summary"
            assert cls.__doc__


# packages of others

MODULE = '''
"""An objective of another package."""

from dataclasses import dataclass
from typing import ClassVar

from gedikit.components import setting
from gedikit.objectives import Objective, register_objective


@register_objective("spread-test")
@dataclass(frozen=True)
class Spread(Objective):
    """Minus the variance of embeddings."""

    power: float = setting(1.0, "of the deviation", above=0)

    summary: ClassVar[str] = "embeddings apart"

    def __call__(self, out, memory):
        return -out.z.std(-2).mean(-1) ** self.power, memory
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package as it lies in site-packages: a module, and beside it what its entry points are."""
    registry = sys.modules["gedikit.components.registry"]
    monkeypatch.setattr(registry, "_loaded", set())
    monkeypatch.setattr(objectives, "_classes", dict(objectives._classes))

    def install(text: str, name: str = "spread_components") -> ModuleType | None:
        (tmp_path / f"{name}.py").write_text(text)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[gedikit.components]\nspread = {name}\n")
        monkeypatch.syspath_prepend(tmp_path)
        return sys.modules.get(name)

    yield install
    for name in [m for m in sys.modules if m.startswith("spread_")]:
        del sys.modules[name]


def test_an_installed_package_is_found_by_its_entry_point(package):
    assert package(MODULE) is None, "not imported before it is needed"
    assert "spread-test" not in objectives
    cls = objectives.get("spread-test")
    assert cls.__module__ == "spread_components"
    assert issubclass(cls, Objective)
    assert cls.of({"power": "2"}).power == 2.0
    assert "spread-test" in list(objectives)


def test_names_of_packages_are_among_those_suggested(package):
    package(MODULE)
    with pytest.raises(UsageError, match="did you mean 'spread-test'"):
        objectives.get("spred-test")


def test_a_broken_package_is_named_every_time(package):
    package("raise RuntimeError('half installed')\n")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"'spread' \(spread_components\) do not import: half installed"):
            load_plugins()


def test_a_package_is_imported_once(package, tmp_path):
    package("from pathlib import Path\n" + f"with Path({str(tmp_path / 'count')!r}).open('a') as f: f.write('x')\n")
    for _ in range(3):
        load_plugins()
    assert (tmp_path / "count").read_text() == "x"


def test_a_package_that_does_not_import_is_named(package):
    package("import nothing_of_this_name")
    with pytest.raises(
        UsageError, match=r"^the components of 'spread' \(spread_components\) do not import: No module named"
    ):
        load_plugins()


@pytest.mark.usefixtures("package")
def test_a_file_or_a_module_may_be_imported_by_hand(tmp_path, monkeypatch):
    path = tmp_path / "spread_file.py"
    path.write_text(MODULE)
    import_plugin(str(path))
    assert objectives.get("spread-test").__module__ == "spread_file"
    import_plugin(str(path))  # the same file once more
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "spread_module.py").write_text(MODULE.replace("spread-test", "spread-module-test"))
    import_plugin("spread_module")
    assert "spread-module-test" in objectives


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("no_file.py", r"^there is no file no_file.py to import components from$"),
        ("no_module_of_this_name", r"^no_module_of_this_name could not be imported: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_imported_by_hand_is_named(what, said):
    with pytest.raises(UsageError, match=said):
        import_plugin(what)


@pytest.mark.usefixtures("package")
def test_a_file_with_a_mistake_is_named(tmp_path):
    path = tmp_path / "spread_broken.py"
    path.write_text("1 / 0")
    with pytest.raises(UsageError, match=r"spread_broken.py could not be imported: ZeroDivisionError"):
        import_plugin(str(path))
    path.write_text(MODULE.replace("spread-test", "prior"))
    with pytest.raises(UsageError, match=r"^the objective 'prior' is there already, of the module 'gedikit.obj"):
        import_plugin(str(path))


def test_what_a_class_keeps_for_itself_is_no_setting():
    @dataclass(frozen=True)
    class Own(Component):
        shown: int = setting(1, "a number")
        _kept: object = None
        about: ClassVar[str] = "nothing"

    assert [s.name for s in settings_of(Own)] == ["shown"]
    with pytest.raises(UsageError, match=r"there is no setting of own '_kept'"):
        Own.of({"_kept": 1})
