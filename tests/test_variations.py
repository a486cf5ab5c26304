"""Real sources, spelled another way: rewritten, and run in the modes of ``verify``, bit for bit.

The ways are those of ``breaking``, but for what they do: these keep the meaning. Run with ``-s`` to
print the table.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("torch")

from breaking import Spot, Way, _cast, _keys, _plan, _run
from equivalence_sources import COMPANION, Releases
from test_broken_sites import releases

from rewriter import catalog, engine
from rewriter.model import SiteResult, State
from rewriter.probes.equivalence.modes import SCENARIOS
from rewriter.probes.equivalence.verifying import examine

CODEMOD = catalog.load("mla_kv_gather")

ENDS = (releases("mla_kv_gather")[0], releases("mla_kv_gather")[-1])
"""The oldest release and the newest."""

MODES = tuple(
    scenario
    for scenario in SCENARIOS
    if scenario.name in ("decode, eager", "prefill, paged", "decode, CUDA graphs")
)


def _statement(code: str) -> Way:
    """Return the way that puts other lines in the place of a cast's statement."""

    def way(spot: Spot) -> str:
        statement, name = _keys(spot)
        call = spot.call("to")
        assert isinstance(call.func, ast.Attribute)
        lines = code.replace("KEYS", name).replace("POOL", spot.code(call.func.value))
        return spot.instead(statement, lines.replace("CAST", spot.code(call)))

    return way


def _named(arguments: list[str], names: tuple[str, ...]) -> list[str]:
    """Return positional arguments by keyword; those that have one keep it."""
    return [
        part if _has_keyword(part) else f"{name}={part}"
        for part, name in zip(arguments, (*names, *[""] * len(arguments)), strict=False)
    ]


def _has_keyword(part: str) -> bool:
    call = ast.parse(f"f({part})", mode="eval").body
    assert isinstance(call, ast.Call)
    return bool(call.keywords)


_RUN = ("q_nope", "q_pe", "ckv_cache", "kpe_cache")

CAST: dict[str, Way] = {
    "dtype by keyword": _cast("{pool}.to(dtype={dtype})"),
    "in brackets": _cast("((({pool})).to(({dtype})))"),
    "with comments": _cast("(  # all\n{pool}  # of it\n.to(  # in\n{dtype}  # this\n))"),
    "two steps": _statement("KEYS = (POOL)\nKEYS = KEYS.to(q.dtype)"),
    "two names": _statement("raw = (POOL)\nwanted = q.dtype\nKEYS = raw.to(wanted)"),
    "both arms": _statement("if layer.layer_id:\n    KEYS = (CAST)\nelse:\n    KEYS = (CAST)"),
    "one of two": _statement("KEYS = (CAST) if layer.layer_id else (CAST)"),
    "walrus": _statement("if (KEYS := (CAST)) is None:\n    raise RuntimeError"),
    "in a try": _statement("try:\n    KEYS = (CAST)\nfinally:\n    self.tried = True"),
    "in a with": _statement("with torch.no_grad():\n    KEYS = (CAST)"),
    "as pairs": _statement("KEYS, wanted = (CAST), q.dtype"),
    "annotated": _statement("KEYS: object = (CAST)"),
    "contiguous": _cast("{pool}.contiguous().to({dtype})"),
    "run by keyword": _run(lambda w, a: ("", f"{w}.run({', '.join(_named(a, _RUN))})")),
    "run by keyword, turned round": _run(
        lambda w, a: ("", f"{w}.run({', '.join(reversed(_named(a, _RUN)))})")),
    "keys in locals": _run(lambda w, a: (
        f"ckv, kpe = {a[2]}, {a[3]}\n", f"{w}.run({', '.join([*a[:2], 'ckv', 'kpe', *a[4:]])})")),
}  # fmt: skip

PLAN: dict[str, Way] = {
    "indices in a local": _plan(lambda f, w, a, i: (
        f"rows = {i}\n", f"{f}({', '.join('rows' if p == i else p for p in a)})"
        if i in a else f"{f}({', '.join(a)})")),
}  # fmt: skip

VARIATIONS: dict[str, tuple[str, Way]] = {
    **{name: ("cast", way) for name, way in CAST.items()},
    **{name: ("plan", way) for name, way in PLAN.items()},
}


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """Collect the rows and print them at the end."""
    rows: list[str] = []
    yield rows
    print("\n\nrelease | spelled | places | modes: rows converted before, after")
    print("\n".join(rows))
    print(f"{len(rows)} real sources spelled another way: all rewritten, all equal bit for bit")


def everywhere(raw: bytes, kind: str, way: Callable[[Spot], str]) -> tuple[bytes, int]:
    """Spell every place of a kind another way; return the file and how many there were."""
    total = len(_places(raw, kind))
    for number in range(total):
        site = _places(raw, kind)[number]
        raw = way(Spot(CODEMOD.target, raw, site)).encode()
    return raw, total


def _places(raw: bytes, kind: str) -> list[SiteResult]:
    """Return the places of a kind; those that a change has doubled count once."""
    found = engine.examine(CODEMOD, CODEMOD.target, raw)
    assert found.state is State.READY, found.reason
    sites = [site for site in found.sites if site.kind == kind]
    if kind == "cast":
        return list({site.definition: site for site in reversed(sites)}.values())[::-1]
    return sites


@pytest.mark.wheels
@pytest.mark.parametrize("version", ENDS)
@pytest.mark.parametrize("name", VARIATIONS)
def test_a_real_source_spelled_another_way(
    name: str, version: str, release: Releases, table: list[str]
) -> None:
    shipped = release(version).read(CODEMOD.target)
    assert shipped is not None
    kind, way = VARIATIONS[name]
    raw, places = everywhere(shipped, kind, way)
    patched = engine.apply(CODEMOD, CODEMOD.target, raw)
    told = []
    for mode in MODES:
        row = examine(mode, raw, patched, COMPANION)
        assert row.state == "equal", f"{mode.name}: {row.state} {row.detail}"
        assert row.after < row.before, mode.name
        told.append(f"{mode.name}: {row.before}, {row.after}")
    table.append(f"{version} | {name} | {places} | {'; '.join(told)}")
