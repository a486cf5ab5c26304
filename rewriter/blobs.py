"""One codemod on files known by blob id: judged when first asked, then kept.

Verdicts are kept under blob ids, the digest of the codemod and the version of the tool, so each
distinct set of files is judged once for each codemod, wherever it occurs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rewriter import __version__, catalog, verdicts
from rewriter.codemod import Codemod
from rewriter.errors import SourceError
from rewriter.model import State, Verdict
from rewriter.walk import Files, paths_of

if TYPE_CHECKING:
    from rewriter.targets import Target

Read = Callable[[str], bytes]
"""From a blob id to the blob."""


class Judge:
    """Verdicts by structure, for files known by blob id; judged when first asked, then kept.

    Attributes:
        codemods: the codemods.
        force_version: whether to judge by structure whatever the version.
        seen: what was asked about, by key.
        sources: how many distinct sets of files that were.
        judged: how many of them were not in the cache.
        follows_moves: whether a file that was moved away is found again.
    """

    follows_moves = False

    def __init__(self, codemods: Sequence[Codemod], *, force_version: bool = False) -> None:
        self.codemods = tuple(codemods)
        self.seen: dict[str, Verdict | SourceError] = {}
        self.sources = 0
        self.judged = 0
        self.force_version = force_version
        self._digests = {codemod.name: catalog.digest(codemod.name) for codemod in codemods}

    def placed(self, files: Files, name: str, opened: Callable[[], Target]) -> Files:
        """Return a revision's files as this judge wants them: these are all that is judged."""
        return files

    def word(self, verdict: Verdict) -> str:
        """Return a word to be told instead of the state; empty for none."""
        return ""

    def in_tree(self, codemod: Codemod, target: Target) -> Verdict:
        """Judge a codemod in a working tree, its record of what was applied included.

        Raises:
            SourceError: a file does not parse.
        """
        from rewriter.session import Session

        session = Session(target, [codemod], self.force_version)
        return session.survey.standing(codemod.name).verdict

    def known(self, codemod: Codemod, files: Files) -> bool:
        """Return whether a verdict is at hand, without judging."""
        return self._found(self._key(codemod, files), files)

    def structure(self, codemod: Codemod, files: Files, read: Read) -> Verdict:
        """Judge by structure alone.

        Raises:
            SourceError: a file does not parse.
            TargetError: a blob cannot be read.
        """
        name = self._key(codemod, files)
        if not self._found(name, files):
            self._keep(name, files, self._judge(name, codemod, files, read))
        found = self.seen[name]
        if isinstance(found, SourceError):
            raise found
        return found

    def verdict(self, codemod: Codemod, files: Files, read: Read, version: str | None) -> Verdict:
        """Judge by structure, then by the supported range where the version is known."""
        found = self.structure(codemod, files, read)
        if version is None or self.force_version or found.state not in (State.READY, State.DRIFTED):
            return found
        from rewriter.judge import out_of_range

        reason = out_of_range(codemod, version)
        if not reason:
            return found
        return Verdict(found.codemod, found.file, State.UNSUPPORTED, found.sites, reason)

    def _key(self, codemod: Codemod, files: Files) -> str:
        paths = paths_of([codemod])
        blobs = [part for path in paths for part in (path, files.get(path))]
        return verdicts.key("blobs 1", __version__, self._digests[codemod.name], *blobs)

    def _found(self, name: str, files: Files) -> bool:
        """Return whether a key was asked about already, or its verdict is in the cache."""
        if name not in self.seen:
            kept = verdicts.load(name)
            if kept is None:
                return False
            self._keep(name, files, kept)
        return True

    def _keep(self, name: str, files: Files, verdict: Verdict | SourceError) -> None:
        self.seen[name] = verdict
        self.sources += bool(files)

    def _judge(
        self, name: str, codemod: Codemod, files: Files, read: Read
    ) -> Verdict | SourceError:
        from rewriter.judge import judge

        self.judged += bool(files)
        raws = {path: read(files[path]) for path in paths_of([codemod]) if path in files}
        try:
            made = judge(codemod, raws.get, None)
        except SourceError as error:
            return error
        verdicts.save(name, made)
        return made


def blob_id(raw: bytes) -> str:
    """Return the id that git gives to a blob of these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw, usedforsecurity=False).hexdigest()
