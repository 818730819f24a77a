"""The examples of docs/symbolic.md run, in order."""

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "symbolic.md"


def test_the_examples_of_the_page_run():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 10
    names: dict[str, object] = {}
    for block in blocks:
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, "docs/symbolic.md", str(PAGE), 0)
            failed, tried = doctest.DocTestRunner().run(test, clear_globs=False)
            assert tried
            assert not failed
        else:
            exec(block, names)
    assert [v.name for v in names["sums"].variables][:3] == ["digit(a0)", "digit(a1)", "digit(a2)"]
    assert names["found"].namings.shape == (2, 10)
