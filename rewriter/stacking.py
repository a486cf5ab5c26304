"""Carried patches put into pristine files, one over the other; codemods go over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rewriter.carried import CarriedPatch, Delta, rebased
from rewriter.codemod import Codemod
from rewriter.errors import RefusedError
from rewriter.model import Verdict
from rewriter.originals import Original
from rewriter.targets.overlay import Overlay, module_of

if TYPE_CHECKING:
    from rewriter.targets import Target


def stacked(
    originals: Mapping[str, Original], wanted: Sequence[Codemod], target: Target
) -> tuple[dict[str, bytes | None], dict[str, Mapping[str, Delta]]]:
    """Return the files with the carried patches alone, and what each patch makes of them.

    Raises:
        RefusedError: a patch has no place in them any more without another one, or an overlay
            cannot serve them.
    """
    now: dict[str, bytes | None] = {path: found.raw for path, found in originals.items()}
    layers: dict[str, Mapping[str, Delta]] = {}
    for patch in wanted:
        if not isinstance(patch, CarriedPatch):
            continue
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
    if layers and isinstance(target, Overlay):
        _check_kinds(originals, now)
    return now, layers


def _check_kinds(originals: Mapping[str, Original], now: Mapping[str, bytes | None]) -> None:
    """Refuse what an overlay cannot serve: only modules are found through it, each by its name.

    Raises:
        RefusedError: which file, and why.
    """
    names = {module_of(path): path for path, raw in now.items() if raw is not None}
    for path, raw in now.items():
        if path in originals and originals[path].raw == raw:
            continue
        other = names.get(module_of(path), path)
        if not path.endswith(".py"):
            what = "a patch changes it, and it is no module"
        elif raw is None and path.endswith("/__init__.py"):
            what = "a patch deletes it, and what is left of its package could not be imported"
        elif raw is None and other != path:
            what = f"a patch deletes it, and {other} is the same module"
        else:
            continue
        raise RefusedError(
            f"{path}: {what}, which an overlay cannot do: it serves modules by their names; "
            "nothing was written. Apply the patch to the package itself"
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
