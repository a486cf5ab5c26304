"""Cases out of a repository that keeps one whole patch of sglang for each release.

``docker/patch/v0.5.9/sglang.patch`` and the like, deleted ones too, each as it was last. The patch
of one release is A's, that of the next one is its authors' own port.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from cases import Case, changed_lines, git, git_apply
from packaging.version import Version

from rewriter.targets import resolve

_PATH = re.compile(r"docker/patch/v(\d+(?:\.\d+)+(?:rc\d+|\.post\d+)?)[^/]*/sglang\.patch$")
_NOT_CHANGED = re.compile(rb"^(?:rename |new file |deleted file )", re.MULTILINE)


def has_patches(clone: Path) -> bool:
    """Tell whether a clone is such a repository."""
    return bool(git(clone, "ls-tree", "-d", "HEAD", "docker/patch"))


def cases(clone: Path) -> Iterator[Case]:
    """Yield each file that two releases' patches change and that changed between the releases."""
    found = _patches(clone)
    for older, newer in itertools.pairwise(sorted(found, key=Version)):
        ends = [resolve(release=name) for name in (older, newer)]
        for path in sorted(found[older].keys() & found[newer].keys()):
            one, two = found[older][path], found[newer][path]
            a, b = (end.read(path) for end in ends)
            if a is None or b is None or a == b:
                continue
            patched, truth = git_apply(path, a, one), git_apply(path, b, two)
            if patched is None or truth is None:
                continue  # the patch is for a commit beside the release
            same = sorted(changed_lines(one)) == sorted(changed_lines(two))
            yield Case(older, newer, path, one, a, b, patched, truth, same)


def _patches(clone: Path) -> dict[str, dict[str, bytes]]:
    """Return each release's patch, file by file."""
    found: dict[str, dict[str, bytes]] = {}
    listed = git(clone, "log", "--all", "--diff-filter=AM", "--name-only", "--format=%H")
    commit = ""
    for line in listed.decode("utf-8", "replace").splitlines():
        if re.fullmatch(r"[0-9a-f]{40}", line):
            commit = line
        elif (match := _PATH.match(line)) and match[1] not in found:
            raw = git(clone, "cat-file", "blob", f"{commit}:{line}")
            found[match[1]] = dict(_files(raw))
    return found


def _files(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the package that a diff changes, each with its part of the diff."""
    for part in re.split(rb"(?m)^(?=diff --git )", raw):
        target = re.search(rb"^\+\+\+ b/(?:python/)?(sglang/\S+)", part, re.MULTILINE)
        if target is not None and not _NOT_CHANGED.search(part):
            yield target[1].decode(), part
