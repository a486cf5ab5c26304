"""The table of ``verify``: a line a mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewriter.probes.equivalence import ModeRow


def head() -> str:
    """Return the table's head; rows are those that a cast converted, all steps together."""
    return f"{'mode':<48} {'outputs':<10} {'rows cast':>9} {'patched':>9}"


def line(row: ModeRow) -> str:
    """Return one mode's line."""
    if row.state == "not in this release":
        return f"{row.mode:<48} {row.state}"
    told = f"{row.mode:<48} {row.state:<10} {row.before:>9,} {row.after:>9,}"
    return told + (f"\n    {row.detail}" if row.detail else "")


def summary(rows: Sequence[ModeRow]) -> str:
    """Return what the table comes to."""
    count = Counter(row.state for row in rows)
    same = count["equal"] + count["untouched"]
    told = [f"{same} modes bit-equal ({count['untouched']} left alone on purpose)"]
    told += [f"{count[state]} {state}" for state in ("differs", "not run") if count[state]]
    if absent := count["not in this release"]:
        told.append(f"{absent} not in this release")
    before = sum(row.before for row in rows if row.state == "equal")
    after = sum(row.after for row in rows if row.state == "equal")
    return "; ".join(told) + f"\nrows converted where cured: {before:,} before, {after:,} after"


def as_json(rows: Sequence[ModeRow]) -> list[dict[str, Any]]:
    """Return the rows as JSON holds them."""
    return [asdict(row) for row in rows]
