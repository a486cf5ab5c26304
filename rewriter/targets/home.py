"""Where the record of a writable target lies: manifest, journal, and the RECORD beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rewriter.targets.disk import PACKAGE, entries, read_bytes

if TYPE_CHECKING:
    from rewriter.targets import Target


class Home(NamedTuple):
    """The place of one target's record. Nothing needs to exist there yet.

    Attributes:
        root: the package's parent.
        folder: the directory of manifest and journal.
        manifest, journal: their names in it.
        record: the name in ``folder`` of the RECORD that lists the package's files, or None.
        prefix: what stands before ``sglang/`` in the tree of a repository.
        top: the top of the working tree, where the package lies in one that has git data.
    """

    root: Path
    folder: Path
    manifest: str
    journal: str
    record: str | None = None
    prefix: str = ""
    top: Path | None = None

    @property
    def manifest_path(self) -> Path:
        """The manifest, whether it is there or not."""
        return self.folder / self.manifest

    @property
    def journal_path(self) -> Path:
        """The journal; it is there only while a run is under way, or after one died."""
        return self.folder / self.journal

    @property
    def own(self) -> bool:
        """Whether the folder is ours alone, so that it goes when nothing is left in it."""
        return not self.folder.name.endswith(".dist-info")

    @property
    def shown(self) -> str:
        """The folder, relative to the package's parent where it lies below."""
        inside = self.folder.is_relative_to(self.root)
        return self.folder.relative_to(self.root).as_posix() if inside else str(self.folder)

    def record_bytes(self) -> bytes | None:
        """Return RECORD as it is now; None when there is none that lists the package.

        Raises:
            TargetError: it is there and cannot be read.
        """
        return None if self.record is None else read_bytes(self.folder, self.record)

    def identity(self) -> tuple[object, ...]:
        """Return what an installer changes: which dist-infos there are, and our METADATA.

        Read before and after a write: ``pip install --upgrade`` takes no lock.

        Raises:
            TargetError: that cannot be read.
        """
        if self.own:
            return ()
        metadata = read_bytes(self.folder, "METADATA")
        if metadata is None:
            return ("gone",)
        names = {path.name for path in entries(self.root)}
        found = {n for n in names if n.startswith(f"{PACKAGE}-") and n.endswith(".dist-info")}
        return (*sorted(found | {self.folder.name}), metadata)


def home_of(target: Target) -> Home | None:
    """Return where a target's record lies; None for a target that is never written."""
    found = getattr(target, "home", None)
    return found if isinstance(found, Home) else None


def in_dist_info(root: Path, dist_info: Path) -> Home:
    """Return the home of a package that lies beside its dist-info."""
    record = "RECORD" if (dist_info / "RECORD").is_file() else None
    return Home(root, dist_info, "REWRITER.json", "REWRITER.journal", record)


def in_tree(root: Path, top: Path, git_dir: Path | None) -> Home:
    """Return the home of a source tree: in its git data, which git itself never lists.

    Without git data it is a directory beside the package.
    """
    if git_dir is None:
        return beside(root)
    prefix = "" if root == top else f"{root.name}/"
    return Home(root, git_dir / "rewriter", "manifest.json", "journal.json", None, prefix, top)


def beside(root: Path) -> Home:
    """Return the home of a package that nothing describes."""
    return Home(root, root / ".rewriter", "manifest.json", "journal.json")
