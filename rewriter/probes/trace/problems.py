"""Errors about traces: what cannot be read, and what a strict reading does not accept."""

from __future__ import annotations

from rewriter.errors import RewriterError, UsageError


class TraceError(UsageError):
    """A file is no profiler trace, or holds nothing that could be diagnosed."""


class DamagedTraceError(RewriterError):
    """A trace needed repair or is incomplete, and the reading was asked to be strict."""

    exit_code = 1
