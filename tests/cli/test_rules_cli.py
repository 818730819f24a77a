"""Files of rules and examples, and the commands that read them."""

import json

import numpy as np
import pandas as pd
import pytest

from gedikit.cli import rules
from gedikit.cli.main import run
from gedikit.data import sources
from gedikit.data.shards import Shard
from gedikit.errors import DataError, UsageError
from gedikit.symbolic.example_files import ExampleFile, any_name, row_number
from gedikit.symbolic.expressions import predicate
from gedikit.symbolic.rule_files import RuleFile
from shard_cases import pictures, write_shards

ORDER = """
[symbols]
size = [1, 2, 3]

[[rule]]
name = "order"
expression = "rank_a < rank_b"
[rule.variables]
rank_a = "size"
rank_b = "size"
"""
SUM = """
[symbols]
digit = 3

[[rule]]
expression = "a + b = s"
[rule.variables]
a = "digit"
b = "digit"
s = { from = 0, to = 4 }
"""


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def rows_and_pairs():
    """Three groups of rows, and pairs of them in the order of their groups."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=80)
    x = np.array([[0, 0], [4, 0], [0, 4]])[labels] + 0.2 * rng.normal(size=(80, 2))
    pairs = []
    while len(pairs) < 40:
        a, b = rng.integers(80, size=2).tolist()
        if labels[a] < labels[b]:
            pairs.append((a, b))
    return x, labels, pairs


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("a + b = s", (1, 2, 3), True),
        ("a < b <= s and not a == 0", (1, 2, 2), True),
        ("a < b <= s and not a == 0", (1, 2, 1), False),
        ("(a if b > 0 else s) in (1, 2)", (3, 0, 2), True),
        ("distinct(a, b, s) or a ** 2 == 4", (2, 2, 2), True),
        ("implies(a == b, s == abs(-1) + min(a, b))", (1, 1, 2), True),
        ("a ^ b == s % 2", (1, 0, 3), True),
    ],
)
def test_expressions(text, values, expected):
    assert predicate(text, ["a", "b", "s"])(*values) is expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("__import__('os').getcwd()", "calls a function"),
        ("a.__class__ == b", "no part of an expression"),
        ("[x for x in (1, 2)] == a", "no part of an expression"),
        ("(lambda: 1)() == a", "calls a function"),
        ("c == a", "names c, which is none of the variables a, b"),
        ("a +", "cannot be read"),
        ("a := 1", "cannot be read"),
        ("f'{a}' == b", "no part of an expression"),
        ("a" * 3000, "more than 2000"),
        ("(" * 900 + "a" + ")" * 900, "cannot be read"),
    ],
)
def test_expressions_do_nothing_but_state_rules(text, said):
    with pytest.raises(UsageError, match=said):
        predicate(text, ["a", "b"])


def test_text_has_no_order(write):
    text = ORDER.replace("[1, 2, 3]", '["small", "large"]')
    with pytest.raises(DataError, match="'small' and 'small' have no order: compare numbers"):
        RuleFile.read(write("text.toml", text))


def test_a_variable_is_not_compared_with_what_it_never_is(write):
    """Such a comparison is false everywhere, and a rule with it says something else than was meant."""
    signed = SUM.replace("digit = 3", 'digit = 3\nsign = ["+", "-"]').replace(
        'b = s"', "b = s if op == 0 else op in ('x', '-')\""
    )
    with pytest.raises(DataError) as error:
        RuleFile.read(write("signed.toml", signed.replace("[rule.variables]", '[rule.variables]\nop = "sign"')))
    said = str(error.value)
    assert "2 problems" in said and "the expression has op == 0: op is one of '+', '-'" in said
    assert "op in ('x', '-'): op is one of '+', '-'" in said


def test_a_large_power_is_refused_and_not_computed():
    with pytest.raises(ValueError, match="beyond 64"):
        predicate("9 ** 9 ** 9 == a", ["a"])(1)


def test_check_says_what_rules_settle(write, capsys):
    assert run(["rules", "check", str(write("order.toml", ORDER))]) == 0
    said = capsys.readouterr().out
    assert "satisfied by 3 of 9 tuples" in said
    assert "rank_a: image of size, one of 1, 2, 3" in said
    assert "implied shares of size: 1 33.3%, 2 33.3%, 3 33.3%" in said
    assert "one-to-one namings that satisfy it: 1\n" in said
    other = write("other.toml", ORDER.replace("<", "!="))
    assert run(["rules", "check", str(other)]) == 1
    said = capsys.readouterr().out
    assert "one-to-one namings that satisfy it: 6" in said
    assert "labels that would settle it: one row each of 1, 2" in said
    bad = write("bad.csv", "picture,symbol\n\n1.png,9\n2.png\n")
    assert run(["rules", "check", str(other), "--labels", str(bad)]) == 1
    said = capsys.readouterr().err
    assert "line 3, column symbol: '9' is none of 1, 2, 3" in said and "line 4, column symbol: ''" in said
    assert run(["rules", "check", str(other), "--labels", str(write("none.csv", "picture,symbol\n"))]) == 1
    assert "has no labels below its first line" in capsys.readouterr().err
    labels = write("labels.csv", "picture,symbol\n1.png,1\n2.png,3\n")
    assert run(["rules", "check", str(other), "--labels", str(labels)]) == 0


def test_check_of_symbols_that_are_shown(write, capsys):
    rules = write("sum.toml", SUM)
    shown = write("shown.csv", "a,b,s\n0,2,2\n")
    assert run(["rules", "check", str(rules), str(shown), "--symbols", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["namings"] == {"at_least": 2, "at_most": 2}  # 0 and 2 can be exchanged
    assert found["groups"] == {"digit": [[0, 2]]}
    pictures = write("pictures.csv", "a,b,s\n1.png,2.png,2\n")
    assert run(["rules", "check", str(rules), str(pictures)]) == 1
    said = capsys.readouterr().out
    assert "assuming that every combination" in said
    assert run(["rules", "check", str(rules), str(write("zero.csv", "a,b,s\nx,y,0\nx,z,1\n"))]) == 0


def test_a_program_is_a_file_of_rules_too(write, capsys):
    pytest.importorskip("problog")
    program = """
nn(digit, [X], Y, [0,1,2]) :: digit(X, Y).
nn(total, [X], Y, [0,1,2,3,4]) :: total(X, Y).
addition(A, B, S) :- digit(A, X), digit(B, Y), Z is X + Y, total(S, Z).
% known: s
query(addition(a, b, s)).
"""
    assert run(["rules", "check", str(write("sum.pl", program))]) == 0
    assert "total(s): known with each example" in capsys.readouterr().out
    read = ExampleFile.read(
        write("examples.csv", "a,b,s\n4,5,3\n"), RuleFile.read(write("sum.pl", program)), row_number(10)
    )
    placed = read.examples[0].of(RuleFile.read(write("sum.pl", program)).symbols)
    assert placed.rows.tolist() == [[4, 5, -1]] and placed.known.tolist() == [[-1, -1, 3]]


def test_all_problems_of_rules_are_told_at_once(write):
    text = SUM.replace('a = "digit"', 'a = "digt"').replace("[[rule]]", "[[rule]]\nprobability = 0.2", 1)
    text = text.replace("a + b = s", "a + q = s") + "\n[other]\nx = 1\n"
    with pytest.raises(DataError) as error:
        RuleFile.read(write("bad.toml", text))
    said = str(error.value)
    for part in ("4 problems", "no kind of symbols 'digt'", "above 0.5", "names q", "other: there are [symbols]"):
        assert part in said


def test_all_problems_of_examples_are_told_at_once_with_line_and_column(write):
    rules = RuleFile.read(write("sum.toml", SUM))
    text = "a,b,s,holds,weight\n0,1,9,,\n0,77,1,,\n0,1,1,perhaps,\n,,1,,\n0,1,1,,heavy\n0,1,1,no,2\n"
    with pytest.raises(DataError) as error:
        ExampleFile.read(write("bad.csv", text), rules, row_number(5))
    said = str(error.value)
    for part in (
        "5 problems",
        "line 2, column s: '9' is none of 0, 1, 2, 3, 4",
        "line 3, column b: 77 is no row: there are rows from 0 to 4",
        "line 4, column holds: 'perhaps'",
        "line 5 has no image",
        "line 6, column weight: 'heavy' is no number",
    ):
        assert part in said
    with pytest.raises(DataError, match=r"no column for the variable b(.|\n)*column 'z' is no variable"):
        ExampleFile.read(write("columns.csv", "a,s,z\n0,1,2\n"), rules, row_number(5))


def test_examples_that_contradict_each_other_are_named(write, capsys):
    rules = write("sum.toml", SUM)
    assert run(["rules", "check", str(rules), str(write("e.csv", "a,b,s\np,q,1\nr,q,2\np,q,3\n"))]) == 1
    said = capsys.readouterr().err
    assert "e.csv: whatever the images show, it cannot be that these examples hold together: " in said
    assert said.endswith("line 2 (a is p, b is q, s = 1); line 4 (a is p, b is q, s = 3)\n")
    assert run(["rules", "check", str(rules), str(write("twice.csv", "a,b,s\nq,r,1\np,p,3\n"))]) == 1
    assert "line 3 contradicts rule 1: with a is p, b is p, s = 3 it cannot hold" in capsys.readouterr().err


TWO_ORDERS = """
[[rule]]
name = "other way"
expression = "rank_b < rank_a"
[rule.variables]
rank_a = "size"
rank_b = "size"

[[rule]]
name = "not equal"
expression = "rank_a != rank_b"
[rule.variables]
rank_a = "size"
rank_b = "size"
"""


def test_rules_that_contradict_each_other_are_named(write, capsys):
    """A line is an example of every rule unless it names its own."""
    both = write("both.toml", ORDER + TWO_ORDERS)
    assert run(["rules", "check", str(both)]) == 1
    assert "both.toml: no values satisfy order, other way together" in capsys.readouterr().err
    named = write("named.csv", "rule,rank_a,rank_b\norder,p,q\nother way,r,p\n")
    assert run(["rules", "check", str(both), str(named)]) == 0
    assert run(["rules", "check", str(both), str(write("shared.csv", "rank_a,rank_b\np,q\n"))]) == 1
    said = capsys.readouterr().err
    assert (
        "line 2 as an example of order (rank_a is p, rank_b is q)" in said and "as an example of other way" in said
    )
    doubtful = ORDER + TWO_ORDERS.replace('"other way"', '"other way"\nprobability = 0.9')
    assert run(["rules", "check", str(write("doubtful.toml", doubtful))]) == 0
    alone = write("alone.toml", ORDER.replace('"order"', '"order"\nprobability = 0.9'))
    assert run(["rules", "check", str(alone)]) == 0


def test_examples_of_any_rule_that_would_settle_names_are_told(write, capsys):
    """Sums alone leave 0 and 2 open; either rule has an example that settles them, also one without any so far."""
    order = ORDER[ORDER.index("[[rule]]") :].replace('"size"', '"digit"')
    rules = write("two.toml", SUM.replace("[[rule]]", '[[rule]]\nname = "sum"') + order)
    few = write("few.csv", "rule,a,b,s,rank_a,rank_b\nsum,0,2,2,,\n")
    assert run(["rules", "check", str(rules), str(few), "--symbols"]) == 1
    said = capsys.readouterr().out
    assert (
        "labels that would settle it: one row each of 0\nor examples that would: sum: a = 0, b = 0, s = 0\n" in said
    )
    none = write("none.csv", "rule,a,b,s,rank_a,rank_b\norder,,,,1,2\n")
    assert run(["rules", "check", str(rules), str(none), "--symbols", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["examples_to_add"] == [{"rule": "order", "rank_a": 0, "rank_b": 1}] and not found["symmetric"]
    other = write("other.toml", ORDER.replace("<", "!="))
    assert run(["rules", "check", str(other), str(write("p.csv", "rank_a,rank_b\np,q\n"))]) == 1
    assert "more examples would not: another naming satisfies all that the rule allows" in capsys.readouterr().out


def test_examples_that_violate_rules_are_looked_at(write, capsys):
    rules = write("order.toml", ORDER)
    shown = write("shown.csv", "rank_a,rank_b,holds\n1,2,\n3,2,false\n")
    assert run(["rules", "check", str(rules), str(shown), "--symbols"]) == 0  # 1 < 2 and not 3 < 2
    always = write("always.csv", "a,b,s,holds\n0,2,2,false\n")
    assert run(["rules", "check", str(write("sum.toml", SUM)), str(always), "--symbols"]) == 1
    said = capsys.readouterr().err
    assert "line 2 contradicts rule 1: it is said to be violated, and all symbols satisfy it with a = 0" in said


def test_several_rules_share_examples_or_name_theirs(write):
    text = (
        SUM
        + """
[[rule]]
name = "order"
expression = "a <= b"
probability = 0.9
weight = 2
[rule.variables]
a = "digit"
b = "digit"
"""
    )
    rules = RuleFile.read(write("two.toml", text))
    both = ExampleFile.read(write("both.csv", "a,b,s\nx,y,3\nz,y,1\n"), rules, any_name())
    assert [len(e) for e in both.examples] == [2, 2]
    assert both.examples[1].probability.tolist() == [0.9, 0.9] and both.examples[1].weights.tolist() == [2, 2]
    one = ExampleFile.read(write("one.csv", "rule,a,b,s\norder,x,y,\nrule 1,x,y,2\n"), rules, any_name())
    assert one.lines == ((3,), (2,))


def test_fit_rules_writes_a_run_that_explains_examples(tmp_path, write, capsys):
    x, labels, pairs = rows_and_pairs()
    table = write("rows.csv", "u,v\n" + "".join(f"{u:.4f},{v:.4f}\n" for u, v in x))
    examples = write("examples.csv", "rank_a,rank_b\n" + "".join(f"{a},{b}\n" for a, b in pairs))
    rules, out = write("order.toml", ORDER), tmp_path / "run"
    command = ["fit-rules", str(rules), str(examples), "--table", str(table), "--out", str(out), "--iters", "40"]
    assert run([*command, "--json", "-q"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [name["value"] for name in summary["names"]["names"]] == [1, 2, 3]
    assert all(name["probability"] > 0.95 for name in summary["names"]["names"])
    page = (out / "report.html").read_text()
    assert "What the clusters stand for" in page and "Examples explained" in page and "network ↓ example →" in page
    rules.unlink()  # the run keeps what it learned from
    again = ["fit-rules", "--resume", "--out", str(out), "-q"]
    assert run(again) == 0
    refuse_what_changed(out, examples, write, capsys)
    assert run(["fit", "--resume", "--out", str(out)]) == 2
    assert f"learns from rules: continue it with gedikit fit-rules --resume --out {out}" in capsys.readouterr().err
    plain = tmp_path / "plain"
    assert run(["fit", str(table), "--clusters", "3", "--iters", "1", "--out", str(plain), "-q"]) == 0
    for asked in (["fit-rules", "--resume", "--out", str(plain)], ["explain", str(plain), str(examples)]):
        assert run(asked) == 2
        assert f"{plain} learns from no rules: " in capsys.readouterr().err
    few = write("few.csv", f"rank_a,rank_b\n{pairs[0][0]},{pairs[0][1]}\n{pairs[0][1]},{pairs[0][0]}\n")
    assert run(["explain", str(out), str(few), "--json"]) == 0
    good, bad = json.loads(capsys.readouterr().out)
    assert list(good["worlds"][0]["values"].values()) == (labels[list(pairs[0])] + 1).tolist()
    assert good["log_probability"] > -0.2 > -1 > bad["log_probability"]
    gaps = write("gaps.csv", f"rank_a,rank_b,holds\n{pairs[0][0]},,\n{pairs[0][1]},{pairs[0][0]},no\n")
    assert run(["explain", str(out), str(gaps)]) == 0
    said = capsys.readouterr().out
    assert f"line 2: rank_a is row {pairs[0][0]}, rank_b unknown\n  log P = -0.0" in said  # some row is larger
    assert f"rank_b is row {pairs[0][0]}, said to violate the rule\n  log P = -0.0" in said
    assert f"rank_a={labels[pairs[0][1]] + 1}, rank_b={labels[pairs[0][0]] + 1}\n" in said


def refuse_what_changed(out, examples, write, capsys):
    """A run that goes on learns from what it began with: other files are refused, the same ones may be named."""
    again = ["fit-rules", "--resume", "--out", str(out), "-q"]
    kept = out / "examples.csv"
    assert run([*again[:1], str(out / "rules.toml"), str(examples), *again[1:]]) == 0
    other = write("other.csv", examples.read_text() + "0,1\n")
    assert run([*again[:1], str(out / "rules.toml"), str(other), *again[1:]]) == 2
    assert "began with other examples than" in capsys.readouterr().err
    for path, changed in ((kept, other.read_text()), (out / "rules.toml", ORDER.replace("<", "<="))):
        text = path.read_text()
        path.write_text(changed)
        assert run(again) == 2
        assert f"learns from {path.stem}, and those in {out} are not the same" in capsys.readouterr().err
        path.write_text(text)
    (out / "known-labels.csv").write_text("picture,symbol\n0,1\n")
    assert run(again) == 2
    assert "known labels" in capsys.readouterr().err
    (out / "known-labels.csv").unlink()


@pytest.fixture
def in_files(tmp_path, write):
    """2,400 rows in two Parquet files, pairs of them, and the command that learns from both."""
    pytest.importorskip("pyarrow")
    x, labels, pairs = rows_and_pairs()
    many = np.tile(x, (30, 1))
    for number, part in enumerate(np.split(many, 2)):
        pd.DataFrame(part, columns=["u", "v"]).to_parquet(tmp_path / f"t{number}.parquet", index=False)
    far = [(a + 80 * (i % 30), b + 80 * (29 - i % 30)) for i, (a, b) in enumerate(pairs)]
    examples = write("examples.csv", "rank_a,rank_b\n" + "".join(f"{a},{b}\n" for a, b in far))
    words = ["fit-rules", write("order.toml", ORDER), examples, "--table", tmp_path / "t*.parquet"]
    return [*map(str, words), "--out", str(tmp_path / "run"), "--iters", "40", "-q"], np.tile(labels, 30)


def test_examples_name_rows_of_all_files(in_files, tmp_path, monkeypatch, capsys):
    """Though a fit without examples would learn from some of them."""
    command, labels = in_files
    monkeypatch.setattr(sources, "memory", lambda: 10_000)
    assert run([*command, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["rows"] == 2400
    found = pd.read_csv(tmp_path / "run" / "labels.csv")["cluster"]
    assert (found == labels).mean() > 0.98, "names are those of the rows that examples name"
    (tmp_path / "run" / "model.safetensors").unlink()
    assert run(["fit-rules", "--resume", "--out", str(tmp_path / "run"), "-q"]) == 0
    assert pd.read_csv(tmp_path / "run" / "labels.csv")["cluster"].equals(found)
    few = tmp_path / "few.csv"
    few.write_text("rank_a,rank_b\n2399,5\n")
    capsys.readouterr()
    assert run(["explain", str(tmp_path / "run"), str(few), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(tmp_path / "t*.parquet"), "https://localhost:1/t.parquet"))
    monkeypatch.setattr(Shard, "_remote", property(lambda shard: pytest.fail(f"{shard.place} was opened")))
    for asked in (
        ["fit-rules", "--resume", "--out", str(tmp_path / "run")],
        ["explain", str(config.parent), str(few)],
    ):
        assert run(asked) == 2
        assert "its rows are at https://localhost:1/t.parquet" in capsys.readouterr().err
    pattern = str(tmp_path / "t*.parquet")
    assert run(["fit-rules", "--resume", "--out", str(tmp_path / "run"), "--table", pattern, "-q"]) == 0


def test_rows_that_are_not_in_memory_cannot_be_named(in_files, tmp_path, monkeypatch, capsys):
    command, _ = in_files
    monkeypatch.setattr(rules, "memory", lambda: 40_000)
    assert run(command) == 2
    assert "examples name rows, and not all 2,400 of" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    write_shards(tmp_path / "shards", pictures(300), 150)
    command[command.index("--table") : command.index("--table") + 2] = ["--data", str(tmp_path / "shards")]
    assert run(command) == 2
    assert "examples name rows, and not all 300 of" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--memory", "--bad-shards", "--index"])
def test_rules_have_no_options_about_shards(in_files, capsys, option):
    assert run([*in_files[0], option, "1"]) == 2
    assert "No such option" in capsys.readouterr().err


def test_wrong_questions_are_answered(tmp_path, write, capsys):
    rules = str(write("order.toml", ORDER))
    examples = str(write("examples.csv", "rank_a,rank_b\n0,1\n"))
    assert run(["fit-rules", rules, examples]) == 2
    assert "needs --images, --data or --table" in capsys.readouterr().err
    assert run(["fit-rules", rules, examples, "--data", "moons", "--method", "gedi"]) == 2
    assert "learns from no rules" in capsys.readouterr().err
    assert run(["rules", "check", str(tmp_path / "none.toml")]) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert run(["fit-rules", rules, examples, "--data", "moons", "--seed", "-1"]) == 2
    assert "--seed must not be negative, not -1" in capsys.readouterr().err
    assert run(["explain", str(tmp_path), examples]) == 2
