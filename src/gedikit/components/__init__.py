"""Components by name: what a plan can name, how its settings are declared, and how packages add their own."""

from gedikit.components.component import Component, Setting, setting, settings_of
from gedikit.components.registry import KINDS, Registry, import_plugin, load_plugins
from gedikit.components.tree import Tree, as_tree, expand, merge, parse_assignments

__all__ = [
    "KINDS",
    "Component",
    "Registry",
    "Setting",
    "Tree",
    "as_tree",
    "expand",
    "import_plugin",
    "load_plugins",
    "merge",
    "parse_assignments",
    "setting",
    "settings_of",
]
