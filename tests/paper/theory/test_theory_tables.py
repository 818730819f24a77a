"""What a person sees."""

import dataclasses
import io

import pytest
from rich.console import Console

from gedikit.paper import theory
from gedikit.paper.theory import show as tables
from gedikit.paper.theory.show import show


def printed(width: int = 100, seed: int = 0) -> tuple[bool, str]:
    console = Console(file=io.StringIO(), width=width)
    result = show(console, seed)
    return result, console.file.getvalue()


def test_tables_fit_a_hundred_columns_and_all_hold():
    result, text = printed()
    assert result is True
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "All 32 statements hold." in text
    assert "…" not in text
    for name in ("Lemma 3", "Lemma 6", "Lemma 9", "Proposition 1", "Theorem 1", "Fourth mode", "Appendix D"):
        assert name in text
    for row in ("L_GEN         Yes 0.29", "Eq. gedi_obj  Yes 0.98"):
        assert row in text


def test_a_statement_that_fails_is_shown_and_returned(monkeypatch: pytest.MonkeyPatch):
    checks = theory.run(0)
    checks[0] = dataclasses.replace(checks[0], errors={"value": 1.0})
    monkeypatch.setattr(tables, "run", lambda _: checks)
    result, text = printed()
    assert result is False
    assert "1 of 32 do not hold." in text
    assert " NO" in text


def test_statements_are_one_sentence_for_two_lines():
    for check in theory.run(1):
        assert check.statement.endswith(".")
        assert len(check.statement) <= 115
