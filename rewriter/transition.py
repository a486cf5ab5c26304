"""From what stands on disk to another list of codemods: which bytes go where, proved by what.

What stands on disk is a function of the pristine bytes and an ordered list of codemods. So every
change, ``apply``, ``revert`` or a newer version over an older one, is the same: find the pristine
bytes, prove them, put the new list in. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rewriter import catalog, manifest
from rewriter.carried import CarriedPatch
from rewriter.codemod import Codemod
from rewriter.errors import RefusedError
from rewriter.model import SATISFIED, Change, State
from rewriter.originals import Original, original
from rewriter.recording import Planned, Proof, manifest_of
from rewriter.stacking import misfit, stacked
from rewriter.targets.home import Home, home_of
from rewriter.targets.overlay import Overlay
from rewriter.transaction import Write
from rewriter.witness import Witness, doubts, take
from rewriter.writes import writes_of

if TYPE_CHECKING:
    from rewriter.leftovers import Leftover
    from rewriter.manifest import FileRecord, Manifest
    from rewriter.session import Session
    from rewriter.states import Survey


class Transition(NamedTuple):
    """A planned change of one target.

    Attributes:
        writes: what to do, in order; empty where nothing is to be done.
        changes: the files of the package among them, as bytes, for reports.
        codemods: the names that are applied afterwards.
        proofs: what is known of each module's pristine bytes.
        identity: of the home, when this was planned.
        made: the record afterwards; None where nothing is applied then.
    """

    writes: tuple[Write, ...]
    changes: tuple[Change, ...]
    codemods: tuple[str, ...]
    proofs: Mapping[str, Proof]
    identity: tuple[object, ...]
    made: Manifest | None = None


class Planner:
    """Plans one transition of one target."""

    def __init__(self, session: Session, survey: Survey) -> None:
        assert survey.home is not None
        self.session = session
        self.target = session.target
        self.home: Home = survey.home
        self.manifest = survey.manifest

    def plan(
        self,
        present: Sequence[Codemod],
        wanted: Sequence[Codemod],
        left: Iterable[Leftover] = (),
        *,
        accept_unproven: bool = False,
    ) -> Transition:
        """Plan the way from the codemods that are in the files to those that shall be.

        Args:
            present: those whose edits the files may hold, in the order of their application.
            wanted: those that shall be applied afterwards, in order.
            left: files of ours to remove as well.
            accept_unproven: apply to files that no witness proves.

        Raises:
            RefusedError: a file is not proven, our lines in it were edited, or a codemod that
                should stay would not apply any more.
        """
        identity = self.home.identity()
        originals = self._originals(present, wanted)
        proofs = {path: self._proof(path, found) for path, found in originals.items()}
        self._demand_proof(originals, proofs, wanted, accept_unproven)
        beneath, layers = stacked(originals, wanted, self.target)
        contents = self._contents(beneath, wanted)
        gone = self._gone(present, wanted, originals, contents)
        planned = Planned(
            self.target, self.home, self.manifest, originals, proofs, contents, gone, layers
        )
        made = manifest_of(planned, wanted)
        writes = writes_of(planned, wanted, made, tuple(left))
        return Transition(
            writes,
            self._changes(planned),
            tuple(held.name for held in made.codemods) if made is not None else (),
            proofs,
            identity,
            made,
        )

    def _changes(self, planned: Planned) -> tuple[Change, ...]:
        """Return what becomes of each module and companion, as bytes."""
        contents, originals = planned.contents, planned.originals
        changes = [Change(p, o.disk, contents.get(p)) for p, o in originals.items()]
        for path in dict.fromkeys([*contents, *planned.gone]):
            if path not in originals:
                changes.append(Change(path, self.target.read(path), contents.get(path)))
        return tuple(change for change in changes if change.before != change.after)

    # --- pristine bytes, and what proves them ----------------------------------------------

    def _originals(
        self, present: Sequence[Codemod], wanted: Sequence[Codemod]
    ) -> dict[str, Original]:
        paths = dict.fromkeys(path for c in (*present, *wanted) for path in c.files())
        if self.manifest is not None:
            paths |= dict.fromkeys(p for p, e in self.manifest.files.items() if e.before)
        found: dict[str, Original] = {}
        for path in paths:
            raw, entry = self.target.read(path), self._entry(path)
            if raw is None and (entry is None or entry.after is not None):
                continue  # not there; a file that a patch deleted is still on record
            if entry is None or entry.before is not None:
                found[path] = self._original(path, raw, entry, present)
        return found

    def _original(
        self, path: str, raw: bytes | None, entry: FileRecord | None, present: Sequence[Codemod]
    ) -> Original:
        """Return a file's pristine bytes; a shipped file has nothing of a patch, whatever it is.

        Those of an overlay lie beneath it, whatever is left of its record and its own files.
        """
        beneath = self.target.base.read(path) if isinstance(self.target, Overlay) else None
        if beneath is not None:
            return Original(beneath, raw, False)
        known = entry is not None and (raw is None or manifest.sha256(raw) == entry.after)
        patched = any(isinstance(c, CarriedPatch) and path in c.files() for c in present)
        if patched and not known and raw is not None and self._shipped(path, raw) is not None:
            return Original(raw, raw, False)
        moved = self.manifest is not None and self.manifest.version != self.target.version
        return original(path, raw, entry, present, moved=moved)

    def _entry(self, path: str) -> FileRecord | None:
        return self.manifest.files.get(path) if self.manifest is not None else None

    def _shipped(self, path: str, raw: bytes) -> Witness | None:
        names = [name for name in catalog.names() if path in catalog.load(name).files()]
        return take(self.target, path, raw, names)

    def _proof(self, path: str, found: Original) -> Proof:
        entry = self._entry(path)
        known = entry is not None and (found.ours or manifest.sha256(found.raw) == entry.before)
        frozen = entry.witness if known and entry is not None else None
        if frozen is not None and frozen.proves(found.raw):
            return Proof(frozen, True, True)
        witness = self._shipped(path, found.raw)
        if witness is None and frozen is not None:
            return Proof(frozen, False, True)
        return Proof(witness, witness is not None)  # the package moved on, and our edits with it

    def _demand_proof(
        self,
        originals: Mapping[str, Original],
        proofs: Mapping[str, Proof],
        wanted: Sequence[Codemod],
        accept_unproven: bool,
    ) -> None:
        """Refuse to build on bytes that nothing proves."""
        for path, found in originals.items():
            proof = proofs[path]
            if proof.holds:
                continue
            if found.partial:
                raise RefusedError(
                    f"{path}: only some of our edits are in it ({found.partial}), and what "
                    "remains without them is not the original file; nothing was written. "
                    "Restore the file from its package or commit, then `rewriter revert`"
                )
            needed = any(path in codemod.files() for codemod in wanted)
            if needed and not accept_unproven:
                raise RefusedError(
                    f"{path} is not known to be as shipped: {self._doubts(path, found, proof)}; "
                    "nothing was written. Restore it, or accept it as it is with "
                    "--accept-unproven: a revert then gives these bytes back"
                )

    def _doubts(self, path: str, found: Original, proof: Proof) -> str:
        if proof.witness is not None:
            return f"without our edits it is not what {proof.witness} stands for"
        home = home_of(getattr(self.target, "base", self.target))
        return doubts(home or self.home, path, found.raw)

    # --- the new list ----------------------------------------------------------------------

    def _contents(
        self, beneath: Mapping[str, bytes | None], wanted: Sequence[Codemod]
    ) -> dict[str, bytes]:
        """Return every module's bytes, and the wanted companions', with the new list in them."""
        from rewriter.judge import changes

        now = dict(beneath)
        brought = {c.path for codemod in wanted for c in codemod.companions}

        def read(path: str) -> bytes | None:
            if path in brought:
                return None
            return now[path] if path in now else self.target.read(path)

        put_in: list[Codemod] = []
        for codemod in wanted:
            if isinstance(codemod, CarriedPatch):
                continue
            paths = [*codemod.files(), *(c.path for c in codemod.companions)]
            found = self.session.judge(codemod, {path: read(path) for path in paths})
            if found.state is not State.READY:
                if found.state in SATISFIED:
                    continue
                raise RefusedError(misfit(codemod, found, wanted))
            put_in.append(codemod)
            if len(wanted) > 1:
                now.update({c.path: c.after for c in changes([codemod], read)})
        now = dict(beneath)
        now.update({change.path: change.after for change in changes(put_in, read)})
        return {path: raw for path, raw in now.items() if raw is not None}

    def _gone(
        self,
        present: Sequence[Codemod],
        wanted: Sequence[Codemod],
        originals: Mapping[str, Original],
        contents: Mapping[str, bytes],
    ) -> tuple[str, ...]:
        """Return the files to remove: companions, those that patches brought or now delete.

        One that somebody edited is neither that nor replaced.

        Raises:
            RefusedError: a file that we brought is not as we wrote it.
        """
        known = {c.path for codemod in present for c in codemod.companions}
        if self.manifest is not None:
            known |= {path for path, entry in self.manifest.files.items() if entry.before is None}
        stays = {path for path in contents if path not in originals}
        for path in sorted(known | stays):
            raw, entry = self.target.read(path), self._entry(path)
            if raw is None or (entry is not None and manifest.sha256(raw) == entry.after):
                continue
            version = catalog.companion_version(raw)
            if version is None or not version[2]:
                whose = "was edited" if version or entry is not None else "is not ours"
                raise RefusedError(
                    f"{path} {whose}, so it is neither replaced nor removed; nothing was "
                    "written. Move it away, or remove it, and try again"
                )
        deleted = {path for path in originals if path not in contents}
        return tuple(
            p for p in sorted((known - stays) | deleted) if self.target.read(p) is not None
        )
