"""The all-or-nothing transition of a target on disk: lock, journal, rename, read back, undo.

It knows names and bytes, not codemods: what is to stand on disk is decided by ``transition``.
"""

from rewriter.transaction.folder import Content, Link
from rewriter.transaction.journal import Journal, Write, is_alive, read
from rewriter.transaction.lock import exclusive
from rewriter.transaction.recovery import recover
from rewriter.transaction.run import Run

__all__ = ["Content", "Journal", "Link", "Run", "Write", "exclusive", "is_alive", "read", "recover"]
