"""What the checked-out commit holds of one file, whoever owns the working tree."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from rewriter.errors import TargetError
from rewriter.targets.processes import Repository


class _AnyOwners(Repository):
    """A repository that is read even if another user owns it.

    Only object ids and blobs are asked for, and nothing is fetched: a command of its
    configuration never runs.
    """

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """What git processes see; a variable, because ``-c`` does not reach their children."""
        inherited = dict(super().environment)
        given = inherited.get("GIT_CONFIG_COUNT", "")
        number = int(given) if given.isdecimal() else 0
        return inherited | {
            "GIT_ALLOW_PROTOCOL": "",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_CONFIG_COUNT": str(number + 1),
            f"GIT_CONFIG_KEY_{number}": "safe.directory",
            f"GIT_CONFIG_VALUE_{number}": "*",
        }


def blob_at_head(top: Path, path: str) -> tuple[str, str] | None:
    """Return the commit checked out at ``top`` and the id of its blob at ``path``.

    None without git, before the first commit, where an object is missing, and where the commit
    holds no regular file there.
    """
    try:
        repository = _AnyOwners(top)
        commit = repository.run("rev-parse", "--verify", "HEAD^{commit}").strip().decode("ascii")
        listing = repository.run("ls-tree", "-z", "--full-tree", commit, "--", path)
    except TargetError:
        return None
    described, _, _ = listing.partition(b"\t")
    mode, _, oid = os.fsdecode(described).replace(" blob ", " ").partition(" ")
    return (commit, oid) if mode.startswith("100") else None


def blob_bytes(top: Path, oid: str) -> bytes | None:
    """Return a blob's bytes, or None where the database lacks it."""
    try:
        return _AnyOwners(top).run("cat-file", "blob", oid)
    except TargetError:
        return None
