"""From files to one verdict: companions, versions, several files, several codemods."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet
from snippets import PATH, made
from sources import EPOCHS, backend
from sources import PATH as BACKEND
from targets import COMPANION, companion, patched

from rewriter import catalog
from rewriter.codemod import Codemod, Insert, Replace, Site, Wrap, import_line
from rewriter.errors import CatalogError, RefusedError, SourceError
from rewriter.judge import changes, judge, out_of_range
from rewriter.model import Change, State, Verdict

GATHER = catalog.load("mla_kv_gather")
OTHER = "sglang/srt/other.py"


def verdict(
    files: dict[str, bytes],
    version: str | None = "0.5.9",
    *,
    codemod: Codemod = GATHER,
    **more: bool,
) -> Verdict:
    return judge(codemod, files.get, version, **more)


# --- companions ----------------------------------------------------------------------------

READY, DONE = backend().encode(), patched().encode()
OLDER = catalog.companion_header("kv_gather", "0", b"x = 1\n") + b"x = 1\n"

COMPANIONS = {
    "ready": ({BACKEND: READY}, State.READY, ""),
    "applied": ({BACKEND: DONE, COMPANION: companion()}, State.APPLIED, ""),
    "applied, companion missing": ({BACKEND: DONE}, State.PARTIAL, "is missing"),
    "applied, companion of another version": (
        {BACKEND: DONE, COMPANION: OLDER},
        State.PARTIAL,
        "is another version of ours (kv_gather 0)",
    ),
    "applied, companion edited": (
        {BACKEND: DONE, COMPANION: companion() + b"#\n"},
        State.TAMPERED,
        "was edited",
    ),
    "applied, a stranger in its place": (
        {BACKEND: DONE, COMPANION: b"x = 1\n"},
        State.TAMPERED,
        "is there, but it is not ours",
    ),
    "left behind, unused": (
        {BACKEND: READY, COMPANION: companion()},
        State.ORPHANED,
        "no file of this release uses it",
    ),
    "left behind, an older one": (
        {BACKEND: READY, COMPANION: OLDER},
        State.ORPHANED,
        "no file of this release uses it",
    ),
    "left behind where the file is gone": (
        {COMPANION: companion()},
        State.ORPHANED,
        "was left behind; this release has no sglang/",
    ),
    "left behind upstream": (
        {BACKEND: backend(**EPOCHS["E1"]).encode(), COMPANION: companion()},
        State.ORPHANED,
        "no file of this release uses it",
    ),
    "absent": ({}, State.ABSENT, "this sglang has no sglang/"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPANIONS)
def test_the_file_and_its_companion(name: str) -> None:
    files, state, reason = COMPANIONS[name]
    found = verdict(files)
    assert found.state is state
    assert reason in found.reason
    told = {site.kind for site in found.sites}
    assert ("companion" in told) is (state in (State.APPLIED, State.PARTIAL, State.TAMPERED))


def test_a_strangers_file_in_the_companions_place_is_not_taken_for_ours() -> None:
    """Writing over it would destroy somebody's file."""
    for files in ({BACKEND: READY, COMPANION: b"x = 1\n"}, {COMPANION: b"x = 1\n"}):
        found = verdict(files)
        assert found.state is State.TAMPERED
        assert found.reason == f"{COMPANION} is there, but it is not ours"


# --- versions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("0.5.9", State.READY),
        ("0.4.6.post5", State.READY),
        ("0.4.6.post4", State.UNSUPPORTED),
        ("0.5.9.post1", State.READY),
        ("0.5.9+cu128", State.READY),
        ("0.5.10rc0", State.READY),
        ("0.5.24.dev3+gabc", State.READY),
        ("0.6", State.UNSUPPORTED),
        ("0.6.0rc1", State.UNSUPPORTED),
        ("1.0", State.UNSUPPORTED),
        (None, State.READY),
    ],
)
def test_the_supported_range(version: str | None, state: State) -> None:
    assert verdict({BACKEND: READY}, version).state is state
    assert verdict({BACKEND: READY}, version, force_version=True).state is State.READY


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({}, State.ABSENT),
        ({BACKEND: DONE, COMPANION: companion()}, State.APPLIED),
        ({BACKEND: backend(**EPOCHS["E1"]).encode()}, State.UPSTREAM),
        ({BACKEND: DONE}, State.PARTIAL),
        ({BACKEND: backend(decode="helper method").encode()}, State.UNSUPPORTED),
    ],
)
def test_the_version_comes_after_what_the_files_prove(
    files: dict[str, bytes], state: State
) -> None:
    assert verdict(files, "0.6").state is state


VERSIONS = [
    "0.4", "0.4.0", "0.4.6.post4", "0.4.6.post5", "0.4.6.post10", "0.4.7", "0.5", "0.5.0.post1",
    "0.5.9", "0.5.10", "0.6", "0.6.0", "0.6.post1", "0.10", "0.6rc1", "0.5.9+cu1", "0.5.9.dev1",
    "1",
]  # fmt: skip
RANGES = [">=0.4.6.post5,<0.6", ">=0.5,<0.5.10", ">=0.4.0,<1", ">=0.6.post1,<1", ">=0.5.9,<0.6rc1"]


@pytest.mark.parametrize("supports", [*RANGES, "~=0.5.0", "!=0.5.9", "==0.5.*", "<0.6,>=0.5"])
def test_the_short_way_of_comparing_agrees_with_packaging(supports: str) -> None:
    codemod = made(Site("f", "call", "g({x})", Wrap("_p.q")))
    codemod.supports = supports
    for version in VERSIONS:
        inside = SpecifierSet(supports).contains(version, prereleases=True)
        assert (out_of_range(codemod, version) == "") is inside, version


def test_a_range_that_is_none_is_the_codemods_fault() -> None:
    broken = made(Site("f", "call", "g({x})", Wrap("_p.q")))
    broken.supports = "newer than 0.5"
    with pytest.raises(CatalogError, match="codemod patch: `supports` is no PEP 440 range"):
        verdict({PATH: b"def f():\n    g(1)\n"}, codemod=broken)


# --- several files -------------------------------------------------------------------------

BOTH = made(
    Site("f", "call", "g({x})", Wrap("_p.q")),
    Site("h", "call", "g({x})", Wrap("_p.q"), file=OTHER),
)
ONE, TWO = b"def f():\n    g(1)\n", b"def h():\n    g(2)\n"
ONE_DONE, TWO_DONE = b"def f():\n    _p.q(g(1))\n", b"def h():\n    _p.q(g(2))\n"

SEVERAL = {
    "both ready": (ONE, TWO, State.READY, ""),
    "both applied": (ONE_DONE, TWO_DONE, State.APPLIED, ""),
    "one applied": (ONE_DONE, TWO, State.PARTIAL, "only some of the files are patched"),
    "the other applied": (ONE, TWO_DONE, State.PARTIAL, "only some of the files are patched"),
    "one drifted": (ONE, b"def h(): pass\n", State.DRIFTED, "`h` has no `g({x})`"),
    "one applied, one drifted": (
        ONE_DONE, b"def h(): pass\n", State.PARTIAL, "`h` has no `g({x})`",
    ),
    "one tampered": (
        ONE_DONE.replace(b"(1))", b"(1), 2)"), TWO_DONE, State.TAMPERED, "our lines were edited",
    ),
    "one missing": (ONE, None, State.DRIFTED, f"this sglang has no {OTHER}, which the codemod"),
    "one missing, one applied": (
        ONE_DONE, None, State.PARTIAL, f"this sglang has no {OTHER}, which the codemod",
    ),
    "both missing": (None, None, State.ABSENT, f"this sglang has no {PATH}"),
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_a_codemod_of_two_files_has_one_verdict(name: str) -> None:
    one, two, state, reason = SEVERAL[name]
    found = judge(BOTH, {PATH: one, OTHER: two}.get, None)
    assert found.state is state
    assert reason in found.reason
    assert {site.file for site in found.sites} <= {PATH, OTHER}


def test_a_file_that_does_not_parse_is_no_verdict() -> None:
    with pytest.raises(SourceError, match=r"sglang/srt/other\.py: does not parse"):
        judge(BOTH, {PATH: ONE, OTHER: b"print 'x'\n"}.get, None)


# --- changes -------------------------------------------------------------------------------


def test_changes_of_a_ready_and_of_an_applied_codemod() -> None:
    files = {PATH: ONE, OTHER: TWO}
    assert changes([BOTH], files.get) == [
        Change(PATH, ONE, ONE_DONE), Change(OTHER, TWO, TWO_DONE),
    ]  # fmt: skip
    assert changes([BOTH], {PATH: ONE_DONE, OTHER: TWO_DONE}.get) == []
    assert changes([BOTH], {PATH: ONE_DONE, OTHER: TWO}.get) == [Change(OTHER, TWO, TWO_DONE)]


def test_a_companion_is_a_new_file() -> None:
    made_of = changes([GATHER], {BACKEND: READY}.get)
    assert made_of == [Change(BACKEND, READY, DONE), Change(COMPANION, None, companion())]


FIRST = made(
    import_line("from a import b as _b"), Site("f", "call", "g({x})", Wrap("_b.q")), name="first"
)
SECOND = made(
    import_line("from a import c as _c"), Site("f", "call", "h({x})", Wrap("_c.q")), name="second"
)
SHARED = b"import os\n\ndef f():\n    g(1)\n    h(2)\n"


def test_codemods_of_one_file_are_one_change() -> None:
    (change,) = changes([FIRST, SECOND], {PATH: SHARED}.get)
    assert change.before == SHARED
    assert change.after == (
        b"import os\nfrom a import b as _b\nfrom a import c as _c\n\ndef f():\n"
        b"    _b.q(g(1))\n    _c.q(h(2))\n"
    )


def test_codemods_that_want_one_place_are_refused() -> None:
    line = Site("f", "line", "h(2)", Insert("_b.attach()"))
    rival = made(Site("f", "line", "h(2)", Insert("_c.attach()")), name="rival")
    with pytest.raises(RefusedError, match=r"and \w+ want the same place of sglang/srt/m\.py: "):
        changes([made(line, name="first"), rival], {PATH: SHARED}.get)


def test_one_whose_replacement_takes_the_others_place_is_refused() -> None:
    greedy = made(Site("f", "call", "g({x})", Replace("len({x})")), name="greedy")
    with pytest.raises(ValueError, match=r"first: .* is drifted"):
        changes([greedy, FIRST], {PATH: SHARED}.get)
