"""Carried patches put into pristine files, one over the other; codemods go over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rewriter.carried import CarriedPatch, Delta, rebased
from rewriter.codemod import Codemod
from rewriter.errors import RefusedError
from rewriter.model import Verdict
from rewriter.originals import Original
from rewriter.targets.overlay import Overlay

if TYPE_CHECKING:
    from rewriter.targets import Target


def stacked(
    originals: Mapping[str, Original], wanted: Sequence[Codemod], target: Target
) -> tuple[dict[str, bytes | None], dict[str, Mapping[str, Delta]]]:
    """Return the files with the carried patches alone, and what each patch makes of them.

    Raises:
        RefusedError: a patch has no place in them any more without another one.
    """
    now: dict[str, bytes | None] = {path: found.raw for path, found in originals.items()}
    layers: dict[str, Mapping[str, Delta]] = {}
    for patch in wanted:
        if not isinstance(patch, CarriedPatch):
            continue
        _check_kind(patch, target)
        made: dict[str, Delta] = {}
        for path, delta in patch.deltas.items():
            placed = rebased(delta, now.get(path))
            if placed is None:
                raise RefusedError(
                    f"{path}: what {patch.name} changes stands beside, or upon, what another "
                    f"carried patch changes there; nothing was written. First: rewriter revert "
                    f"{patch.name}"
                )
            if placed.before != placed.after:
                made[path] = placed
                now[path] = placed.after
        layers[patch.name] = made
    return now, layers


def _check_kind(patch: CarriedPatch, target: Target) -> None:
    """Refuse what an overlay cannot serve: only modules are found through it."""
    if not isinstance(target, Overlay):
        return
    for path, delta in patch.deltas.items():
        if delta.after is None or not path.endswith(".py"):
            what = "deletes" if delta.after is None else "changes, and it is no module,"
            raise RefusedError(
                f"{path}: {patch.name} {what} this file, which an overlay cannot do: it serves "
                "modules; nothing was written. Apply the patch to the package itself"
            )


def misfit(codemod: Codemod, found: Verdict, wanted: Sequence[Codemod]) -> str:
    """Say that a codemod does not go over the files as they are beneath it."""
    patches = [
        c.name for c in wanted
        if isinstance(c, CarriedPatch) and c.files().keys() & codemod.files().keys()
    ]  # fmt: skip
    if not patches:
        return (
            f"{codemod.name} is {found.state} on the original files: {found.reason}; "
            "nothing was written"
        )
    return (
        f"{codemod.name} is {found.state} on the files with {' and '.join(patches)}: "
        f"{found.reason}; nothing was written. They cannot both be in: rewriter revert one, "
        "then the other can be applied"
    )
