"""The frame of a self-contained HTML page: styles inline, no script, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """
:root { --ink: #1c2128; --soft: #59636e; --paper: #ffffff; --line: #d1d9e0; --panel: #f6f8fa;
  --good: #1a7f47; --bad: #cf4a12; --s0: #0b5cad; --s1: #cf4a12; --s2: #1a7f47; --s3: #b3297b;
  --s4: #95630a; --s5: #59636e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9ba6b2; --paper: #0d1117; --line: #30363d; --panel: #161b22;
    --good: #2ea45f; --bad: #f0743e; --s0: #58a6ff; --s1: #f0743e; --s2: #3fb968; --s3: #e06bb0;
    --s4: #d9a441; --s5: #9ba6b2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 1.5rem 1.5rem 4rem; color: var(--ink);
  background: var(--paper); font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .4rem 0; max-width: 52rem; }
code { font: .87em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.soft { color: var(--soft); }
.answer { border-left: .35rem solid var(--soft); padding: .5rem .9rem; margin: 1rem 0;
  font-weight: 600; background: var(--panel); max-width: none; }
.answer.yes { border-color: var(--good); } .answer.no { border-color: var(--bad); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0; }
th, td { border-top: 1px solid var(--line); padding: .35rem .7rem; text-align: left;
  vertical-align: top; }
thead th { border: 0; color: var(--soft); font-weight: 500; vertical-align: bottom; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1rem 0; } figcaption { font-weight: 600; margin-bottom: .2rem; }
svg { max-width: 100%; height: auto; display: block; }
svg text { fill: var(--ink); font: 12px system-ui, "Segoe UI", Roboto, sans-serif; }
svg .quiet { fill: var(--soft); } svg .bold { font-weight: 650; }
svg .grid { stroke: var(--line); } svg .axis { stroke: var(--soft); }
svg .limit { stroke: var(--ink); stroke-dasharray: 2 4; }
"""
_SERIES = "".join(
    f"svg .s{n} {{ stroke: var(--s{n}); }} svg .f{n} {{ fill: var(--s{n}); }}\n" for n in range(6)
)


def text(value: object) -> str:
    """Return a value as HTML text."""
    return escape(str(value), quote=True)


def page(title: str, parts: Iterable[str]) -> str:
    """Return the page with these parts of its body."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}{_SERIES}</style>\n</head>\n"
        f"<body>\n{''.join(parts)}\n</body>\n</html>\n"
    )


def answer(words: str, good: bool | None) -> str:
    """Return the sentence that the page is about."""
    kind = "" if good is None else " yes" if good else " no"
    return f'<p class="answer{kind}">{text(words)}</p>'


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], numeric: Iterable[int] = ()
) -> str:
    """Return a table; the columns ``numeric`` are set to the right.

    A cell that is a tuple has a line for each of its parts.
    """
    right = set(numeric)
    kind = [' class="n"' if at in right else "" for at in range(len(head))]
    top = "".join(f"<th{c}>{text(cell)}</th>" for c, cell in zip(kind, head, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{c}>{_cell(cell)}</td>" for c, cell in zip(kind, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(cell: object) -> str:
    if isinstance(cell, tuple):
        return "".join(f"<div>{text(part)}</div>" for part in cell if part)
    return text(cell)


def items(lines: Iterable[str]) -> str:
    """Return a list, or nothing for no lines."""
    found = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f"<ul>{found}</ul>" if found else ""
