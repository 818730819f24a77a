"""Text that a spreadsheet would run as a formula, and the same as text that it shows."""

from typing import Any

# as spreadsheets begin formulas, also in the wide letters of East Asian keyboards; blanks before them are skipped
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_MARK = "'"


def inert(value: Any) -> Any:
    """A cell that no spreadsheet runs: text that begins like a formula gets an apostrophe; numbers stay.

    >>> inert("=1+1"), inert("-5"), inert(-5), inert("a=b")
    ("'=1+1", '-5', -5, 'a=b')
    """
    if not isinstance(value, str) or not value.lstrip(_MARK).startswith(_FORMULAS) or _is_number(value):
        return value
    return _MARK + value


def as_it_was(text: str) -> str:
    """Of text that `inert` gave, what it was given."""
    return text[1:] if text.startswith(_MARK) and text.lstrip(_MARK).startswith(_FORMULAS) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
