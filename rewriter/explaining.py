"""What each site of a codemod looked for in a target, and what it found there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from rewriter import engine
from rewriter.codemod import Codemod, Insert, Site, Wrap
from rewriter.model import Nearest, SiteResult, State
from rewriter.source import Source

FOUND = frozenset({State.READY, State.APPLIED})


@dataclass(frozen=True)
class Explained:
    """One site.

    Attributes:
        file: path relative to the package's parent.
        site: what the codemod declares.
        looked: lines that say what was looked for.
        becomes: lines that say what is done with it.
        found: the places, or the one result that says why there is none.
        texts: for each place its line as it stands; empty where there is none.
        candidates: what came near, where the site was not found.
    """

    file: str
    site: Site
    looked: tuple[str, ...]
    becomes: tuple[str, ...]
    found: tuple[SiteResult, ...]
    texts: tuple[str, ...]
    candidates: tuple[Nearest, ...]


def explain(codemod: Codemod, read: Callable[[str], bytes | None]) -> list[Explained]:
    """Explain every site of a codemod in the files that ``read`` returns.

    Raises:
        SourceError: a file is no Python that can be judged.
    """
    told: list[Explained] = []
    for path, sites in codemod.files().items():
        raw = read(path)
        if raw is None:
            missing = SiteResult("", "", None, State.ABSENT, f"there is no {path}", file=path)
            told += [_explained(path, site, [missing], None, None) for site in sites]
            continue
        examined = engine.examine(codemod, path, raw)
        given, pristine = Source(path, raw), Source(path, examined.pristine)
        for site in sites:
            mine = [r for r in examined.sites if (r.definition, r.kind) == (site.within, site.kind)]
            told.append(_explained(path, site, mine, given, pristine))
    return told


def _explained(
    path: str,
    site: Site,
    results: list[SiteResult],
    given: Source | None,
    pristine: Source | None,
) -> Explained:
    texts = tuple(
        given.line_text(r.line) if given is not None and r.line is not None else "" for r in results
    )
    near: tuple[Nearest, ...] = ()
    if pristine is not None and not any(r.state in FOUND for r in results):
        near = tuple(_near(site, pristine)) or tuple(r.nearest for r in results if r.nearest)
    return Explained(path, site, _looked(site), _becomes(site), tuple(results), texts, near)


def _near(site: Site, source: Source) -> list[Nearest]:
    from rewriter.patterns import compiled

    if callable(site.find):
        return []
    templates = (site.find,) if isinstance(site.find, str) else site.find
    found = [
        nearest
        for definition in source.definitions(site.within)
        for template in templates
        for nearest in compiled(template).candidates(definition)
    ]
    return found[:3]


def _looked(site: Site) -> tuple[str, ...]:
    if callable(site.find):
        told = (inspect.getdoc(site.find) or site.find.__name__).partition("\n")[0]
        return (f"a function: {told}",)
    templates = (site.find,) if isinstance(site.find, str) else site.find
    count = "any number of times" if site.count is None else f"{site.count} time"
    count += "s" if site.count not in (None, 1) else ""
    return (*_joined(templates), f"({count}{', or not at all' if site.optional else ''})")


def _joined(templates: tuple[str, ...]) -> list[str]:
    lines = templates[0].split("\n")
    for template in templates[1:]:
        lines += ["or", *template.split("\n")]
    return lines


def _becomes(site: Site) -> tuple[str, ...]:
    edit = site.edit
    if isinstance(edit, Wrap):
        return (f"{edit.call}(…) around it",)
    where = "replaced by"
    if isinstance(edit, Insert):
        where = "in front of it" if edit.before else "behind it"
    return (f"{where}:", *edit.code.split("\n"))
