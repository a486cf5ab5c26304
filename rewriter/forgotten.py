"""An applied codemod that this version of the tool does not have: known by its record alone."""

from __future__ import annotations

from rewriter.codemod import Codemod, Companion, Site
from rewriter.manifest import Held


class Forgotten(Codemod):
    """A codemod that a manifest names and the catalogue lacks: retired, or a plug-in that is gone.

    It can be taken out, because the manifest holds what that takes, but not put in again.
    """

    def __init__(self, held: Held) -> None:
        self.name = held.name
        self.target = held.files[0] if held.files else ""
        self.requires = held.requires
        self.companions = tuple(
            Companion(path, version.partition(" ")[0]) for path, version in held.companions.items()
        )
        self._files = held.files

    def files(self) -> dict[str, list[Site]]:
        """Return the files that it changed; where in them is not known."""
        return {path: [] for path in self._files}
