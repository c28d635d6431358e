"""How the page looks: one column on a phone, charts side by side on a desk."""

STYLE = """
:root { color-scheme: light; --ink: #1f2933; --muted: #52606d; --line: #d9dee7; --accent: #c2410c; }
* { box-sizing: border-box; }
body { margin: 0; background: #f6f7f9; color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 16px; }
header, section { background: #fff; border: 1px solid var(--line); border-radius: 8px; }
header, section { padding: 16px; margin: 0 0 16px; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 0 0 4px; }
p { margin: 0 0 10px; overflow-wrap: anywhere; }
.question, .how, .absent { color: var(--muted); }
.how { font-size: 0.92rem; max-width: 80ch; }
.answer { font-size: 1.12rem; max-width: 80ch; }
.partial { border-left: 4px solid var(--accent); padding: 6px 10px; background: #fff7ed; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 14px 0 0; }
.figures div { border: 1px solid var(--line); border-radius: 6px; padding: 8px 10px; }
.figures dd { margin: 0; font-size: 1.15rem; font-weight: 600; }
.figures dt { color: var(--muted); font-size: 0.85rem; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 6px 14px; margin: 0 2px 16px; font-size: 0.92rem; }
a { color: #1d4ed8; }
.blocks { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 14px 20px; }
.blocks > * { min-width: 0; margin: 0; }
.blocks > p, .blocks > .scroll, .blocks > details, .blocks > pre, .blocks > figure:only-of-type {
  grid-column: 1 / -1;
}
figcaption, caption { font-weight: 600; font-size: 0.95rem; text-align: left; padding: 2px 0 6px; }
caption { white-space: nowrap; }
.chart { width: 100%; }
.chart.vega-embed { display: block; }
#vg-tooltip-element.vg-tooltip table tr td.value { max-width: 200px; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: max-content; font-size: 0.88rem; }
th, td { text-align: left; vertical-align: top; padding: 4px 12px 4px 0; border-bottom: 1px solid #edf0f5; }
th { color: var(--muted); font-weight: 600; white-space: nowrap; }
td { max-width: 46ch; overflow-wrap: anywhere; }
.facts { width: 100%; }
.facts td { max-width: none; }
.facts td:first-child { width: 13em; min-width: 8em; color: var(--muted); }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
pre { overflow-x: auto; background: #f6f7f9; border: 1px solid var(--line); border-radius: 6px; padding: 10px; }
pre { font: 0.82rem/1.45 ui-monospace, monospace; }
summary { cursor: pointer; color: var(--muted); margin: 0 0 6px; }
@media (max-width: 600px) { main { padding: 8px; } header, section { padding: 12px; } }
@media print { body { background: #fff; } header, section { border: 0; } figure { break-inside: avoid; } }
"""
