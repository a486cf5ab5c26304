"""Measure how far patches carry: ``git apply``, ``patch``, a three-way merge, and ``carry``.

Run as ``python benchmarks/carry/run.py CLONE`` with a clone of a repository of patch sets (see
``cases.py``); the releases come from the package index and stay in the cache.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cases import Case, cases, definitions, git_apply, gnu_patch, merge_file

from rewriter.carry.carrying import carry
from rewriter.targets import resolve

VERDICTS = ("equal", "but for order", "refused", "different", "misplaced", "does not compile")
"""``but for order``: the same but for the order of the patch's own lines, which its maintainers
changed. ``misplaced``: different, and a line that the maintainers added too is somewhere else."""


def carried(case: Case) -> bytes | None:
    """Return what carry makes of a file, or None on conflict."""
    older, newer = resolve(release=case.older), resolve(release=case.newer)
    found = carry([("patch", case.patch)], older, newer)
    if found.conflicts:
        return None
    return next((c.after for c in found.changes if c.path == case.file), case.b)


WAYS: dict[str, Callable[[Case], bytes | None]] = {
    "git apply": lambda case: git_apply(case.file, case.b, case.patch),
    "patch --fuzz=2": lambda case: gnu_patch(case.file, case.b, case.patch),
    "git merge-file": lambda case: merge_file(case.a, case.patched, case.b),
    "carry": carried,
}


def verdict(case: Case, made: bytes | None) -> str:
    """Judge a result by the maintainers' own."""
    if made is None:
        return "refused"
    try:
        tree = ast.parse(made)
    except SyntaxError:
        return "does not compile"
    if ast.dump(tree) == ast.dump(ast.parse(case.truth)):
        return "equal"
    if sorted(_code(made)) == sorted(_code(case.truth)) and not _misplaced(case, made, near=3):
        return "but for order"
    return "misplaced" if _misplaced(case, made) else "different"


def _code(raw: bytes) -> list[str]:
    lines = (line.strip() for line in raw.decode().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _additions(before: list[str], after: list[str]) -> dict[str, list[int]]:
    """Return each line added, and before which line of the other file's."""
    found: dict[str, list[int]] = {}
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, start, _, left, right in matcher.get_opcodes():
        if tag in ("insert", "replace"):
            for line in after[left:right]:
                found.setdefault(line, []).append(start)
    return found


def _definitions(raw: bytes) -> dict[str, str]:
    """Return in which definition each line stands; of equal lines the last one counts."""
    lines = raw.decode().splitlines()
    found = definitions(raw)
    return {line.strip(): found[n] for n, line in enumerate(lines, 1)}


def _misplaced(case: Case, made: bytes, near: int = 0) -> bool:
    """Tell whether a line that the maintainers add too is added at another place.

    Lines that are added more than once on a side are left out: which is which is not known. So
    are those that the maintainers put into another definition than in their patch for A.
    """
    meant, port = (_definitions(raw) for raw in (case.patched, case.truth))
    before = _code(case.b)
    ours, theirs = (_additions(before, _code(raw)) for raw in (made, case.truth))
    return any(
        len(places) == len(theirs.get(line, [])) == 1
        and len(line) > 8
        and meant.get(line) == port.get(line)
        and abs(places[0] - theirs[line][0]) > near
        for line, places in ours.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path)
    parser.add_argument("--list", action="store_true", help="name each case")
    options = parser.parse_args()
    table: dict[tuple[bool, str], Counter[str]] = {}
    spent: Counter[str] = Counter()
    total: Counter[bool] = Counter()
    for case in cases(options.clone):
        total[case.same] += 1
        told = []
        for way, make in WAYS.items():
            start = time.process_time()
            found = verdict(case, make(case))
            spent[way] += int(1000 * (time.process_time() - start))
            table.setdefault((case.same, way), Counter())[found] += 1
            told.append(f"{way}: {found}")
        if options.list:
            print(f"{'same   ' if case.same else 'changed'} {case.name}: {', '.join(told)}")
    for same, title in ((True, "the patch's own lines are the same"), (False, "also changed")):
        print(f"\n{total[same]} cases: {title}\n")
        print("| | " + " | ".join(VERDICTS) + " |\n|" + " --- |" * (len(VERDICTS) + 1))
        for way in WAYS:
            counts = table.get((same, way), Counter())
            print(f"| {way} | " + " | ".join(str(counts[v]) for v in VERDICTS) + " |")
    print(f"\ncarry with judging: {spent['carry'] / 1000:.1f} s of CPU time for all cases")


if __name__ == "__main__":
    main()
