"""Every pinned source in every mode: the same bits, and no more rows converted than are read."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

pytest.importorskip("torch")

from equivalence_sources import COMPANION, Releases, sources, versions

from rewriter.probes.equivalence.modes import SCENARIOS, Expect, Scenario
from rewriter.probes.equivalence.rows import ModeRow
from rewriter.probes.equivalence.serving import Shape
from rewriter.probes.equivalence.verifying import examine, verify

pytestmark = pytest.mark.wheels

GRAPHS = "decode, CUDA graphs"
DRAFT_EXTEND = {"draft extend, eager", "draft extend, CUDA graphs"}
CONTEXT_PARALLEL = {"context parallel prefill", "context parallel decode"}

MISSING = {
    # Without a name for it: the mode came later, or was taken out again.
    "0.4.6.post5": CONTEXT_PARALLEL | {"draft extend, CUDA graphs", "translated indices"},
    "0.5.1": CONTEXT_PARALLEL | {"translated indices"},
    "0.5.5.post3": CONTEXT_PARALLEL | {"translated indices", "pages of several tokens"},
    "0.5.14": DRAFT_EXTEND | CONTEXT_PARALLEL | {"translated indices"},
    "0.5.15": DRAFT_EXTEND | {"translated indices"},
    "0.5.17": DRAFT_EXTEND,
    "0.5.22": DRAFT_EXTEND,
}
"""What some releases do not have, beside the modes that only few have at all."""

RARE = {
    "DFLASH verify, CUDA graphs": ("0.5.19", "0.5.20", "0.5.22"),
    "draft extend by a window, eager": ("0.5.18", "0.5.19", "0.5.20", "0.5.22"),
    "pages of several tokens": ("0.5.1",),
    "prefill, captured in pieces": (
        "0.5.5.post1", "0.5.5.post3", "0.5.13", "0.5.14", "0.5.15", "0.5.16", "0.5.17", "0.5.18",
        "0.5.19", "0.5.20", "0.5.22",
    ),
}  # fmt: skip
"""Modes that few releases have, and which."""


def table(rows: Iterable[ModeRow]) -> str:
    """Return rows as lines of text."""
    return "\n".join(
        f"{row.mode:<50} {row.state:<20} {row.before:>6} {row.after:>6}  {row.detail}"
        for row in rows
    )


@pytest.mark.parametrize("version", versions())
def test_release(version: str, release: Releases) -> None:
    both = sources(release, version)
    rows = verify(both.original, both.patched, COMPANION)
    print(f"\nsglang {version}: rows converted before and after\n{table(rows)}")
    assert [row.mode for row in rows] == [scenario.name for scenario in SCENARIOS]
    assert not [row for row in rows if row.state in ("differs", "not run")], table(rows)
    missing = {row.mode for row in rows if row.state == "not in this release"}
    for mode, having in RARE.items():
        assert (mode not in missing) is (version in having), f"{mode} in {version}"
    if version in MISSING:
        assert missing - RARE.keys() == MISSING[version] - RARE.keys()


def test_real_head_sizes(release: Releases) -> None:
    """DeepSeek's 512 + 64 elements a row, in the modes that differ in how rows are moved."""
    both = sources(release, versions()[-1])
    shape = Shape(rank=512, rope=64, slots=24, context=6, requests=3)
    for scenario in SCENARIOS:
        if scenario.name in ("decode, eager", "decode, CUDA graphs"):
            widened = Scenario(scenario.name, _small, scenario.expect, shape=shape)
            row = examine(widened, both.original, both.patched, COMPANION)
            assert row.state == "equal", row


def _small(server):  # type: ignore[no-untyped-def]
    from rewriter.probes.equivalence.driving import GraphRunner, eager
    from rewriter.probes.equivalence.externals import ForwardMode
    from rewriter.probes.equivalence.serving import Batch

    backend = server.backend()
    eager(server, backend, Batch(ForwardMode.DECODE, (5, 2)))
    graphs = GraphRunner(server, backend, (3,), Batch(ForwardMode.DECODE, (1,)))
    graphs.replay(Batch(ForwardMode.DECODE, (3, 6), first=1))


def test_nothing_is_left_behind(release: Releases) -> None:
    """Loading and running both copies leaves no module, mode or thread setting behind."""
    import sys

    import torch
    from torch.overrides import _get_current_function_mode

    both = sources(release, versions()[-1])
    before, threads = set(sys.modules), torch.get_num_threads()
    mode = next(s for s in SCENARIOS if s.name == GRAPHS)
    assert verify(both.original, both.patched, COMPANION, [mode])[0].state == "equal"
    new = set(sys.modules) - before
    assert not [name for name in new if "sglang" in name or "flashinfer" in name or "#" in name]
    assert torch.get_num_threads() == threads
    assert _get_current_function_mode() is None


def _without(text: bytes, *calls: bytes) -> bytes:
    """Take the first wrapping of each kind of call out again, as a half-made patch would."""
    import re

    for call in calls:
        pattern = rb"_kv_gather\." + call + rb"\(\s*\w+,\s*([\w.()]+(?:\([\w.]+\))?),[^()]*?\)"
        text, count = re.subn(pattern, rb"\1", text, count=1)
        assert count == 1, call
    return text


@pytest.mark.parametrize("version", ["0.5.5.post3", "0.5.22"])
@pytest.mark.parametrize("call", [b"gather", b"plan"])
def test_half_a_patch_is_seen(version: str, call: bytes, release: Releases) -> None:
    both = sources(release, version)
    modes = [s for s in SCENARIOS if s.name in ("decode, eager", "prefill, paged", GRAPHS)]
    rows = verify(both.original, _without(both.patched, call), COMPANION, modes)
    assert [row.mode for row in rows if row.state == "differs"], table(rows)


def test_an_unknown_import_is_told(release: Releases) -> None:
    """A fork's own helper has no stand-in: the row says which, and is no success."""
    both = sources(release, versions()[-1])
    line = b"\nimport torch\n"
    extra = line + b"from sglang.srt.fork import prepare\n"
    place = b"        bs = len(seq_lens)\n"
    forked = [
        text.replace(line, extra, 1).replace(place, place + b"        prepare(bs)\n")
        for text in (both.original, both.patched)
    ]
    mode = next(s for s in SCENARIOS if s.name == "prefill, paged")
    (row,) = verify(*forked, COMPANION, [mode])
    assert row.state == "not run"
    assert "prepare" in row.detail


def test_every_expectation_is_used() -> None:
    assert {scenario.expect for scenario in SCENARIOS} == set(Expect)
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
