"""What authors test with: each check fails where it should, and says why."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
from snippets import AFTER, IMPORT, PATH, TWO, TWO_AFTER, TWO_BEFORE, made

from rewriter import pins
from rewriter.codemod import Codemod, Replace, Site
from rewriter.commands.pin import pinned
from rewriter.testing import (
    assert_refuses,
    assert_reverts,
    assert_rewrites,
    assert_untouched,
    check_pins,
    load_definition,
)


def test_rewrites_and_reverts() -> None:
    assert_rewrites(TWO, TWO_BEFORE, TWO_AFTER)
    assert_rewrites(TWO, TWO_BEFORE.decode(), TWO_AFTER.decode(), path=PATH)
    assert_reverts(TWO, TWO_BEFORE)


@pytest.mark.parametrize("change", [(b"\n", b"\r\n"), (b"    _p", b"     _p"), (b"1)\n", b"1)")])
def test_every_byte_counts(change: tuple[bytes, bytes]) -> None:
    with pytest.raises(AssertionError, match=r"(?s)becomes something else\n--- expected.*\n-"):
        assert_rewrites(TWO, TWO_BEFORE, TWO_AFTER.replace(*change))


def test_what_is_not_rewritten_is_told_with_the_nearest() -> None:
    with pytest.raises(AssertionError, match=r"is drifted: `f` has no `g\(a\)`\nnearest: line 4: "):
        assert_rewrites(TWO, TWO_BEFORE.replace(b"g(a)", b"g(a, 1)"), TWO_AFTER)
    with pytest.raises(AssertionError, match="is applied"):
        assert_rewrites(TWO, TWO_AFTER, TWO_AFTER)


def test_a_replacement_that_does_not_give_back_the_bytes() -> None:
    codemod = made(Site("f", "call", "g({x}) + 1", Replace("len({x})")))
    before = "def f():\n    return g(a)  +  1\n"
    assert_rewrites(codemod, before, "def f():\n    return len(a)\n")
    with pytest.raises(AssertionError, match="something else is left"):
        assert_reverts(codemod, before)


def test_refuses() -> None:
    assert_refuses(TWO, TWO_BEFORE.replace(b"g(a)", b"k(a)"), r"`f` has no `g\(a\)`")
    assert_refuses(TWO, b"def f(:\n", "does not parse at line 1")
    with pytest.raises(AssertionError, match="is ready, expected a refusal"):
        assert_refuses(TWO, TWO_BEFORE, "")
    with pytest.raises(AssertionError, match="drifted for another reason than 'because': `f` has"):
        assert_refuses(TWO, TWO_BEFORE.replace(b"g(a)", b"k(a)"), "because")


def test_untouched() -> None:
    alike = b"import c\n\ndef f():\n    return gg(a)\n\ndef h():\n    g.g()\n"
    assert_untouched(TWO, alike)
    with pytest.raises(AssertionError, match="patch: found its line in `h`, line 7"):
        assert_untouched(TWO, alike.replace(b"g.g()", b"g()"))


class Small(Codemod):
    """A class will do as well."""

    target = PATH
    supports = ">=0"
    sites = (IMPORT, Site("h", "line", "g()", AFTER))


def test_a_codemod_is_given_by_class_or_name() -> None:
    assert_rewrites(Small, TWO_BEFORE, TWO_AFTER.replace(b"_p.q(g(a))", b"g(a)"))
    assert_refuses("mla_kv_gather", "import x\n", "is not defined")


def test_pins(tmp_path: Path) -> None:
    good = pinned(TWO, PATH, TWO_BEFORE, "1.0")
    release = SimpleNamespace(read={PATH: TWO_BEFORE}.get)
    pins.save("patch", [good], tmp_path)
    assert check_pins(TWO, tmp_path, release=lambda version: release) == 1
    for part, value in {"source": "0" * 64, "patched": "1" * 64, "sites": good.sites[1:]}.items():
        pins.save("patch", [dataclasses.replace(good, **{part: value})], tmp_path)  # type: ignore[arg-type]
        with pytest.raises(AssertionError, match=rf"patch: {part} of sglang/srt/m\.py in 1\.0: "):
            check_pins(TWO, tmp_path, release=lambda version: release)
    with pytest.raises(AssertionError, match="there are no pins"):
        check_pins(TWO, tmp_path / "none")
    with pytest.raises(AssertionError, match=r"1\.0 has no sglang/srt/m\.py"):
        check_pins(TWO, tmp_path, release=lambda version: SimpleNamespace(read={}.get))


SOURCE = """\
import nowhere

class A(nowhere.Thing):
    def f(self, x: nowhere.Type) -> "B":
        return helper(x) + self.y

    @staticmethod
    def s(x): return x

def g(): return A

def g(): return 2
"""


def test_a_definition_without_what_is_around_it() -> None:
    f = load_definition(SOURCE, "A.f", {"helper": lambda x: x * 2})
    assert f(SimpleNamespace(y=1), 3) == 7
    assert load_definition(SOURCE.encode(), "A.s", {})(4) == 4
    with pytest.raises(LookupError, match="g is defined 2 times"):
        load_definition(SOURCE, "g", {})
    with pytest.raises(LookupError, match=r"A\.h is defined 0 times"):
        load_definition(SOURCE, "A.h", {})


def test_the_fixture_of_releases(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """It comes with the installed tool; a release that cannot be fetched skips, in CI it fails."""
    from rewriter.targets import release
    from rewriter.targets.pip_errors import IndexUnreachable

    closed: list[str] = []

    def fetched(version: str) -> SimpleNamespace:
        if version == "9":
            raise IndexUnreachable("no network")
        return SimpleNamespace(version=version, close=lambda: closed.append(version))

    monkeypatch.setattr(release, "Release", fetched)
    of = request.getfixturevalue("sglang_release")
    assert of("1.0").version == "1.0"
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no network"):
        of("9")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(IndexUnreachable):
        of("9")
