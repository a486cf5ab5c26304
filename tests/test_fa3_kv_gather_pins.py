"""fa3_kv_gather on every source that was released, alone and together with mla_kv_gather."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import black
import pytest

from rewriter import catalog, engine, pins
from rewriter.judge import judge
from rewriter.model import State
from rewriter.targets.release import Release
from rewriter.testing import check_pins

pytestmark = pytest.mark.wheels

CODEMOD = catalog.load("fa3_kv_gather")
PINS = pins.load("fa3_kv_gather")
READY = [pin for pin in PINS if pin.state is State.READY]

Fetch = Callable[[str], Release]


def first(pin: pins.Pin) -> str:
    return pin.releases[0]


def source(release: Fetch, pin: pins.Pin) -> bytes:
    raw = release(first(pin)).read(pin.file)
    assert raw is not None
    return raw


def test_pins(sglang_release: Fetch) -> None:
    fixtures = Path(__file__).parent.parent / "fixtures"
    assert check_pins("fa3_kv_gather", fixtures, release=sglang_release) == len(PINS)


@pytest.mark.parametrize("pin", READY, ids=first)
def test_rewritten_once_and_taken_out_again(release: Fetch, pin: pins.Pin) -> None:
    raw = source(release, pin)
    after = engine.apply(CODEMOD, pin.file, raw)
    assert pins.sha256(after) == pin.patched
    assert engine.apply(CODEMOD, pin.file, after) is after
    assert engine.examine(CODEMOD, pin.file, after).pristine == raw
    kinds = sorted(site.kind for site in pin.sites)
    assert kinds == ["cast", "cast", "constructor", "import", "write", "write"]


@pytest.mark.parametrize("pin", [READY[0], READY[len(READY) // 2], READY[-1]], ids=first)
def test_a_formatter_over_the_whole_file(release: Fetch, pin: pins.Pin) -> None:
    raw = source(release, pin)
    formatted = black.format_str(raw.decode(), mode=black.Mode(line_length=79)).encode()
    after = engine.apply(CODEMOD, pin.file, formatted)
    assert tree(after) == tree(engine.apply(CODEMOD, pin.file, raw))
    again = black.format_str(after.decode(), mode=black.Mode(line_length=120)).encode()
    found = engine.examine(CODEMOD, pin.file, again)
    assert found.state is State.APPLIED
    assert tree(found.pristine) == tree(raw)


def tree(raw: bytes) -> str:
    return ast.dump(ast.parse(raw))


def test_the_state_of_every_release() -> None:
    """Section by section: since 0.4.8.post1 all have the cast, before it none has."""
    ready = {release for pin in READY for release in pin.releases}
    assert {"0.4.8.post1", "0.5.1", "0.5.9", "0.5.15", "0.5.23"} < ready
    assert len(ready) >= 60
    upstream = {release for pin in PINS if pin.state is State.UPSTREAM for release in pin.releases}
    assert {"0.4.4.post4", "0.4.8"} < upstream
    assert not {state for pin in PINS for state in [pin.state]} - {State.READY, State.UPSTREAM}


@pytest.mark.parametrize(
    ("version", "state", "reason"),
    [
        ("0.4.2", State.ABSENT, f"this sglang has no {CODEMOD.target}"),
        ("0.4.4", State.ABSENT, f"this sglang has no {CODEMOD.target}"),
        ("0.4.6", State.UPSTREAM, "without a change of dtype"),
    ],
)
def test_releases_without_the_cast(release: Fetch, version: str, state: State, reason: str) -> None:
    verdict = judge(CODEMOD, release(version).read, version)
    assert verdict.state is state
    assert reason in verdict.reason
