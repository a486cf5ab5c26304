"""What a matrix is made of: rows, runs of rows that share a state, and the whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rewriter.codemod import Codemod
from rewriter.model import FINE, State, Verdict
from rewriter.targets.commits import Commit

Origin = tuple[str, "Commit | None"]
"""The revision that brought a state: its label, and its commit where it is one."""


class Row(NamedTuple):
    """One codemod at one revision.

    Attributes:
        codemod: its name.
        series: which rows follow each other: ``commits``, ``tags``, ``releases`` or ``trees``.
        label: what a user knows the revision by.
        kind: the kind of the point (base, commit, tip, tag), ``release`` or ``checkout``.
        commit: the commit, where it is one.
        version: the version that was judged by, where there is one.
        verdict: what the codemod is there; None where that could not be told.
        error: why it could not be told.
        before: the states in the parents of a commit; empty where they are not known.
        was: the same in words, as ``word`` has them.
        since: label and commit that brought the state; None where that is before the first row.
        moved: where the file was moved to, and the commit that did.
        prefix: stands before ``sglang/`` in paths for people: ``python/``, or empty.
        how: of a carried patch, how it is placed; told instead of the state.
    """

    codemod: str
    series: str
    label: str
    kind: str
    commit: Commit | None = None
    version: str | None = None
    verdict: Verdict | None = None
    error: str = ""
    before: tuple[State | None, ...] = ()
    since: Origin | None = None
    moved: tuple[str, str] | None = None
    prefix: str = ""
    how: str = ""
    was: tuple[str, ...] = ()

    @property
    def state(self) -> State | None:
        """The state; None where it could not be told."""
        return self.verdict.state if self.verdict else None

    @property
    def word(self) -> str:
        """The state in a word or two; ``error`` where it could not be told."""
        return self.how or self._state_word

    @property
    def _state_word(self) -> str:
        return self.verdict.state.value if self.verdict else "error"

    @property
    def changed(self) -> bool:
        """Whether this revision brought the state."""
        return self.since is not None and self.since[0] == self.label

    @property
    def fine(self) -> bool:
        """Whether the codemod can be applied there, is, or is not needed.

        A file that was moved away is absent, but what it does is still done elsewhere.
        """
        return self.state in FINE and self.moved is None

    @property
    def asked(self) -> bool:
        """Whether the revision is part of what was asked about; a range's base is not."""
        return self.kind != "base"

    @property
    def file(self) -> str:
        """Path of the edited file, as it stands in the tree."""
        return self.prefix + self.verdict.file if self.verdict else ""

    @property
    def reason(self) -> str:
        """Why the state is what it is, in one sentence; empty where nothing is to say."""
        if self.moved is not None:
            return f"the file was moved to {self.moved[0]} by {self.moved[1]}"
        return self.verdict.reason if self.verdict else self.error


class Episode(NamedTuple):
    """Rows of one codemod that follow each other and have the same state."""

    rows: tuple[Row, ...]

    @property
    def first(self) -> Row:
        """The oldest row."""
        return self.rows[0]

    @property
    def last(self) -> Row:
        """The newest row; it stands for the others in reports."""
        return self.rows[-1]


class Matrix(NamedTuple):
    """Rows, oldest first within each codemod and series.

    Attributes:
        rows: the rows.
        codemods: the codemods, as asked.
        location: what was looked at, for people.
        sources: how many distinct sets of files there were to judge.
        judged: how many of them were judged anew.
    """

    rows: tuple[Row, ...]
    codemods: tuple[Codemod, ...]
    location: str
    sources: int = 0
    judged: int = 0

    @property
    def exit_code(self) -> int:
        """0 where all that was asked about is fine, else 1."""
        return 0 if all(row.fine for row in self.rows if row.asked) else 1

    def episodes(self) -> Iterator[Episode]:
        """Yield the rows in runs of one codemod, series, state and fitness."""
        run: list[Row] = []
        for row in self.rows:
            if run and _run_key(run[-1]) != _run_key(row):
                yield Episode(tuple(run))
                run = []
            run.append(row)
        if run:
            yield Episode(tuple(run))

    def newest(self) -> Iterator[Row]:
        """Yield the last row of each codemod and series."""
        last = {(row.codemod, row.series): row for row in self.rows}
        yield from last.values()

    def retired(self) -> Iterator[tuple[Row, str]]:
        """Yield the newest rows where nothing is left to patch, with the codemod's drop_when."""
        drop = {codemod.name: codemod.drop_when for codemod in self.codemods}
        for row in self.newest():
            if row.state is State.UPSTREAM:
                yield row, drop[row.codemod]


def _run_key(row: Row) -> tuple[str, str, str, bool]:
    return row.codemod, row.series, row.word, row.fine
