"""Values of git histories: commits, ranges of them, and a few files of their trees.

Tuples with names: every start makes these classes, and a frozen dataclass takes longer to make.
"""

from __future__ import annotations

from typing import NamedTuple

PREFIXES = ("python/", "")
"""Where the package's parent may be in a tree, as a Revision looks for it."""


class Commit(NamedTuple):
    """One commit.

    Attributes:
        id: full.
        date: when it was committed, ISO 8601 with its own offset from UTC.
        subject: the first line of its message.
        parents: full ids.
    """

    id: str
    date: str
    subject: str
    parents: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The first ten digits of the id."""
        return self.id[:10]


class Span(NamedTuple):
    """A range of commits, resolved.

    Attributes:
        tip: the full id of its last commit.
        name: what the user called that commit.
        base: the full id of the commit that is left out with its ancestors; None for a whole
            history.
        base_name: what the user called that one.
        after: commits before this second of the epoch are left out.
        cut: the commits at which a shallow clone ends: their parents are not known.
    """

    tip: str
    name: str
    base: str | None = None
    base_name: str = ""
    after: int | None = None
    cut: frozenset[str] = frozenset()

    @property
    def limits(self) -> list[str]:
        """The arguments by which git limits a log to this range."""
        since = [] if self.after is None else [f"--max-age={self.after}"]
        return [*since, self.tip, *([] if self.base is None else [f"^{self.base}"])]


class Tree(NamedTuple):
    """Some files of one commit.

    Attributes:
        prefix: where the package's parent is in the tree: ``python/`` or empty.
        blobs: their ids by path; a file that is not there is left out.
    """

    prefix: str
    blobs: dict[str, str]


NO_TREE = Tree(PREFIXES[0], {})
"""Of a commit without the package."""
