"""One self-contained HTML page: the matrix as a heat map. No script, no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape as _escape
from itertools import groupby

from rewriter import __version__
from rewriter.model import SiteResult
from rewriter.report.matrix import count, origin, verdict_line
from rewriter.rows import Episode, Matrix, Row

_LETTERS = {
    "ready": "R", "applied": "A", "upstream": "U", "absent": "–", "drifted": "D", "partial": "P",
    "tampered": "T", "unsupported": "V", "orphaned": "O", "interrupted": "I", "moved": "M",
    "exactly": "E", "by-structure": "S", "to-review": "?", "conflict": "C", "error": "!",
}  # fmt: skip
"""Colour is never the only sign of a state."""

_MEANINGS = {
    "ready": "would apply",
    "applied": "is applied",
    "upstream": "nothing left to patch",
    "absent": "no such file",
    "drifted": "a place is missing or ambiguous",
    "partial": "some places are patched",
    "tampered": "neither as found nor as written",
    "unsupported": "version out of range",
    "orphaned": "a file of ours was left behind",
    "interrupted": "a run died half-way",
    "moved": "the file was moved away",
    "exactly": "every hunk has its place as it stands",
    "by-structure": "every hunk has one place, found by structure",
    "to-review": "placed, and may need other lines by now",
    "conflict": "a hunk has no one place",
    "error": "could not be judged",
}

_STYLE = """
:root { --ink: #1c2128; --soft: #59636e; --paper: #ffffff; --line: #d1d9e0; --panel: #f6f8fa;
  --ready: #1a7f47; --applied: #0b5cad; --upstream: #7fb2dd; --absent: #d5dae0;
  --drifted: #cf4a12; --partial: #b3297b; --tampered: #8a1616; --unsupported: #e3b341;
  --orphaned: #95630a; --interrupted: #6a3fa0; --moved: #b8860b; --error: #101418;
  --exactly: #1a7f47; --by-structure: #0b5cad; --to-review: #95630a; --conflict: #cf4a12; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9ba6b2; --paper: #0d1117; --line: #30363d; --panel: #161b22;
    --ready: #238a4e; --applied: #2f7fd0; --error: #000000;
    --exactly: #238a4e; --by-structure: #2f7fd0; }
  .error { border: 1px solid var(--soft); } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 75rem; padding: 1.5rem 1.5rem 9rem; color: var(--ink);
  background: var(--paper); font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .5rem; }
code { font: .87em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.soft { color: var(--soft); margin: 0; }
.answer { border-left: .35rem solid; padding: .5rem .9rem; margin: 1rem 0; font-weight: 600;
  background: var(--panel); }
.answer.yes { border-color: var(--ready); } .answer.no { border-color: var(--drifted); }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; padding: 0; list-style: none; }
.legend li { display: flex; align-items: center; gap: .45rem; font-size: .87rem; }
.map { overflow-x: auto; padding-bottom: .5rem; direction: rtl; /* shows the newest first */ }
.map table { border-collapse: separate; border-spacing: 2px; direction: ltr; margin: 0 auto 0 0; }
.map th { font-weight: 400; font-size: .78rem; color: var(--soft); }
.map thead th { vertical-align: bottom; height: 6.2rem; padding: 0; }
.map thead span { writing-mode: vertical-rl; transform: rotate(180deg); white-space: nowrap; }
.map thead th:first-child, .map tbody th { position: sticky; left: 0; z-index: 1;
  background: var(--paper); }
.map thead .change span { color: var(--ink); font-weight: 700; }
.map tbody th { text-align: right; padding-right: .6rem; white-space: nowrap;
  color: var(--ink); font-size: .87rem; }
.cell { display: inline-block; width: 1.25rem; height: 1.5rem; border-radius: 3px;
  text-align: center; font: 600 .75rem/1.5rem ui-monospace, Menlo, Consolas, monospace;
  color: #ffffff; vertical-align: middle; flex: none; }
td .cell { cursor: default; outline-offset: 1px; }
td .cell:hover, td .cell:focus { outline: 2px solid var(--ink); }
.upstream, .absent, .unsupported { color: #1c2128; }
.base { opacity: .45; }
.tip { display: none; position: fixed; z-index: 2; left: 50%; bottom: 1rem; translate: -50% 0;
  width: min(70rem, 94vw); padding: .7rem 1rem; text-align: left; color: var(--ink);
  background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  box-shadow: 0 4px 18px rgb(0 0 0 / .25); font: 14px/1.45 system-ui, sans-serif; }
.cell:hover .tip, .cell:focus .tip { display: block; }
.cell:hover .tip { z-index: 3; }
.tip b { font-weight: 650; } .tip p { margin: .2rem 0 0; overflow-wrap: anywhere; }
table.runs { border-collapse: collapse; width: 100%; font-size: .9rem; margin-top: .75rem; }
.runs th, .runs td { border-top: 1px solid var(--line); padding: .45rem .6rem; text-align: left;
  vertical-align: top; }
.runs thead th { border: 0; color: var(--soft); font-weight: 500; }
.runs td { overflow-wrap: anywhere; } .runs .cell { margin-right: .5rem; }
.runs td:nth-child(-n + 2) { white-space: nowrap; overflow-wrap: normal; }
.runs p { margin: .2rem 0 0; }
details { margin-top: .25rem; } summary { cursor: pointer; color: var(--soft); }
details table { border-collapse: collapse; }
.runs details td { border: 0; padding: 0 .6rem 0 0; }
.runs details td:last-child { white-space: nowrap; }
"""


def page(matrix: Matrix) -> str:
    """Return the page. What it shows stands in it: styles inline, nothing loaded."""
    answer = "yes" if matrix.exit_code == 0 else "no"
    styles = "".join(f".{name} {{ background: var(--{name}); }}\n" for name in _LETTERS)
    body = "".join(
        [
            "<h1>rewriter matrix</h1>",
            f'<p class="soft">{_text(matrix.location)} · '
            f"{count(matrix.sources, 'distinct source')} · rewriter {__version__}</p>",
            f'<p class="answer {answer}">{_text(verdict_line(matrix))}</p>',
            *_retired(matrix),
            _legend(matrix),
            *_series(matrix),
        ]
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>rewriter matrix: {_text(verdict_line(matrix))}</title>\n"
        f"<style>{_STYLE}{styles}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _text(text: str) -> str:
    return _escape(text, quote=True)


def _look(row: Row) -> str:
    if row.moved is not None and row.verdict is not None:
        return "moved"
    return row.word.replace(" ", "-")


def _retired(matrix: Matrix) -> Iterator[str]:
    for row, drop_when in matrix.retired():
        yield (
            f"<p><b>{_text(row.codemod)}</b> has nothing to do at {_text(row.label)}: "
            f"{_text(row.reason)}. Drop when: {_text(drop_when)}.</p>"
        )


def _legend(matrix: Matrix) -> str:
    looks = {_look(row) for row in matrix.rows}
    entries = "".join(
        f'<li><span class="cell {name}">{_LETTERS[name]}</span>{name.replace("-", " ")}: '
        f"{_MEANINGS[name]}</li>"
        for name in _LETTERS
        if name in looks
    )
    return f'<ul class="legend">{entries}</ul>'


def _series(matrix: Matrix) -> Iterator[str]:
    """Yield, series by series, the heat map with a line a codemod, then its runs in words."""
    for series in dict.fromkeys(row.series for row in matrix.rows):
        rows = [row for row in matrix.rows if row.series == series]
        lines = {
            codemod: list(found) for codemod, found in groupby(rows, key=lambda row: row.codemod)
        }
        yield f"<h2>{_text(series.capitalize())}</h2>"
        yield _map(lines)
        runs = [e for e in matrix.episodes() if e.first.series == series]
        yield (
            '<table class="runs"><thead><tr><th>State</th><th>Codemod</th><th>Revisions</th>'
            "<th>Since</th><th>Why</th></tr></thead><tbody>"
            f"{''.join(_run(episode) for episode in reversed(runs))}</tbody></table>"
        )


def _map(lines: dict[str, list[Row]]) -> str:
    columns = list(zip(*lines.values(), strict=True))
    head = "".join(_column(column) for column in columns)
    body = "".join(
        f'<tr><th scope="row">{_text(codemod)}</th>{"".join(_cell(row) for row in rows)}</tr>'
        for codemod, rows in lines.items()
    )
    return (
        f'<div class="map"><table><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _column(column: Sequence[Row]) -> str:
    row = column[0]
    mark = ' class="change"' if any(each.changed for each in column) else ""
    label = row.commit.date[:10] if row.commit and row.kind == "commit" else row.label
    return f'<th scope="col"{mark}><span>{_text(label[:20])}</span></th>'


def _cell(row: Row) -> str:
    look = _look(row)
    base = "" if row.asked else " base"
    return (
        f'<td><span class="cell {look}{base}" tabindex="0">{_LETTERS[look]}'
        f'<span class="tip">{"".join(_tip(row))}</span></span></td>'
    )


def _tip(row: Row) -> Iterator[str]:
    what = f"{row.codemod}{':' if row.how else ' is'} {row.word}"
    what += "" if row.asked else " (where the range starts)"
    when = ""
    if row.commit is not None:
        short = "" if row.label == row.commit.short else f" · {row.commit.short}"
        when = f"{short} · {row.commit.date[:10]}"
    yield f"<b>{_text(what)}</b> at {_text(row.label)}{_text(when)}"
    if row.commit is not None:
        yield f"<p>{_text(row.commit.subject)}</p>"
    if row.reason:
        yield f"<p>{_text(row.reason)}</p>"
    yield _nearest(row)
    if row.since is not None and not row.changed:
        yield f'<p class="soft">since {_text(_since(row))}</p>'


def _nearest(row: Row) -> str:
    nearest = row.verdict.nearest if row.verdict else None
    if nearest is None:
        return ""
    differs = f" ({_text(nearest.differs)})" if nearest.differs else ""
    return f"<p>nearest: line {nearest.line}: <code>{_text(nearest.text)}</code>{differs}</p>"


def _since(row: Row) -> str:
    if row.since is None:
        return ""
    subject = f" {row.since[1].subject}" if row.since[1] else ""
    return origin(row.since) + subject


def _run(episode: Episode) -> str:
    first, last = episode.first, episode.last
    look = _look(last)
    ends = first.label if first is last else f"{first.label} … {last.label}"
    many = "" if first is last else f" ({len(episode.rows)})"
    sites = last.verdict.sites if last.verdict else ()
    return (
        f'<tr><td><span class="cell {look}">{_LETTERS[look]}</span>{_text(last.word)}</td>'
        f"<td>{_text(last.codemod)}</td><td>{_text(ends)}{many}</td>"
        f"<td>{_text(_since(first))}</td>"
        f"<td>{_text(last.reason)}{_nearest(last)}{_sites(last, sites)}</td></tr>"
    )


def _sites(row: Row, sites: Sequence[SiteResult]) -> str:
    if not sites:
        return ""
    lines = "".join(
        f"<tr><td>{site.line or '–'}</td><td>{_text(site.kind)}</td>"
        f"<td><code>{_text(site.definition)}</code></td><td>{_text(site.state.value)}</td></tr>"
        for site in sites
    )
    return (
        f"<details><summary>{count(len(sites), 'place')} at {_text(row.label)}</summary>"
        f"<table>{lines}</table></details>"
    )
