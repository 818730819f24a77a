"""The version, where anything may import it from."""

__version__ = "0.2.0"
