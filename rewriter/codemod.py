"""What the author of a codemod writes: sites, how to find them, what becomes of them.

Tuples with names where that is possible: every start of the tool makes these classes, and a
frozen dataclass takes five times as long to make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import libcst as cst

    from rewriter.definition import Definition


class Drift(Exception):
    """Raised by a finder where the source is not what the codemod knows: reason and place."""

    def __init__(self, reason: str, node: cst.CSTNode | None = None) -> None:
        super().__init__(reason)
        self.node = node


class Upstream(Exception):
    """Raised by a finder where data flow proves that the effect is there already."""

    def __init__(self, reason: str, node: cst.CSTNode | None = None) -> None:
        super().__init__(reason)
        self.node = node


class Wrap(NamedTuple):
    """Put ``call(…)`` around an expression: a pure insertion.

    Attributes:
        call: the dotted name of the function; it marks the site, so nothing else may call it.
        keeps: which argument the wrapped expression becomes; 0-based.
    """

    call: str
    keeps: int = 0


class Insert(NamedTuple):
    """Put a statement on a line of its own after (or before) the one found: a pure insertion."""

    code: str
    before: bool = False


class Replace(NamedTuple):
    """Put other code in the place of the code found. Holes of the find template may be used.

    Only the expressions in which the two templates differ are touched; the layout of the rest
    stays. Not an insertion: the layout of what was touched is gone, so a revert without the
    manifest restores the find template's own form there.
    """

    code: str


Edit = Wrap | Insert | Replace


class Match(NamedTuple):
    """A place that a finder found.

    Attributes:
        node: the expression to wrap, the statement to insert next to, the code to replace.
        arguments: for Wrap, the code of the call's other arguments, in order.
        holes: what stood in the template's holes.
    """

    node: cst.CSTNode
    arguments: tuple[str, ...] = ()
    holes: Mapping[str, cst.CSTNode] = MappingProxyType({})


Finder = Callable[["Definition"], Iterable[Match]]


@dataclass(frozen=True)
class Site:
    """One kind of place in one definition.

    Attributes:
        within: qualified name of the definition, ``<imports>``, or ``Class.<fields>`` for what
            stands in front of a class's methods; nothing outside changes.
        kind: a word for reports: import, constructor, plan, cast.
        find: a template, several of which exactly one may match, or a finder.
        edit: what is done with each match.
        count: how many matches there must be; None leaves that to the finder (at least one).
        optional: whether it is no fault that nothing is found.
        decides: where a finder raises Upstream at every deciding site, the codemod is upstream.
        file: path of the file, if it is not the codemod's target.
        one_of: name of a group: of its sites exactly one must be found, wherever releases keep
            what it looks for; the others' definitions, or whole files, need not be there.
        unconditional: the statement found must run whenever its function does: it stands in the
            function's own body, nothing returns before it, and parameters that the inserted code
            uses are not bound again.
    """

    within: str
    kind: str
    find: str | tuple[str, ...] | Finder
    edit: Edit
    count: int | None = 1
    optional: bool = False
    decides: bool = False
    file: str | None = None
    one_of: str = ""
    unconditional: bool = False


class Companion(NamedTuple):
    """A module that a codemod brings into the target.

    Attributes:
        path: where it goes, relative to the package's parent.
        source: name of the module in ``codemods/runtime``; in a plug-in, its path beside the
            codemod's own file.
        beside: the plug-in's directory; the catalog fills it in.
    """

    path: str
    source: str
    beside: str = ""


class Codemod:
    """A patch. Subclass it once in a module of ``codemods``; the module's name is the patch's.

    Attributes:
        target: path of the file that is edited, relative to the package's parent.
        supports: PEP 440 range of sglang releases; outside it the tool refuses.
        sites: every place that changes; found all before any is edited.
        companions: modules that come along.
        requires: codemods that must be applied as well.
        drop_when: the upstream change that makes the patch needless.
    """

    name: str = ""
    target: str = ""
    supports: str = ""
    sites: tuple[Site, ...] = ()
    companions: tuple[Companion, ...] = ()
    requires: tuple[str, ...] = ()
    drop_when: str = ""
    is_patch = False  # of a carried patch, which has no sites and lies beneath all codemods

    def files(self) -> dict[str, list[Site]]:
        """Return the sites by file, in order."""
        found: dict[str, list[Site]] = {}
        for site in self.sites:
            found.setdefault(site.file or self.target, []).append(site)
        return found


def import_line(code: str, file: str | None = None) -> Site:
    """Return the site of an import: a line after the module's leading block of imports."""
    return Site("<imports>", "import", _last_import, Insert(code), file=file)


def _last_import(definition: Definition) -> Iterable[Match]:
    """Find the last import at the top of the module."""
    import libcst as cst

    for statement in reversed(definition.module.body):
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        imports = [isinstance(small, (cst.Import, cst.ImportFrom)) for small in statement.body]
        if all(imports):
            return [Match(statement)]
        if any(imports):
            raise Drift("the last import shares its line with another statement", statement)
    raise Drift("no import at the top of the module")
