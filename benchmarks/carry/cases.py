"""Cases out of a repository of patch sets: a patch for release A and its own port to B.

``ports.py`` has those out of a repository's own history.
"""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rewriter.errors import TargetError
from rewriter.targets import Target, resolve

SETS = "examples/custom_workflows/inference_analysis/sglang_roofline_patches/"
OLDEST = (0, 5, 11)
_VERSION = re.compile(r"sglang_(\d+)_(\d+)_(\d+)/([^/]+)\.patch$")


@dataclass(frozen=True)
class Case:
    """One file that both sets patch and that changed between the releases.

    Attributes:
        older, newer: what the user calls A and B: releases, or commits of ``clone``.
        file: relative to the package's parent.
        patch: the maintainers' patch for A; it touches this file alone.
        a, b: the file's bytes in the two releases.
        truth: the maintainers' own patch for B, applied to B.
        same: the added and removed lines are the same for A and B, whatever their order.
    """

    older: str
    newer: str
    file: str
    patch: bytes
    a: bytes
    b: bytes
    patched: bytes
    truth: bytes
    same: bool
    clone: Path | None = None

    def ends(self) -> tuple[Target, Target]:
        """Return A and B."""
        if self.clone is None:
            return resolve(release=self.older), resolve(release=self.newer)
        return resolve(repo=self.clone, rev=self.older), resolve(repo=self.clone, rev=self.newer)

    @property
    def name(self) -> str:
        """E.g. ``0.5.11 0.5.12 srt/environ.py``."""
        return f"{self.older} {self.newer} {self.file.removeprefix('sglang/')}"


def cases(clone: Path) -> Iterator[Case]:
    """Yield the cases of each consecutive pair of releases that have patch sets."""
    sets = {v: p for v, p in patch_sets(clone).items() if v >= OLDEST}
    versions = sorted(sets)
    for older, newer in itertools.pairwise(versions):
        for path in sorted(sets[older].keys() & sets[newer].keys()):
            case = _case(older, newer, path, sets[older][path], sets[newer][path])
            if case is not None:
                yield case


def _case(
    older: tuple[int, ...], newer: tuple[int, ...], path: str, one: bytes, two: bytes
) -> Case | None:
    names = [".".join(map(str, version)) for version in (older, newer)]
    a, b = (resolve(release=name).read(path) for name in names)
    if a is None or b is None or a == b:
        return None
    patched, truth = git_apply(path, a, one), git_apply(path, b, two)
    if patched is None or truth is None:
        return None
    same = sorted(changed_lines(one)) == sorted(changed_lines(two))
    return Case(*names, path, one, a, b, patched, truth, same)


def changed_lines(patch: bytes) -> list[bytes]:
    """Return the lines that a diff adds or removes, with their signs."""
    lines = [x for x in patch.splitlines() if x[:1] in (b"+", b"-")]
    return [x for x in lines if x[:4] not in (b"+++ ", b"--- ")]


def has_sets(clone: Path) -> bool:
    """Tell whether a clone is one of patch sets."""
    return bool(git(clone, "ls-tree", "-d", "HEAD", SETS.rstrip("/")))


def patch_sets(clone: Path) -> dict[tuple[int, ...], dict[str, bytes]]:
    """Return the patches of each release by the file that they change."""
    found: dict[tuple[int, ...], dict[str, bytes]] = {}
    listed = git(clone, "ls-tree", "-r", "--name-only", "HEAD", SETS).decode().splitlines()
    for name in listed:
        if match := _VERSION.search(name):
            version = tuple(map(int, match.groups()[:3]))
            raw = git(clone, "cat-file", "blob", f"HEAD:{name}")
            target = re.search(rb"^\+\+\+ b/(?:python/)?(\S+)", raw, re.MULTILINE)
            if target is None:
                raise TargetError(f"{name}: names no file")
            found.setdefault(version, {})[target.group(1).decode()] = raw
    return found


def git_apply(path: str, before: bytes, patch: bytes, *options: str) -> bytes | None:
    """Return what ``git apply`` makes of a file, or None where it refuses."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "python" / path
        place.parent.mkdir(parents=True)
        place.write_bytes(before)
        done = subprocess.run(
            ["git", "apply", *options, "-"], cwd=directory, input=patch, capture_output=True,
            check=False,
        )  # fmt: skip
        return place.read_bytes() if done.returncode == 0 else None


def gnu_patch(path: str, before: bytes, patch: bytes) -> bytes | None:
    """Return what ``patch --fuzz=2`` makes of a file, or None where it refuses."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "python" / path
        place.parent.mkdir(parents=True)
        place.write_bytes(before)
        done = subprocess.run(
            ["patch", "-p1", "--fuzz=2", "--batch", "--forward"], cwd=directory, input=patch,
            capture_output=True, check=False,
        )  # fmt: skip
        return place.read_bytes() if done.returncode == 0 else None


def merge_file(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Return what ``git merge-file`` makes of three versions, or None on conflict."""
    with tempfile.TemporaryDirectory() as directory:
        names = []
        for name, raw in (("ours", ours), ("base", base), ("theirs", theirs)):
            (Path(directory) / name).write_bytes(raw)
            names.append(str(Path(directory) / name))
        done = subprocess.run(["git", "merge-file", "-p", *names], capture_output=True, check=False)
        return done.stdout if done.returncode == 0 else None


def definitions(raw: bytes) -> list[str]:
    """Return in which definition each line stands; of the line 0 in none."""
    found = [""] * (raw.count(b"\n") + 2)
    for node in ast.walk(ast.parse(raw)):  # outer before inner
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                found[line] += f".{node.name}"
    return found


def git(clone: Path, *arguments: str) -> bytes:
    """Return what git says."""
    return subprocess.run(
        ["git", "-C", str(clone), *arguments], check=True, capture_output=True
    ).stdout
