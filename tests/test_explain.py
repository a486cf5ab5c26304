"""What sites looked for and found, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from snippets import PATH, TWO, TWO_AFTER, TWO_BEFORE, made

from rewriter import catalog
from rewriter.cli import main
from rewriter.codemod import Codemod, Replace, Site
from rewriter.explaining import explain
from rewriter.model import State
from rewriter.report.explanation import explanation_lines


def lines(codemod: Codemod, raw: bytes | None, columns: int = 80) -> list[str]:
    told = explain(codemod, {PATH: raw}.get)
    return list(explanation_lines(told, columns=columns, colour=False))


def test_every_site_with_its_place() -> None:
    assert lines(TWO, TWO_BEFORE) == [
        "sglang/srt/m.py",
        "  import in <imports>",
        "    looked for                         │     found",
        "      a function: Find the last import │       line 1: ready",
        "        at the top of the module.      │       import c",
        "      behind it:                       │",
        "      from a import b as _p            │",
        "  call in f",
        "    looked for                         │     found",
        "      g(a)                             │       line 4: ready",
        "      (1 time)                         │       return g(a)",
        "      _p.q(…) around it                │",
        "  line in h",
        "    looked for                         │     found",
        "      g()                              │       line 7: ready",
        "      (1 time)                         │       g()",
        "      behind it:                       │",
        "      _p.attach(1)                     │",
    ]


def test_places_of_a_patched_file_are_where_they_are_now() -> None:
    told = explain(TWO, {PATH: TWO_AFTER}.get)
    assert [(r.line, r.state) for one in told for r in one.found] == [
        (2, State.APPLIED), (5, State.APPLIED), (9, State.APPLIED)
    ]  # fmt: skip
    assert [text for one in told for text in one.texts][1] == "return _p.q(g(a))"


def test_what_came_near_closest_first() -> None:
    codemod = made(Site("f", "call", ("g({x}, 1)", "g({x}, one=1)"), Replace("g({x}, 2)")))
    (one,) = explain(codemod, {PATH: b"def f(a):\n    k(a, b, 1)\n    g(a, 3)\n    z()\n"}.get)
    assert one.found[0].state is State.DRIFTED
    assert one.candidates[0].line == 3
    assert 2 in [near.line for near in one.candidates]


@pytest.mark.parametrize("columns", [80, 81, 120, 200])
def test_columns_are_kept(columns: int) -> None:
    long = made(Site("f", "call", f"g({', '.join(['{x}'] * 40)}, {'y' * 150})", Replace("g({x})")))
    for codemod, raw in ((long, TWO_BEFORE), (TWO, TWO_BEFORE), (TWO, None)):
        assert max(map(len, lines(codemod, raw, columns))) <= columns


def test_a_file_that_is_not_there() -> None:
    assert "there is no sglang/srt/m.py" in lines(TWO, None)[4]


def test_the_command(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    write_files: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(catalog, "load", lambda name: TWO)
    root = write_files(tmp_path, {PATH: TWO_BEFORE, "sglang/__init__.py": b""})
    arguments = ["explain", "two", "--site-packages", str(root)]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert "  call in f\n" in capsys.readouterr().out
    (root / PATH).write_bytes(TWO_BEFORE.replace(b"g(a)", b"g(b)"))
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--json"])
    assert ended.value.code == 1
    told = json.loads(capsys.readouterr().out)["sites"]
    assert [one["found"][0]["state"] for one in told] == ["ready", "drifted", "ready"]
    assert told[1]["near"] == [{"line": 4, "text": "return g(b)"}]
