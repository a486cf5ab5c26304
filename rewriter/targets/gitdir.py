"""Where a working tree keeps its git data, by looking at files only; git itself is not asked."""

from __future__ import annotations

from pathlib import Path


def top_of(root: Path) -> Path:
    """Return the top of the working tree whose package's parent is ``root``.

    Only two layouts exist: the package under ``python/``, or at the top. Looking any further up
    would find somebody else's repository around a site-packages.
    """
    if root.name == "python" and not (root / ".git").exists():
        return root.parent
    return root


def git_dir(top: Path) -> Path | None:
    """Return the git directory of the working tree at ``top``, or None when it has none.

    Linked worktrees and submodules have a ``.git`` file that names it, relative to ``top``.
    """
    dot = top / ".git"
    try:
        if dot.is_dir():
            return dot if (dot / "HEAD").exists() else None
        named = dot.read_text("utf-8", "surrogateescape").strip()
    except OSError:
        return None
    key, _, place = named.partition(":")
    found = top / place.strip()
    return found if key == "gitdir" and (found / "HEAD").exists() else None
