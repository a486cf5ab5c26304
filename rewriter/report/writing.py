"""What a writing command tells: the files, and what proves the bytes they were or are again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rewriter.recording import Proof
from rewriter.targets.home import Home, home_of
from rewriter.transaction import Link, Write
from rewriter.transition import Transition

if TYPE_CHECKING:
    from rewriter.targets import Target


def written_lines(
    transition: Transition, target: Target, *, dry_run: bool = False
) -> Iterable[str]:
    """Yield one line a file: what is done with it."""
    home = home_of(target)
    sizes = {c.path: (c.before, c.after) for c in transition.changes}
    for write in transition.writes:
        before, after = sizes.get(write.path, (write.before, write.after))
        own = write.path in transition.proofs  # of the package, not one that we brought
        what = _what(write, home, before, after, own=own)
        yield f"{_verb(write, dry_run)} {_shown(write, home)} ({what})"


def shown_paths(transition: Transition, target: Target) -> list[str]:
    """Return the paths of all writes, as ``written_lines`` shows them."""
    return [_shown(write, home_of(target)) for write in transition.writes]


def _shown(write: Write, home: Home | None) -> str:
    return f"{home.shown}/{write.path}" if home and write.at == "home" else write.path


def _verb(write: Write, dry_run: bool) -> str:
    done = "removed" if write.after is None else "wrote"
    plain = "remove" if write.after is None else "write"
    return f"would {plain}" if dry_run else done


def _what(
    write: Write, home: Home | None, before: object, after: object, *, own: bool
) -> str:  # fmt: skip
    if home is not None and write.at == "home" and write.path == home.manifest:
        return "the record" if write.after is None else "the record; `rewriter revert` reads it"
    if home is not None and write.at == "home" and write.path == home.record:
        return "the installer's list of files and hashes"
    if isinstance(write.after, Link):
        return f"a link to {write.after.text}, as before"
    if write.before is None:
        return "there again, as before" if own and before is None else "new file"
    if write.after is None:
        return "the patch deletes it" if own and after is None else "ours"
    if not isinstance(before, bytes) or not isinstance(after, bytes):
        return "changed"
    difference = after.count(b"\n") - before.count(b"\n")
    what = f"{difference:+d} lines" if difference else "as many lines"
    if isinstance(write.before, Link):
        what += f"; a file in the place of the link to {write.before.text}, which stays as it is"
    return what


def pristine_lines(proofs: Mapping[str, Proof]) -> Iterable[str]:
    """Yield what proved the original files before they were changed."""
    for path, proof in proofs.items():
        name = path.rpartition("/")[2]
        if proof.witness is None:
            yield f"unproven: {name} was accepted as it is"
        elif proof.witness.kind == "unproven" or not proof.holds:
            yield f"unproven: {name} was accepted as it is; on record: {proof.witness}"
        else:
            yield f"proof: {name} was as shipped: {proof.witness}"


def restored_lines(proofs: Mapping[str, Proof], *, frozen: bool) -> Iterable[str]:
    """Yield what proves the restored files."""
    for path, proof in proofs.items():
        name = path.rpartition("/")[2]
        when = ", taken before the first write" if proof.frozen else ""
        if proof.witness is None:
            yield f"reverted, unproven: {name}: no record, RECORD, commit, pin or wheel tells"
        elif proof.holds and proof.witness.kind == "unproven":
            yield f"proof: {name} is as it was found, which nothing had proved"
        elif proof.holds:
            yield f"proof: {name} is as shipped: {proof.witness}{when}"
        elif frozen:
            yield (
                f"{name}: our lines are out; edits of your own stay, so it is not what "
                f"{proof.witness} stands for"
            )
            if proof.witness.kind == "RECORD":
                yield "RECORD has its first bytes again and does not describe that file"
        else:
            yield f"reverted, unproven: {name} is not what {proof.witness} stands for"


def proofs_json(proofs: Mapping[str, Proof]) -> list[dict[str, Any]]:
    """Return proofs as JSON shows them."""
    return [
        {
            "file": path,
            "witness": None if proof.witness is None else proof.witness._asdict(),
            "holds": proof.holds,
        }
        for path, proof in proofs.items()
    ]
