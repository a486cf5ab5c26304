"""Git as plain processes: one command to its end, or one that serves blobs.

GitPython would take as long to import as git takes to walk ten thousand commits.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from rewriter.errors import TargetError
from rewriter.targets.objects import (
    _NO_GIT,
    _REDIRECTING,
    _complaint,
    _GitError,
    _missing,
    _refusal,
)

GitError = _GitError
"""A git command failed, for a reason that only the caller can explain."""

missing = _missing
"""Explains a missing object."""


class Repository:
    """One git repository, at exactly one directory, never one around it."""

    def __init__(self, path: Path) -> None:
        """Take the directory.

        Raises:
            TargetError: there is none.
        """
        self.path = path
        if not path.is_dir():
            state = "is not a directory" if path.exists() else "does not exist"
            raise TargetError(f"{path}: expected a git repository; it {state}")

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """What git processes see: nothing that would lead them to another repository."""
        kept = {name: text for name, text in os.environ.items() if name not in _REDIRECTING}
        return kept | {
            "GIT_CEILING_DIRECTORIES": str(self.path.resolve().parent),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "LC_ALL": "C",
        }

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run one git command to its end and return its output, untouched.

        Raises:
            GitError: it failed, for a reason that only the caller can explain.
            TargetError: git is missing, there is no repository, or git refuses its owner.
        """
        process = self._start(*arguments)
        with process:
            output, complaint = process.communicate(stdin)
        if process.returncode == 0:
            return output
        raise _refusal(self.path, complaint.decode("utf-8", "replace"))

    def reader(self) -> Reader:
        """Return a reader of blobs, to be used as a context."""
        return Reader(self)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                ["git", "--literal-pathspecs", *arguments],
                cwd=self.path, env=self.environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        except FileNotFoundError:
            raise TargetError(_NO_GIT) from None


class Reader:
    """Blobs by id, through one ``git cat-file --batch`` that starts when it is first asked."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def __call__(self, oid: str) -> bytes:
        """Return the bytes of a blob. In a partial clone git fetches what it lacks.

        Raises:
            TargetError: it is not in the database and cannot be fetched.
        """
        if self._process is None:
            self._process = self._repository._start("cat-file", "--batch")
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdin.write(oid.encode("ascii") + b"\n")
            process.stdin.flush()
            header = process.stdout.readline()
        except BrokenPipeError:
            header = b""
        fields = header.split()
        size = int(fields[2]) if len(fields) == 3 else -1
        data = process.stdout.read(size + 1) if size >= 0 else b""
        if size < 0 or len(data) != size + 1:
            said = (header if size < 0 else b"") or process.stderr.read()
            complaint = _complaint(said.decode("utf-8", "replace"))
            raise TargetError(_missing(self._repository.path, f"object {oid}", complaint))
        return data[:size]
