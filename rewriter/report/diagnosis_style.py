"""The look of a diagnosis as HTML: light and dark, as the reader's system is."""

STYLE = """
:root{--ink:#1d2329;--soft:#5b6670;--paper:#fbfaf8;--card:#fff;--line:#e3e0da;--idle:#e9e6e0;
--bad:#b3312a;--good:#25724a;--open:#946200}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--soft:#9aa5af;--paper:#15191d;--card:#1c2126;
--line:#30373e;--idle:#2b3238;--bad:#f08078;--good:#70c897;--open:#e0b050}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1000px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:25px;line-height:1.25;margin:0 0 6px}h2{font-size:16px;margin:34px 0 10px}
.file{color:var(--soft);margin:0 0 2px;overflow-wrap:anywhere}
.lead{font-size:16px;margin:4px 0 18px}
.bad{color:var(--bad)}.good{color:var(--good)}.open{color:var(--open)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(180px,1fr));gap:12px;
margin:18px 0}
.card,.plot{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px}
.card b{display:block;white-space:nowrap;font-size:23px;font-weight:650;
font-variant-numeric:tabular-nums}
.card span{color:var(--soft);font-size:13px}
.plot{padding:18px 18px 10px}svg{width:100%;height:auto;display:block;overflow:visible}
svg text{font-size:13px;fill:var(--ink)}svg .label{text-anchor:end}svg .tick{text-anchor:middle;
fill:var(--soft);font-size:12px}svg .label{fill:var(--soft)}
svg .inside{fill:#fff;text-anchor:middle;font-weight:600}svg .value{font-weight:600}
svg .grid{stroke:var(--line);stroke-width:1}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:12px 0 6px;font-size:13px;color:var(--soft)}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}
table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;font-weight:600;color:var(--soft);font-size:13px}
td,th{padding:6px 12px 6px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.k{white-space:nowrap}
code{font:13px ui-monospace,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}
.note{color:var(--soft);font-size:13px}footer{margin-top:48px;color:var(--soft);font-size:13px}
section+section{margin-top:56px;border-top:2px solid var(--line);padding-top:32px}
"""
