"""Every place of every codemod, broken in twenty ways and more in real sources: each is refused.

Run with ``-s`` to print the table: places, ways and releases, and what came of them. The oldest and
the newest release of each codemod; with ``REWRITER_TEST_RELEASES=all`` those in between as well.
"""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from breaking import Spot, ways
from equivalence_sources import Releases

from rewriter import catalog, pins
from rewriter.judge import judge
from rewriter.model import State, Verdict

CODEMODS = {"mla_kv_gather": 4, "fa3_kv_gather": 2, "default_max_new_tokens": 2}
"""Codemod → in how many releases at most: the newest, the oldest, and others in between.

A codemod more is one more of these, and in ``breaking`` what is special of its kinds of places.
"""

LEAST = 20
"""Ways for each kind of place."""

REFUSED = (State.DRIFTED, State.PARTIAL, State.TAMPERED)


class Broken(NamedTuple):
    """A kind of place in one release: how many, how often broken, and what was said."""

    codemod: str
    release: str
    kind: str
    places: int
    ways: int
    states: Counter[State]


def releases(codemod: str) -> list[str]:
    """Return the releases in which a codemod's places are broken, oldest first."""
    from packaging.version import Version

    every = {r for pin in pins.load(codemod) if pin.state is State.READY for r in pin.releases}
    order = sorted(every, key=Version)
    last = CODEMODS[codemod] - 1 if os.environ.get("REWRITER_TEST_RELEASES") == "all" else 1
    return [order[(len(order) - 1) * i // last] for i in range(last + 1)]


@pytest.fixture(scope="module")
def table() -> Iterator[list[Broken]]:
    """Collect the table and print it at the end."""
    rows: list[Broken] = []
    yield rows
    print("\n\ncodemod | release | kind of place | places | ways | broken | refused")
    for row in rows:
        refused = sum(row.states[state] for state in REFUSED)
        print(f"{row.codemod} | {row.release} | {row.kind} | {row.places} | {row.ways} | "
              f"{row.states.total()} | {refused}")  # fmt: skip
    total = sum((row.states for row in rows), Counter[State]())
    told = ", ".join(f"{n} {state}" for state, n in total.items())
    print(f"{total.total()} broken sources: {told}")


@pytest.mark.wheels
@pytest.mark.parametrize(
    ("codemod", "version"), [(name, version) for name in CODEMODS for version in releases(name)]
)
def test_a_broken_place_is_refused(
    codemod: str, version: str, release: Releases, table: list[Broken]
) -> None:
    one, shipped = catalog.load(codemod), release(version)
    files = {path: shipped.read(path) for path in one.files()}
    verdict = judge(one, files.get, version)
    assert verdict.state is State.READY
    wrong: list[str] = []
    judged: dict[tuple[str, str], Verdict] = {}
    for kind in dict.fromkeys(site.kind for site in verdict.sites):
        places = [site for site in verdict.sites if site.kind == kind and site.line]
        states: Counter[State] = Counter()
        for site in places:
            raw = files[site.file]
            assert raw is not None
            spot = Spot(site.file, raw, site)
            for name, way in ways(codemod, kind).items():
                text = way(spot)
                where = f"{kind}, line {site.line} of {site.definition}: {name}"
                ast.parse(text)
                assert text != spot.text, where
                if (site.file, text) not in judged:  # several places have one definition
                    read = {**files, site.file: text.encode()}.get
                    judged[site.file, text] = judge(one, read, version)
                found = judged[site.file, text]
                states[found.state] += 1
                if found.state not in REFUSED or not found.reason:
                    wrong.append(f"{where}: {found.state} {found.reason}")
        table.append(Broken(codemod, version, kind, len(places), len(ways(codemod, kind)), states))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("codemod", CODEMODS)
def test_there_are_twenty_ways_and_more(codemod: str) -> None:
    for kind in {site.kind for site in catalog.load(codemod).sites}:
        assert len(ways(codemod, kind)) >= LEAST, kind
