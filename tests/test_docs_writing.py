"""The codemod and the test that docs/writing-a-codemod.md shows, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rewriter import catalog, cli
from rewriter.codemod import Codemod

PAGE = (Path(__file__).parent.parent / "docs" / "writing-a-codemod.md").read_text(encoding="utf-8")
MODULE, TESTS = re.findall(r"^```python[^\n]*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_tests_of_the_page_pass_on_its_codemod(monkeypatch: pytest.MonkeyPatch) -> None:
    module: dict[str, Any] = {"__name__": "rmsnorm_square"}
    exec(compile(MODULE, "module", "exec", dont_inherit=True), module)
    codemod: Codemod = module["RmsnormSquare"]()
    codemod.name = "rmsnorm_square"
    monkeypatch.setattr(catalog, "load", lambda name: codemod)
    space: dict[str, Any] = {"__name__": "tests"}
    exec(compile(TESTS, "tests", "exec", dont_inherit=True), space)
    checks = [v for name, v in space.items() if name.startswith("test_") and name != "test_pins"]
    assert len(checks) == 4
    for check in checks:
        check()


def test_every_verb_and_import_of_the_page_exists() -> None:
    for verb in re.findall(r"^\$ rewriter (\w+)", PAGE, re.MULTILINE):
        assert verb in cli.COMMANDS
    import rewriter.testing

    for name in re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE):
        assert name in rewriter.testing.__all__
