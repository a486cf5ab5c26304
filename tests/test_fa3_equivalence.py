"""fa3_kv_gather: every pinned source in every mode, the same bits and no page more than is read."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from equivalence_sources import COMPANION, Releases, sources, versions
from packaging.version import Version
from test_equivalence import table

from rewriter.probes.equivalence.modes import Expect
from rewriter.probes.equivalence.paged_modes import PAGED_SCENARIOS
from rewriter.probes.equivalence.verifying import verify

pytestmark = pytest.mark.wheels

NAME = "fa3_kv_gather"
FIRST = {"sliding windows": "0.5.8", "context parallel extend": "0.5.13"}
"""Modes that not all releases have, and the first pinned release that has each."""


@pytest.mark.parametrize("version", versions(NAME))
def test_release(version: str, release: Releases) -> None:
    both = sources(release, version, NAME)
    rows = verify(both.original, both.patched, COMPANION, PAGED_SCENARIOS)
    print(f"\nsglang {version}: rows converted before and after\n{table(rows)}")
    assert [row.mode for row in rows] == [scenario.name for scenario in PAGED_SCENARIOS]
    assert not [row for row in rows if row.state in ("differs", "not run")], table(rows)
    missing = {row.mode for row in rows if row.state == "not in this release"}
    assert missing == {mode for mode, since in FIRST.items() if Version(version) < Version(since)}


def test_cured_modes_convert_less(release: Releases) -> None:
    both = sources(release, versions(NAME)[-1], NAME)
    rows = verify(both.original, both.patched, COMPANION, PAGED_SCENARIOS)
    for row, scenario in zip(rows, PAGED_SCENARIOS, strict=True):
        assert (row.after < row.before) is (scenario.expect in (Expect.FEWER, Expect.SAME)), row
    assert {row.state for row in rows} == {"equal", "untouched"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"metadata.page_table,", b"metadata.page_table[:, :1],"),
        (b"metadata.cache_seqlens_int32,", b"metadata.cache_seqlens_int32 - 1,"),
        (b"                whole=use_cascade_attn,\n", b""),
    ],
    ids=["another table", "other lengths", "the second kernel forgotten"],
)
def test_a_wrong_patch_is_seen(old: bytes, new: bytes, release: Releases) -> None:
    both = sources(release, versions(NAME)[-1], NAME)
    head, call, tail = both.patched.rpartition(b"_kv_gather.pages(")
    wrong = head + call + tail.replace(old, new, 1)
    modes = [s for s in PAGED_SCENARIOS if s.name.endswith(("pages of 1", "branches"))]
    rows = verify(both.original, wrong, COMPANION, modes)
    assert [row.mode for row in rows if row.state == "differs"], table(rows)


def test_names_are_unique_and_fit_the_table() -> None:
    names = [scenario.name for scenario in PAGED_SCENARIOS]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 48
