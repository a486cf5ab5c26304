"""Measure how far patches carry: ``git apply``, ``patch``, a three-way merge, and ``carry``.

Run as ``python benchmarks/carry/run.py CLONE…`` with clones of a repository of patch sets (see
``cases.py``; the releases come from the package index and stay in the cache), of one that keeps a
whole patch for each release (see ``whole.py``), or of a fork of sglang with branches (see
``ports.py``).
"""

from __future__ import annotations

import argparse
import ast
import difflib
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import ports
import whole
from cases import (
    OLDEST,
    Case,
    cases,
    definitions,
    git_apply,
    gnu_patch,
    has_sets,
    merge_file,
    patch_sets,
)

from rewriter.carry.carrying import carry
from rewriter.carry.steps import Fate
from rewriter.targets import resolve

VERDICTS = ("equal", "but for order", "refused", "different", "misplaced", "does not compile")
"""``but for order``: the same but for the order of the patch's own lines, which its maintainers
changed. ``misplaced``: different, and a line that the maintainers added too is somewhere else."""


def carried(case: Case) -> bytes | None:
    """Return what carry makes of a file; None where it has no place, or is to be reviewed."""
    found = carry([("patch", case.patch)], *case.ends())
    if found.conflicts:
        return None
    return next((c.after for c in found.changes if c.path == case.file), case.b)


class _Ported:
    """The newer release with the maintainers' own port in it."""

    writable = False

    def __init__(self, case: Case) -> None:
        self._case, self._target = case, case.ends()[1]
        self.kind, self.location = self._target.kind, self._target.location
        self.version, self.diff_prefix = self._target.version, self._target.diff_prefix

    def read(self, path: str) -> bytes | None:
        return self._case.truth if path == self._case.file else self._target.read(path)

    def files(self, under: str = "sglang") -> Iterator[str]:
        return self._target.files(under)


def again(case: Case) -> str:
    """Return what becomes of a patch where its own port is in already."""
    found = carry([("patch", case.patch)], case.ends()[0], _Ported(case))
    if found.conflicts:
        return "refused"
    return "changed" if found.changes else "already upstream"


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


def measured(found: Iterable[Case], *, listed: bool) -> int:
    """Judge all ways on all cases, print both tables, and return carry's milliseconds of CPU."""
    table: dict[tuple[bool, str], Counter[str]] = {}
    spent = 0
    total: Counter[bool] = Counter()
    contained: Counter[tuple[bool, str]] = Counter()
    for case in found:
        total[case.same] += 1
        told = []
        for way, make in WAYS.items():
            start = time.process_time()
            made = make(case)
            spent += int(1000 * (time.process_time() - start)) if way == "carry" else 0
            judged = verdict(case, made)
            table.setdefault((case.same, way), Counter())[judged] += 1
            told.append(f"{way}: {judged}")
        contained[case.same, again(case)] += 1
        if listed:
            print(f"{'same   ' if case.same else 'changed'} {case.name}: {', '.join(told)}")
    for same, title in ((True, "the patch's own lines are the same"), (False, "also changed")):
        print(f"\n{total[same]} cases: {title}\n")
        print("| | " + " | ".join(VERDICTS) + " |\n|" + " --- |" * (len(VERDICTS) + 1))
        for way in WAYS:
            counts = table.get((same, way), Counter())
            print(f"| {way} | " + " | ".join(str(counts[v]) for v in VERDICTS) + " |")
    for same, title in ((True, "with the same lines"), (False, "with other lines")):
        told = [
            f"{contained[same, kind]} {kind}" for kind in ("already upstream", "refused", "changed")
        ]
        print(f"\nonto its own port, {title}: {', '.join(told)}")
    print(f"\ncarry: {spent / 1000:.1f} s of CPU time for {total.total()} files, each alone")
    return spent


def whole_sets(clone: Path) -> None:
    """Carry each release's whole set to the next one, and print what came of it."""
    sets = {version: patches for version, patches in patch_sets(clone).items() if version >= OLDEST}
    print("\n| set | files | " + " | ".join(map(str, Fate)) + " | exit | s of CPU |")
    print("|" + " --- |" * (len(Fate) + 4))
    for older, newer in itertools.pairwise(sorted(sets)):
        names = [".".join(map(str, version)) for version in (older, newer)]
        start = time.process_time()
        found = carry(sets[older].items(), *(resolve(release=name) for name in names))
        spent = time.process_time() - start
        counts = Counter(result.fate for result in found.results)
        row = [" to ".join(names), len(sets[older]), *(counts[fate] for fate in Fate)]
        print("| " + " | ".join(map(str, [*row, int(found.conflicts), f"{spent:.1f}"])) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clones", type=Path, nargs="+", metavar="CLONE")
    parser.add_argument("--list", action="store_true", help="name each case")
    options = parser.parse_args()
    for clone in options.clones:
        print(f"\n## {clone}")
        of_sets = has_sets(clone)
        others = whole.cases if whole.has_patches(clone) else ports.cases
        measured(cases(clone) if of_sets else others(clone), listed=options.list)
        if of_sets:
            whole_sets(clone)


if __name__ == "__main__":
    main()
