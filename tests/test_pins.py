"""Pins: what is kept of a source, how pins are added, and what a malformed one gets."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sources import PATH, backend

from rewriter import catalog, pins
from rewriter.commands.pin import pinned
from rewriter.errors import RefusedError, UsageError
from rewriter.model import State
from rewriter.pins import Pin, PinnedSite

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CODEMOD = catalog.load("mla_kv_gather")


def pin(source: str = "a", *releases: str, patched: str = "b") -> Pin:
    return Pin(
        PATH, source * 64, releases or ("0.5.2",), State.READY,
        (PinnedSite("A.f", "cast", 7),), patched * 64,
    )  # fmt: skip


def test_a_pin_of_our_own_source() -> None:
    raw = backend().encode()
    made = pinned(CODEMOD, PATH, raw, "0.5.9")
    assert (made.file, made.source, made.releases) == (PATH, pins.sha256(raw), ("0.5.9",))
    assert (made.state, len(made.sites), len(made.patched)) == (State.READY, 7, 64)
    assert made.sites[0] == PinnedSite("<imports>", "import", 10)


def test_what_needs_no_patch_is_pinned_without_a_patched_hash() -> None:
    made = pinned(CODEMOD, PATH, backend(extend="none", decode="none").encode(), "0.4.4")
    assert (made.state, made.patched) == (State.UPSTREAM, "")


def test_what_has_drifted_is_not_pinned() -> None:
    raw = backend(decode="helper method").encode()
    with pytest.raises(RefusedError, match=r"is drifted in 0\.5\.9 .*; not pinned"):
        pinned(CODEMOD, PATH, raw, "0.5.9")


def test_saved_and_loaded_again(tmp_path: Path) -> None:
    made = [pin("c", "0.5.10", "0.5.11"), pin("a", "0.5.2"), pin("b", "0.5.9", patched="")]
    written = pins.save("x", made, tmp_path)
    assert sorted(path.name for path in written) == [
        "0.5.10-cccccccccc.toml", "0.5.2-aaaaaaaaaa.toml", "0.5.9-bbbbbbbbbb.toml",
    ]  # fmt: skip
    loaded = pins.load("x", tmp_path)
    assert loaded == [made[1], made[2], made[0]], "oldest first, by version and not by text"


def test_saving_removes_pins_that_are_no_longer_any(tmp_path: Path) -> None:
    pins.save("x", [pin("a", "0.5.2"), pin("b", "0.5.3")], tmp_path)
    (tmp_path / "x" / "note.txt").write_text("kept")
    pins.save("x", [pin("b", "0.5.3")], tmp_path)
    assert sorted(p.name for p in (tmp_path / "x").iterdir()) == [
        "0.5.3-bbbbbbbbbb.toml", "note.txt",
    ]  # fmt: skip


def test_merging_adds_releases_and_renews_what_was_found() -> None:
    known = [pin("a", "0.5.9", "0.5.10"), pin("b", "0.5.2")]
    new = [pin("a", "0.5.8", patched="d"), pin("c", "0.5.13rc1", "0.5.13")]
    merged = {p.source[0]: p for p in pins.merge(known, new)}
    assert merged["a"].releases == ("0.5.8", "0.5.9", "0.5.10")
    assert merged["a"].patched == "d" * 64
    assert merged["b"] == known[1]
    assert merged["c"].releases == ("0.5.13rc1", "0.5.13")


def test_lookup_knows_a_source_and_its_patched_form(tmp_path: Path) -> None:
    raw, patched = b"x = 1\n", b"x = 2\n"
    made = Pin(PATH, pins.sha256(raw), ("1.0",), State.READY, (), pins.sha256(patched))
    pins.save("x", [made], tmp_path)
    assert pins.lookup("x", PATH, raw, tmp_path) == made
    assert pins.lookup("x", PATH, patched, tmp_path) == made
    assert pins.lookup("x", "sglang/other.py", raw, tmp_path) is None
    assert pins.lookup("x", PATH, b"x = 3\n", tmp_path) is None
    assert pins.lookup("y", PATH, raw, tmp_path) is None


VALID = f'''\
file = "{PATH}"
source = "{"a" * 64}"
releases = ["0.5.2"]
state = "ready"
sites = []
'''

MALFORMED: dict[str, Callable[[str], str]] = {
    "no TOML": lambda text: text + "[",
    "no source": lambda text: text.replace("source", "sauce"),
    "an unknown state": lambda text: text.replace("ready", "fine"),
    "sites of another kind": lambda text: text.replace("sites = []", "sites = [1]"),
    "a site without a line": lambda text: text.replace("[]", '[{definition = "f", kind = "x"}]'),
    "no releases": lambda text: text.replace('["0.5.2"]', "[]"),
    "a release that is no version": lambda text: text.replace("0.5.2", "main"),
    "no hash": lambda text: text.replace("a" * 64, "abc"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_pin_is_an_error_that_names_its_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x" / "0.5.2-a.toml"
    path.parent.mkdir()
    path.write_text(VALID)
    assert len(pins.load("x", tmp_path)) == 1
    path.write_text(MALFORMED[name](VALID))
    with pytest.raises(UsageError) as caught:
        pins.load("x", tmp_path)
    assert str(caught.value).startswith(f"{path}: malformed pin: ")


def test_no_pins_for_a_codemod_without_any(tmp_path: Path) -> None:
    assert pins.load("x", tmp_path) == []


def test_the_pins_that_are_shipped() -> None:
    shipped = pins.load("mla_kv_gather")
    assert len({p.source for p in shipped}) == len(shipped)
    releases = [release for p in shipped for release in p.releases]
    assert len(releases) == len(set(releases))
    for each in shipped:
        assert each.file == CODEMOD.target
        assert bool(each.patched) is (each.state is State.READY)
        assert {s.kind for s in each.sites} >= {"import", "constructor", "plan", "cast"}


def test_pins_hold_facts_and_no_source() -> None:
    """Hashes, names, versions and line numbers: nothing that could be a line of upstream's."""
    facts = {
        "file": r"sglang/[\w/]+\.py",
        "source": "[0-9a-f]{64}",
        "patched": "[0-9a-f]{64}",
        "releases": r"[\w.]+",
        "state": "ready|upstream",
        "definition": r"<imports>|[\w.]+(\.<fields>)?",
        "kind": r"\w+",
        "line": r"\d+",
    }
    for path in pins.shipped().rglob("*.toml"):
        value = tomllib.loads(path.read_text(encoding="utf-8"))
        for table in (value, *value.pop("sites")):
            for key, fact in table.items():
                for one in fact if isinstance(fact, list) else [fact]:
                    assert re.fullmatch(facts[key], str(one)), f"{path}: {key}"
