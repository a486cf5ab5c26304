"""Git's object database, read through one long-lived ``git cat-file --batch`` per repository."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.errors import TargetError

if TYPE_CHECKING:
    from git import Git

_REDIRECTING = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_REPLACE_REF_BASE",
)
"""Set by git in hooks; each would redirect a command to another repository than was named."""


@dataclass(frozen=True)
class Entry:
    """One entry of a tree."""

    mode: str
    """Octal, as git prints it: ``100644``, ``100755``, ``120000`` for a link, ``160000``."""
    oid: str


class Objects:
    """The objects of one repository; bare, shallow, partial and linked ones included."""

    def __init__(self, repository: Path) -> None:
        """Open the repository at exactly this directory, never one around it.

        Raises:
            TargetError: there is none, git is missing, or git refuses its owner.
        """
        self._path = repository
        self._batch: Git.AutoInterrupt | None = None
        self._end: Callable[[], object] | None = None
        if not repository.is_dir():
            state = "is not a directory" if repository.exists() else "does not exist"
            raise TargetError(f"{repository}: expected a git repository; it {state}")
        self._git = _command(repository)
        self._run("rev-parse", "--git-dir")

    def commit(self, rev: str) -> str:
        """Return the full id of the commit that a revision names; tags are peeled.

        Raises:
            TargetError: it names nothing, or no commit.
        """
        try:
            line = self._run("rev-parse", "--verify", f"{rev}^{{commit}}")
        except _GitError as error:
            # For a name that means nothing, git's own line says no more than that.
            known = error.complaint == "Needed a single revision"
            reason = "" if known else f" ({error.complaint})"
            shallow = self._run("rev-parse", "--is-shallow-repository").strip() == b"true"
            hint = "it is shallow: git fetch --unshallow" if shallow else "git fetch --tags"
            raise TargetError(f"{self._path}: no commit {rev!r} there{reason}; {hint}") from None
        return line.strip().decode("ascii")

    def short(self, commit: str) -> str:
        """Return the shortest unambiguous form of a commit's id."""
        return self._run("rev-parse", "--short", commit).strip().decode("ascii")

    def tree(self, commit: str, paths: tuple[str, ...]) -> dict[str, Entry]:
        """Return all entries at or below ``paths``, path → entry, without subtrees.

        Raises:
            TargetError: a tree object is missing.
        """
        try:
            listing = self._run("ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths)
        except _GitError as error:
            raise TargetError(_missing(self._path, f"the tree of {commit}", str(error))) from None
        entries: dict[str, Entry] = {}
        for line in filter(None, listing.split(b"\0")):
            described, _, path = line.partition(b"\t")
            mode, _, oid = described.decode("ascii").split(" ")
            entries[path.decode("utf-8", "surrogateescape")] = Entry(mode, oid)
        return entries

    def blob(self, oid: str) -> bytes:
        """Return the bytes of a blob.

        In a partial clone git fetches what it lacks, as it does for every command.

        Raises:
            TargetError: it is not in the database and cannot be fetched.
        """
        with _outside_hooks():
            batch = self._batch or self._start()
        try:
            batch.stdin.write(oid.encode("ascii") + b"\n")
            batch.stdin.flush()
            header: bytes = batch.stdout.readline()
            fields = header.split()
            if len(fields) == 3:
                return _exactly(batch.stdout.read(int(fields[2]) + 1), int(fields[2]))
            complaint = header.decode("utf-8", "replace").strip()
        except (OSError, EOFError):
            complaint = ""
        raise TargetError(_missing(self._path, f"object {oid}", complaint or self._last_words()))

    def close(self) -> None:
        """End the ``git cat-file`` process; a later read starts another."""
        self._batch = None
        if self._end is not None:
            self._end()

    def _start(self) -> Git.AutoInterrupt:
        """Start the process; it ends with this object at the latest.

        GitPython's wrapper ends it when collected, but when both sit in a reference cycle (an
        exception's frames) the pipes may be collected before the wrapper, with warnings.
        """
        import subprocess
        import weakref

        self._batch = self._git.execute(
            ["git", "cat-file", "--batch"], istream=subprocess.PIPE, as_process=True
        )
        self._end = weakref.finalize(self, self._batch.__del__)
        return self._batch

    def _last_words(self) -> str:
        """Return what git said before it died, and forget the process."""
        words = b""
        if self._batch is not None and self._batch.stderr is not None:
            with suppress(BrokenPipeError):
                self._batch.stdin.close()
            words = self._batch.stderr.read()
        self.close()
        return _complaint(words.decode("utf-8", "replace"))

    def _run(self, *arguments: str) -> bytes:
        """Run one git command to its end and return its output, untouched.

        Raises:
            _GitError: it failed, for a reason that only the caller can explain.
            TargetError: git is missing, there is no repository, or git refuses its owner.
        """
        from git.exc import GitCommandNotFound

        try:
            with _outside_hooks():
                status, output, complaint = self._git.execute(
                    ["git", *arguments],
                    with_extended_output=True,
                    with_exceptions=False,
                    stdout_as_string=False,
                    strip_newline_in_stdout=False,
                )
        except GitCommandNotFound:
            raise TargetError(_NO_GIT) from None
        if status == 0 and isinstance(output, bytes):
            return output
        raise _refusal(self._path, str(complaint))


class _GitError(TargetError):
    """A git command failed; ``complaint`` is the line that says why."""

    def __init__(self, path: Path, complaint: str) -> None:
        super().__init__(f"{path}: git: {complaint}")
        self.complaint = complaint


_NO_GIT = "git: not found on PATH; it is needed to read a revision: install git"


def head_commit(top: Path) -> str | None:
    """Return the commit checked out at ``top``; None when there is none or git will not say."""
    try:
        return Objects(top).commit("HEAD")
    except TargetError:
        return None


def _command(repository: Path) -> Git:
    """Return a GitPython command that runs in ``repository`` and looks no further up."""
    try:
        from git import Git
    except ImportError as error:
        if "executable" not in str(error).lower():
            raise
        raise TargetError(_NO_GIT) from None
    git = Git(str(repository))
    git.update_environment(
        GIT_CEILING_DIRECTORIES=str(repository.resolve().parent),
        GIT_TERMINAL_PROMPT="0",
        GIT_OPTIONAL_LOCKS="0",
        GIT_NO_REPLACE_OBJECTS="1",
    )
    return git


@contextmanager
def _outside_hooks() -> Iterator[None]:
    """Hide the variables that git sets in hooks while a process is started.

    GitPython can add variables to what a command inherits but not take any away, and with
    GIT_DIR set git reads that repository, whatever directory it runs in.
    """
    hidden = {name: os.environ.pop(name) for name in _REDIRECTING if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _exactly(data: bytes, size: int) -> bytes:
    """Return the blob without the newline that ends it in the protocol."""
    if len(data) != size + 1:
        raise EOFError(f"expected {size} bytes, found {len(data)}")
    return data[:size]


def _complaint(stderr: str) -> str:
    """Return the line of git's stderr that says what is wrong."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
    line = (fatal or lines or ["no reason given"])[0]
    return line.removeprefix("fatal: ").removeprefix("error: ")


def _refusal(path: Path, stderr: str) -> TargetError:
    """Explain why git refused a repository as a whole."""
    if "dubious ownership" in stderr:
        return TargetError(
            f"{path}: git refuses it because another user owns it; if you trust it: "
            f"git config --global --add safe.directory {path}"
        )
    if "not a git repository" in stderr:
        return TargetError(
            f"{path}: expected a git repository, found none; give its top directory, "
            "not one inside it"
        )
    return _GitError(path, _complaint(stderr))


def _missing(path: Path, what: str, complaint: str) -> str:
    """Explain a missing object."""
    return (
        f"{path}: {what} is not in the object database ({complaint}); a shallow or partial clone "
        "lacks objects until they are fetched: git fetch --refetch, or name a full clone"
    )
