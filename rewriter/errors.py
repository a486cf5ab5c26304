"""The error classes: one root, few kinds, each with its exit code.

Exit codes: 0 as asked, 1 the answer is no, 2 refused with nothing written, 3 a bug of the tool.
A message says what failed, where, what was expected and found, and what to do.
"""

from __future__ import annotations


class RewriterError(Exception):
    """Root of all errors that a command reports in one message.

    Attributes:
        exit_code: what the process exits with when this error ends a command.
    """

    exit_code = 2


class UsageError(RewriterError):
    """The command line or a configuration file asks for something that cannot be."""


class TargetError(RewriterError):
    """A target cannot be read: no sglang there, no such revision, no network."""


class NotInstalledError(TargetError):
    """An interpreter has no sglang: another target is to be named."""


class SourceError(RewriterError):
    """A source file cannot be judged: it does not parse, or not as the bytes it holds."""


class CatalogError(RewriterError):
    """A codemod is malformed, unknown or named twice."""


class RefusedError(RewriterError):
    """A write was refused because the target is not in a state that allows it."""


class Interrupted(RewriterError):
    """A run died, or failed and could not be undone; the next writing command recovers it."""

    exit_code = 1


class ToolBug(RewriterError):
    """A post-condition of the tool's own work failed. Nothing was written."""

    exit_code = 3
