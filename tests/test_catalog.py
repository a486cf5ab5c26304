"""The catalog: what a malformed codemod gets, and how a companion is known for ours."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rewriter import catalog
from rewriter.codemod import Companion
from rewriter.errors import CatalogError

GOOD = '''\
"""Wraps.

Why: for a test.
Drop when: never.
"""

from rewriter.codemod import Codemod, Companion, Insert, Replace, Site, Wrap


class Good(Codemod):
    """A codemod."""

    target = "sglang/srt/m.py"
    supports = ">=0.4"
    sites = (Site("f", "call", "g({x})", Wrap("_p.q")),)
    companions = (Companion("sglang/srt/_rewriter_p.py", "p"),)
'''


@pytest.fixture
def with_codemod(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], Path]]:
    """Return a function that makes a catalog of one codemod, `mine`, with a companion `p`."""
    package = f"catalog_of_{abs(hash(request.node.name))}"
    place = tmp_path / package
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(catalog, "PACKAGE", package)

    def make(text: str) -> Path:
        (place / "runtime").mkdir(parents=True)
        (place / "__init__.py").write_text("")
        (place / "mine.py").write_text(text)
        (place / "runtime" / "__init__.py").write_text("")
        (place / "runtime" / "p.py").write_text('VERSION = "3"\n\n\ndef q(x):\n    return x\n')
        importlib.invalidate_caches()
        return place / "mine.py"

    _forget()
    yield make
    _forget()


def _forget() -> None:
    for cached in (catalog.directory, catalog.load, catalog.companion_bytes):
        cached.cache_clear()


def test_a_codemod_is_found_by_its_modules_name(with_codemod: Callable[[str], Path]) -> None:
    with_codemod(GOOD)
    assert catalog.names() == ["mine"]
    codemod = catalog.load("mine")
    assert (codemod.name, codemod.target) == ("mine", "sglang/srt/m.py")
    assert list(codemod.files()) == ["sglang/srt/m.py"]


SITES = 'sites = (Site("f", "call", "g({x})", Wrap("_p.q")),)'

MALFORMED = {
    "no class": (lambda text: text[: text.index("class")], "defines 0 codemods, expected one"),
    "two classes": (
        lambda text: text + text[text.index("class") :].replace("Good", "Other"),
        "defines 2 codemods, expected one",
    ),
    "no target": (lambda text: text.replace('"sglang/srt/m.py"', '""'), "Good has no `target`"),
    "no range": (lambda text: text.replace('">=0.4"', '""'), "Good has no `supports`"),
    "no sites": (lambda text: text.replace(SITES, "sites = ()"), "Good has no sites"),
    "a target outside": (
        lambda text: text.replace('"sglang/srt/m.py"', '"torch/x.py"'),
        "`torch/x.py` is no path inside the package sglang",
    ),
    "a target above": (
        lambda text: text.replace('"sglang/srt/m.py"', '"sglang/../x.py"'),
        "`sglang/../x.py` is no path inside the package sglang",
    ),
    "no companion": (lambda text: text.replace('"p"),)', '"r"),)'), "its companion"),
    "a template of nothing": (lambda text: text.replace('"g({x})"', '" "'), "looks for nothing"),
    "no template": (lambda text: text.replace('"g({x})"', "()"), "looks for nothing"),
    "an unknown hole": (
        lambda text: text.replace('Wrap("_p.q")', 'Replace("h({y})")'),
        "the call site in f uses {y}, which what it looks for does not have",
    ),
    "a hole of one form alone": (
        lambda text: text.replace('"g({x})", Wrap("_p.q")', '("g({x})", "k({y})"), Insert("{x}")'),
        "uses {x}",
    ),
    "a syntax error": (lambda text: text + "x = (\n", "cannot be imported: SyntaxError: "),
    "a missing import": (
        lambda text: text.replace("from rewriter", "import nowhere\nfrom rewriter"),
        "cannot be imported: ModuleNotFoundError: No module named 'nowhere'",
    ),
    "an error of its own": (lambda text: text + "{}['x']\n", "cannot be imported: KeyError: 'x'"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_codemod_is_an_error_that_names_its_file(
    with_codemod: Callable[[str], Path], name: str
) -> None:
    change, message = MALFORMED[name]
    text = change(GOOD)
    assert text != GOOD
    path = with_codemod(text)
    with pytest.raises(CatalogError) as caught:
        catalog.load("mine")
    assert re.match(rf"{re.escape(str(path))}:\d+: ", str(caught.value))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["other", "", "Mine", "mine.py", "runtime", "../mine", "__init__"])
def test_an_unknown_name_is_told_with_those_that_are_known(
    with_codemod: Callable[[str], Path], name: str
) -> None:
    with_codemod(GOOD)
    with pytest.raises(CatalogError, match=r"is called .*; known: mine"):
        catalog.load(name)
    with pytest.raises(CatalogError, match=r"is called .*; known: mine"):
        catalog.digest(name)


# --- companions ----------------------------------------------------------------------------


def test_a_companion_says_whose_it_is_in_its_first_line(
    with_codemod: Callable[[str], Path],
) -> None:
    with_codemod(GOOD)
    raw = catalog.companion_bytes(Companion("sglang/srt/_rewriter_p.py", "p"))
    first, _, body = raw.partition(b"\n")
    assert first.startswith(b"# rewriter companion p 3 sha256:")
    assert first.endswith(b" (do not edit)")
    assert body == b'VERSION = "3"\n\n\ndef q(x):\n    return x\n'
    assert catalog.companion_version(raw) == ("p", "3", True)


@pytest.mark.parametrize(
    ("old", "new"), [(b"return x", b"return 1"), (b"x\n", b"x\r\n"), (b"    return x\n", b"")]
)
def test_an_edited_companion_is_known_for_edited(
    with_codemod: Callable[[str], Path], old: bytes, new: bytes
) -> None:
    with_codemod(GOOD)
    raw = catalog.companion_bytes(Companion("sglang/srt/_rewriter_p.py", "p"))
    assert catalog.companion_version(raw.replace(old, new)) == ("p", "3", False)


@pytest.mark.parametrize("raw", [b"", b"x = 1\n", b"# rewriter companion\n", b"\xff\xfe\n"])
def test_another_file_is_not_taken_for_ours(raw: bytes) -> None:
    assert catalog.companion_version(raw) is None


def test_a_companion_without_a_version_is_an_error(with_codemod: Callable[[str], Path]) -> None:
    path = with_codemod(GOOD)
    (path.parent / "runtime" / "p.py").write_text("x = 1\n")
    with pytest.raises(CatalogError, match=r"companion p\.py has no line `VERSION"):
        catalog.companion_bytes(Companion("sglang/srt/_rewriter_p.py", "p"))


# --- the digest ----------------------------------------------------------------------------


def test_the_digest_follows_codemod_and_companion(with_codemod: Callable[[str], Path]) -> None:
    path = with_codemod(GOOD)
    digests = [catalog.digest("mine")]
    path.write_text(GOOD + "# more\n")
    digests.append(catalog.digest("mine"))
    companion = path.parent / "runtime" / "p.py"
    companion.write_text(companion.read_text() + "# more\n")
    digests.append(catalog.digest("mine"))
    assert len(set(digests)) == 3
    assert catalog.digest("mine") == digests[-1]


def test_the_digest_follows_what_codemods_share(with_codemod: Callable[[str], Path]) -> None:
    path = with_codemod(GOOD)
    digests = [catalog.digest("mine")]
    shared = path.with_name("_shared.py")
    for text in ("x = 1\n", "x = 2\n"):
        shared.write_text(text)
        digests.append(catalog.digest("mine"))
    shared.rename(path.with_name("_other.py"))
    digests.append(catalog.digest("mine"))
    assert len(set(digests)) == 4
    assert catalog.names() == ["mine"]


def test_what_our_codemods_import_of_each_other_is_in_their_digest() -> None:
    """A module beside them that is not named with a `_` would not be."""
    for name in catalog.names():
        text = (catalog.directory() / f"{name}.py").read_text(encoding="utf-8")
        for module in re.findall(r"^ *(?:from|import) codemods\.(\w+)", text, re.MULTILINE):
            assert module.startswith("_"), f"{name} imports {module}"
            assert (catalog.directory() / f"{module}.py").is_file()
