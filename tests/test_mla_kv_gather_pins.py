"""mla_kv_gather on every source that was released: what the pins say, and what a formatter does."""

from __future__ import annotations

import ast
from collections.abc import Callable

import black
import pytest

from rewriter import catalog, engine, pins
from rewriter.judge import judge
from rewriter.model import State
from rewriter.targets.release import Release

pytestmark = pytest.mark.wheels

CODEMOD = catalog.load("mla_kv_gather")
PINS = pins.load("mla_kv_gather")
READY = [pin for pin in PINS if pin.state is State.READY]
RELEASES = [(release, pin) for pin in PINS for release in pin.releases]
ABSENT = ["0.4.2", "0.4.2.post4", "0.4.3"]

Fetch = Callable[[str], Release]


def first(pin: pins.Pin) -> str:
    return pin.releases[0]


def source(release: Fetch, pin: pins.Pin) -> bytes:
    raw = release(first(pin)).read(pin.file)
    assert raw is not None
    return raw


@pytest.mark.parametrize("pin", PINS, ids=first)
def test_pinned_source_sites_and_result(release: Fetch, pin: pins.Pin) -> None:
    """Hash, rewrite, hash, and again: no edit."""
    raw = source(release, pin)
    assert pins.sha256(raw) == pin.source
    found = engine.examine(CODEMOD, pin.file, raw)
    assert found.state is pin.state
    sites = [(s.definition, s.kind, s.line) for s in found.sites if s.line is not None]
    assert sites == [(s.definition, s.kind, s.line) for s in pin.sites]
    if pin.state is State.UPSTREAM:
        assert found.patched is None
        return
    after = engine.apply(CODEMOD, pin.file, raw)
    assert pins.sha256(after) == pin.patched
    assert engine.apply(CODEMOD, pin.file, after) is after
    assert engine.examine(CODEMOD, pin.file, after).pristine == raw


@pytest.mark.parametrize("width", [79, 120])
@pytest.mark.parametrize("pin", READY, ids=first)
def test_a_formatter_over_the_whole_file_before(release: Fetch, pin: pins.Pin, width: int) -> None:
    raw = source(release, pin)
    formatted = black.format_str(raw.decode(), mode=black.Mode(line_length=width)).encode()
    assert engine.examine(CODEMOD, pin.file, formatted).state is State.READY
    after = engine.apply(CODEMOD, pin.file, formatted)
    assert tree(after) == tree(engine.apply(CODEMOD, pin.file, raw))


@pytest.mark.parametrize("pin", [READY[0], READY[len(READY) // 2], READY[-1]], ids=first)
def test_a_formatter_over_the_whole_file_after(release: Fetch, pin: pins.Pin) -> None:
    raw = source(release, pin)
    patched = engine.apply(CODEMOD, pin.file, raw).decode()
    formatted = black.format_str(patched, mode=black.Mode(line_length=79)).encode()
    found = engine.examine(CODEMOD, pin.file, formatted)
    assert found.state is State.APPLIED
    assert tree(found.pristine) == tree(raw)


def tree(raw: bytes) -> str:
    return ast.dump(ast.parse(raw))


@pytest.mark.parametrize(("version", "pin"), RELEASES, ids=[version for version, _ in RELEASES])
def test_the_state_of_every_release(release: Fetch, version: str, pin: pins.Pin) -> None:
    found = release(version)
    raw = found.read(pin.file)
    assert raw is not None
    assert pins.sha256(raw) == pin.source
    if version == first(pin):  # the others have the same bytes
        assert judge(CODEMOD, found.read, version).state is pin.state


@pytest.mark.parametrize("version", ABSENT)
def test_a_release_without_the_file_is_absent(release: Fetch, version: str) -> None:
    verdict = judge(CODEMOD, release(version).read, version)
    assert verdict.state is State.ABSENT
    assert verdict.reason == f"this sglang has no {CODEMOD.target}"


def test_every_release_with_the_cast_is_ready() -> None:
    """Section 1.1: 42 unpacked releases have the cast, the survey names more by hash."""
    ready = {release for pin in READY for release in pin.releases}
    assert len(ready) >= 42
    assert {"0.4.6.post5", "0.5.1", "0.5.9", "0.5.12.post1", "0.5.13", "0.5.23"} < ready
    upstream = {release for pin in PINS if pin.state is State.UPSTREAM for release in pin.releases}
    assert upstream == {
        "0.4.3.post4", "0.4.4", "0.4.4.post4", "0.4.6", "0.4.6.post2", "0.4.6.post4",
    }  # fmt: skip
