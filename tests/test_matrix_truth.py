"""States against what is known otherwise: the table of releases, and a reader of casts by ``ast``.

The reader here shares nothing with the engine: no LibCST, no templates, no data flow of ours. It
follows names through plain assignments, which is all that the real sources do.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from matrix_history import CODEMOD, FILE, source

from rewriter import catalog, walk
from rewriter.blobs import Judge
from rewriter.matrix import of_history, of_releases
from rewriter.model import State, Verdict
from rewriter.targets.history import History
from rewriter.targets.release import Release

BACKEND = "FlashInferMLAAttnBackend"
FORWARDS = ("forward_extend", "forward_decode")
UPDATERS = ("FlashInferMLAIndicesUpdaterDecode", "FlashInferMLAIndicesUpdaterPrefill")

# The file came with 0.4.3.post3; upstream's change 6109 brought the cast, with 0.4.6.post5.
TRUTH = {
    State.ABSENT: "0.4.2 0.4.2.post4 0.4.3 0.4.3.post1 0.4.3.post2",
    State.UPSTREAM: "0.4.3.post3 0.4.3.post4 0.4.4 0.4.4.post1 0.4.4.post2 0.4.4.post3 0.4.4.post4 "
    "0.4.5 0.4.5.post1 0.4.5.post2 0.4.5.post3 0.4.6 0.4.6.post1 0.4.6.post2 0.4.6.post3 "
    "0.4.6.post4",
    State.READY: "0.4.6.post5 0.4.7 0.4.7.post1 0.4.8 0.4.8.post1 0.4.9 0.4.9.post1 0.4.9.post2 "
    "0.4.9.post3 0.4.9.post4 0.4.9.post5 0.4.9.post6 0.4.10 0.4.10.post1 0.4.10.post2 0.5.0rc0 "
    "0.5.0rc1 0.5.0rc2 0.5.1 0.5.1.post1 0.5.1.post2 0.5.1.post3 0.5.2rc0 0.5.2rc1 0.5.2rc2 0.5.2 "
    "0.5.3rc0 0.5.3 0.5.3.post1 0.5.3.post2 0.5.3.post3 0.5.4 0.5.4.post1 0.5.4.post2 0.5.4.post3 "
    "0.5.5 0.5.5.post1 0.5.5.post2 0.5.5.post3 0.5.6 0.5.6.post1 0.5.6.post2 0.5.7 0.5.8 "
    "0.5.8.post1 0.5.9 0.5.10 0.5.10.post1 0.5.11 0.5.12 0.5.12.post1 0.5.13 0.5.13.post1 0.5.14 "
    "0.5.15 0.5.15.post1 0.5.16 0.5.17 0.5.18 0.5.19 0.5.20 0.5.21 0.5.22 0.5.23",
}
RELEASES = {release: state for state, listed in TRUTH.items() for release in listed.split()}

# One release of each shape; the others are looked at where their wheels are at hand.
ALWAYS = "0.4.3 0.4.4 0.4.6.post4 0.4.6.post5 0.4.8 0.5.1 0.5.3 0.5.9 0.5.14 0.5.15 0.5.19 0.5.22"


def method_of(tree: ast.Module, owner: str, name: str) -> ast.FunctionDef | None:
    """Return a method of a class at the top of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == owner:
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == name:
                    return inner
    return None


def calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    """Yield the calls of a method of this name at or below a node."""
    for each in ast.walk(node):
        if not isinstance(each, ast.Call) or not isinstance(each.func, ast.Attribute):
            continue
        if each.func.attr == name:
            yield each


def casts_that_reach_run(method: ast.FunctionDef) -> int:
    """Count conversions of the pool's buffer among all that the arguments of ``run`` come from."""
    bound: dict[str, list[ast.expr]] = {}
    for node in ast.walk(method):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    bound.setdefault(target.id, []).append(node.value)
    todo: list[ast.expr] = []
    for run in calls(method, "run"):
        todo += [*run.args, *(keyword.value for keyword in run.keywords)]
    reached: list[ast.expr] = []
    seen: set[str] = set()
    while todo:
        value = todo.pop()
        reached.append(value)
        for node in ast.walk(value):
            if isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                todo += bound.get(node.id, [])
    found = {
        cast.lineno
        for value in reached
        for cast in calls(value, "to")
        if isinstance(cast.func, ast.Attribute) and leads_to_pool(cast.func.value, bound)
    }
    return len(found)


def leads_to_pool(receiver: ast.expr, bound: dict[str, list[ast.expr]]) -> bool:
    """Tell whether what is converted is, or is bound to, the pool's buffer."""
    if any(True for _ in calls(receiver, "get_key_buffer")):
        return True
    names = [node.id for node in ast.walk(receiver) if isinstance(node, ast.Name)]
    return any(
        True for name in names for value in bound.get(name, ())
        for _ in calls(value, "get_key_buffer")
    )  # fmt: skip


def plans(method: ast.FunctionDef) -> int:
    """Count plan calls: of a wrapper, or the module's own fast ones."""
    fast = [
        node
        for node in ast.walk(method)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id.startswith("fast_mla_")
    ]
    return len(list(calls(method, "plan"))) + len(fast)


def truth(raw: bytes) -> tuple[State, int, int]:
    """Return the state by this file's own reader, the casts and the plans that it counts."""
    tree = ast.parse(raw)
    methods = [method_of(tree, BACKEND, name) for name in FORWARDS]
    updaters = [method_of(tree, name, "call_begin_forward") for name in UPDATERS]
    casts = [casts_that_reach_run(method) for method in methods if method is not None]
    planned = [plans(method) for method in updaters if method is not None]
    if len(casts) < 2 or len(planned) < 2:
        return State.DRIFTED, sum(casts), sum(planned)
    if not any(casts):
        return State.UPSTREAM, 0, sum(planned)
    whole = all(casts) and all(planned)
    return State.READY if whole else State.DRIFTED, sum(casts), sum(planned)


def counted(verdict: Verdict, kind: str) -> int:
    """Count the places of a kind that a verdict found ready."""
    return sum(s.kind == kind and s.state is State.READY for s in verdict.sites)


def assert_true(verdict: Verdict, raw: bytes) -> None:
    """Compare a verdict with the reader: the state, and where ready the number of places."""
    state, casts, planned = truth(raw)
    assert verdict.state is state
    if state is State.READY:
        assert (counted(verdict, "cast"), counted(verdict, "plan")) == (casts, planned)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("ready", (State.READY, 2, 2)), ("upstream", (State.UPSTREAM, 0, 2)),
     ("drifted", (State.DRIFTED, 1, 2))],
)  # fmt: skip
def test_the_reader_itself(kind: str, expected: tuple[State, int, int]) -> None:
    assert truth(source(kind)) == expected


def test_the_table_is_whole() -> None:
    assert len(RELEASES) == sum(len(listed.split()) for listed in TRUTH.values())
    assert set(ALWAYS.split()) <= set(RELEASES)


def test_pins_say_the_same() -> None:
    from rewriter import pins

    for pin in pins.load(CODEMOD):
        for release in pin.releases:
            assert pin.state is RELEASES.get(release, State.READY), release


@pytest.mark.wheels
@pytest.mark.parametrize("version", ALWAYS.split())
def test_releases(version: str, release: Callable[[str], Release]) -> None:
    assert_release(release(version), version)


@pytest.mark.wheels
def test_releases_at_hand(release: Callable[[str], Release], wheel_cache_of_tests: Path) -> None:
    """Every other release of the table whose wheel the cache of the tests happens to hold."""
    names = {path.name.split("-")[1] for path in (wheel_cache_of_tests / "wheels").glob("*.whl")}
    at_hand = [v for v in RELEASES if v in names and v not in ALWAYS.split()]
    if not at_hand:
        pytest.skip("no wheels in the cache of the tests but those of the other test")
    for version in at_hand:
        assert_release(release(version), version)


def assert_release(target: Release, version: str) -> None:
    """Compare a release's row with the table and with the reader."""
    judge = Judge([catalog.load(CODEMOD)])
    [row] = of_releases(judge, [(version, lambda: target)])
    assert row.verdict is not None
    assert row.state is RELEASES[version], version
    raw = target.read(FILE)
    if raw is not None:
        assert_true(row.verdict, raw)


@pytest.mark.skipif(
    "REWRITER_HISTORY" not in os.environ,
    reason="REWRITER_HISTORY names no clone of sglang",
)
def test_every_source_of_a_real_history() -> None:
    history = History(os.environ["REWRITER_HISTORY"])
    judge = Judge([catalog.load(CODEMOD)])
    points = walk.commits(history, history.span("HEAD"), judge.codemods)
    rows = of_history(judge, history, points)
    assert len(rows) >= len(points) > 1
    with history.reader() as read:
        for point, row in zip(points, rows, strict=True):
            assert row.verdict is not None, row.error
            if FILE in point.files:
                assert_true(row.verdict, read(point.files[FILE]))
            else:
                assert row.state is State.ABSENT
    for row in rows:
        assert row.changed == bool(row.before and row.state not in row.before)
