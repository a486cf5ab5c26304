"""Many commits of one repository at once: which touch some files, and what these are in each.

One git process answers each question, whatever the number of commits. Nothing is checked out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from rewriter.errors import TargetError, UsageError
from rewriter.targets.commits import PREFIXES, Commit, Span, Tree
from rewriter.targets.disk import PACKAGE, absolute
from rewriter.targets.processes import GitError, Reader, Repository, missing

_FORMAT = "%H%x00%P%x00%cI%x00%s"
_PROBE = f"{PACKAGE}/__init__.py"
"""The file by which the package is found."""

_LINK = b"120000"
_LONGEST_LINK = 4096
"""Bytes; no path is longer on Linux, so only blobs up to this size can be links."""


class History:
    """The commits of one repository: bare, shallow, partial or with a working tree.

    Attributes:
        repository: its directory.
    """

    def __init__(self, repository: str | os.PathLike[str]) -> None:
        """Take a repository at exactly this directory, never one around it.

        Raises:
            TargetError: there is no such directory.
        """
        self.repository = absolute(repository)
        self._git = Repository(self.repository)

    def span(self, revs: str, since: str | None = None) -> Span:
        """Resolve a range such as ``A..B``, or one commit for all that led to it.

        Args:
            revs: as git writes ranges; an end left out is HEAD.
            since: a date, in any form that git reads.

        Raises:
            UsageError: it looks like an option, or is no such range.
            TargetError: no repository, an unknown revision, or a date that git cannot read.
        """
        base, dots, tip = revs.strip().rpartition("..")
        ends = [tip or "HEAD", *([base or "HEAD"] if dots else [])]
        if (
            not revs.strip()
            or ".." in base
            or base.endswith(".")
            or any(end.startswith("-") for end in ends)
        ):
            raise UsageError(f"--revs {revs!r}: expected A..B, or one commit, tag or branch")
        asked = (f"{end}^{{commit}}" for end in ends)
        try:
            told = self._git.run(
                "rev-parse", "--is-shallow-repository", "--git-path", "shallow", *asked
            )
        except GitError:
            raise self._unknown(revs, ends) from None
        shallow, place, *ids = told.decode("utf-8", "replace").splitlines()
        cut = (self.repository / place).read_text("ascii").split() if shallow == "true" else ()
        after = None if since is None else self._epoch(since)
        base_id, base_name = (ids[1], ends[1]) if dots else (None, "")
        return Span(ids[0], ends[0], base_id, base_name, after, frozenset(cut))

    def touching(
        self, span: Span, paths: Iterable[str], prefixes: Iterable[str] = PREFIXES
    ) -> list[Commit]:
        """Return the commits of a range that change one of some files, ancestors first.

        As ``git log`` tells a file's history: of a merge that took one side's file as it was,
        that side is followed, and the merge itself is not told.

        Args:
            span: the range.
            paths: relative to the package's parent, with forward slashes.
            prefixes: where to look for the package; each makes git compare more trees.

        Raises:
            TargetError: objects are missing, or the range has no commits at all.
        """
        wanted = [prefix + path for prefix in prefixes for path in paths]
        found = self._log("--topo-order", "--reverse", *span.limits, "--", *wanted)
        if not found and not self._git.run("rev-list", "-1", *span.limits):
            raise self._empty(span)
        return found

    def commits(self, ids: Iterable[str]) -> dict[str, Commit]:
        """Return commits by id."""
        wanted = list(dict.fromkeys(ids))
        lines = "".join(f"{each}\n" for each in wanted).encode()
        found = self._log("--no-walk=unsorted", "--stdin", stdin=lines) if wanted else []
        return {commit.id: commit for commit in found}

    def tags(self, span: Span) -> list[tuple[str, Commit]]:
        """Return the tags of commits in a range, with these commits, by date.

        Raises:
            TargetError: there are none.
        """
        limits = [f"--merged={span.tip}"]
        limits += [] if span.base is None else [f"--no-merged={span.base}"]
        form = "%(refname:strip=2)%00%(objectname)%00%(*objectname)"
        listed = self._git.run("for-each-ref", f"--format={form}", *limits, "refs/tags")
        named: dict[str, str] = {}
        for line in listed.decode("utf-8", "surrogateescape").splitlines():
            name, own, peeled = line.split("\0")
            named[name] = peeled or own
        commits = self.commits(named.values())
        pairs = [(name, commits[each]) for name, each in named.items() if each in commits]
        if span.after is not None:
            pairs = [(n, c) for n, c in pairs if _seconds(c) >= span.after]
        if not pairs:
            limited = span.base is not None or span.after is not None
            raise TargetError(
                f"{self.repository}: no tags of commits up to {span.name}"
                f"{' in that range' if limited else ''}; git fetch --tags"
            )
        return sorted(pairs, key=lambda pair: (_seconds(pair[1]), pair[0]))

    def trees(self, commits: Iterable[str], paths: Sequence[str]) -> dict[str, Tree]:
        """Return what some files are in each commit.

        The package is found in each commit as a Revision finds it: under ``python/``, else at
        the top. A commit without the package has no entry at all.

        Args:
            commits: full ids.
            paths: relative to the package's parent; the first is the one that matters most.

        Raises:
            TargetError: a tree is missing, or a file is a link, which is not followed here.
        """
        wanted = list(dict.fromkeys(commits))
        asked = (_PROBE, *paths)
        found = self._lookup([(c, p + path) for c in wanted for p in PREFIXES for path in asked])
        trees: dict[str, Tree] = {}
        for commit in wanted:
            prefix = next((p for p in PREFIXES if (commit, p + asked[0]) in found), None)
            if prefix is None:
                self._listed(commit, [p + asked[0] for p in PREFIXES])
                continue
            here = {path: found.get((commit, prefix + path)) for path in paths}
            if here[paths[0]] is None:
                self._listed(commit, [prefix + paths[0]])
            trees[commit] = Tree(prefix, {p: oid for p, oid in here.items() if oid is not None})
        return trees

    def reader(self) -> Reader:
        """Return a reader of blobs, to be used as a context."""
        return self._git.reader()

    def moved(self, old: str, new: str, path: str) -> str | None:
        """Return where a commit moved a file to, as git detects renames; None where it did not.

        Args:
            old: the commit before.
            new: the commit that no longer has the file.
            path: relative to the package's parent.
        """
        try:
            told = self._git.run(
                "diff-tree", "-r", "-z", "-M", "-l0", "--diff-filter=R", "--name-status", old, new
            )  # fmt: skip
        except TargetError:  # A blob that similarity needs is missing; then it is not known.
            return None
        names = told.decode("utf-8", "replace").split("\0")
        moves = dict(zip(names[1::3], names[2::3], strict=False))
        return next((moves[p + path] for p in PREFIXES if p + path in moves), None)

    def diff(self, old: str, new: str, path: str) -> bytes:
        """Return what one commit changed in a file since another, as a unified diff."""
        wanted = [prefix + path for prefix in PREFIXES]
        shown = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
        return self._git.run("diff-tree", "-r", "-p", "-U3", *shown, old, new, "--", *wanted)

    def _log(self, *arguments: str, stdin: bytes = b"") -> list[Commit]:
        shown = ("--no-patch", "--no-color", "--no-show-signature", "--encoding=UTF-8")
        told = self._git.run("log", *shown, f"--format={_FORMAT}", *arguments, stdin=stdin)
        fields = (line.split("\0") for line in told.decode("utf-8", "replace").split("\n") if line)
        # Git 2.45 and later write "Z" for UTC; rows are the same whatever git there is.
        return [
            Commit(oid, date.replace("Z", "+00:00"), text, tuple(up.split()))
            for oid, up, date, text in fields
        ]

    def _lookup(self, places: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Return the blob ids of files in commits; what is not there, or no file, is left out."""
        lines = "".join(f"{commit}:{path}\n" for commit, path in places).encode()
        try:
            told = self._git.run("cat-file", "--batch-check", stdin=lines).decode(
                "utf-8", "replace"
            )
        except GitError as error:  # A partial clone asks its origin for what it lacks.
            what = "an object of the range"
            raise TargetError(missing(self.repository, what, error.complaint)) from None
        found: dict[tuple[str, str], str] = {}
        files: set[str] = set()
        for place, line in zip(places, told.splitlines(), strict=True):
            fields = line.split(" ")
            if len(fields) == 3 and fields[1] == "blob":
                oid, size = fields[0], int(fields[2])
                asked = not place[1].endswith(_PROBE)
                if size <= _LONGEST_LINK and asked and oid not in files:
                    self._refuse_link(*place)
                files.add(oid)
                found[place] = oid
        return found

    def _refuse_link(self, commit: str, path: str) -> None:
        if self._listed(commit, [path]).startswith(_LINK):
            raise TargetError(
                f"{self.repository}: {path} is a link in {commit[:10]}; links are followed in "
                f"one commit only: rewriter check --repo DIR --rev {commit[:10]}"
            )

    def _listed(self, commit: str, paths: Sequence[str]) -> bytes:
        """List files of a commit; unlike a look-up, this fails where a tree is missing."""
        try:
            return self._git.run("ls-tree", "-z", "--full-tree", commit, "--", *paths)
        except GitError as error:
            what = f"the tree of {commit}"
            raise TargetError(missing(self.repository, what, error.complaint)) from None

    def _epoch(self, since: str) -> int:
        import time

        line = self._git.run("rev-parse", f"--since={since}").decode("ascii")
        second = int(line.strip().partition("=")[2] or 0)
        # What git cannot read as a date it takes for the present moment, without a word.
        if abs(second - time.time()) < 3:
            raise UsageError(f"--since {since!r}: git reads no date in the past from that")
        return second

    def _unknown(self, revs: str, ends: Iterable[str]) -> TargetError:
        """Explain a range of which git does not know an end, in the words of a Revision."""
        from rewriter.targets.objects import Objects

        objects = Objects(self.repository)
        for end in ends:
            objects.commit(end)
        return TargetError(f"{self.repository}: git reads no range from {revs!r}; expected A..B")

    def _empty(self, span: Span) -> TargetError:
        reason = f"all that leads to {span.name} leads to {span.base_name} as well"
        if span.after is not None:
            from datetime import datetime

            day = datetime.fromtimestamp(span.after).astimezone().isoformat(" ", "minutes")
            reason = f"no commit up to {span.name} ({span.tip[:10]}) since {day}"
        hint = "; are its ends the right way round?" if span.base is not None else ""
        return TargetError(f"{self.repository}: the range is empty: {reason}{hint}")


def _seconds(commit: Commit) -> float:
    from datetime import datetime

    return datetime.fromisoformat(commit.date).timestamp()
