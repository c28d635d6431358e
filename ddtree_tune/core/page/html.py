"""A page as one HTML file that needs no network.

Every text is escaped where it becomes markup, and charts get their rows as JSON in which no bracket
is left. Should a text come through all the same, the file's own policy runs no script but the one
whose hash it names, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from typing import TYPE_CHECKING, assert_never

from ddtree_tune.core.page.model import Absent, Chart, Code, Table, Text
from ddtree_tune.core.page.style import STYLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddtree_tune.core.page.model import Block, Page, Section

DRAW = """
const charts = JSON.parse(document.getElementById("charts").textContent);
for (const [id, spec] of Object.entries(charts)) {
  const options = {mode: "vega-lite", renderer: "svg", actions: false, ast: true};
  vegaEmbed("#" + id, spec, options).catch(function (error) {
    document.getElementById(id).textContent = "This chart could not be drawn: " + error.message;
  });
}
"""
"""What the page runs once Vega is there; expressions are interpreted, for the policy forbids ``eval``."""
_LONG = 40
"""Rows of a table that nobody wants to scroll past."""
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def html(page: Page, script: str) -> str:
    """The whole file.

    Args:
        page: what stands on it.
        script: Vega, Vega-Lite, Vega-Embed and ``DRAW`` as one.
    """
    safe = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    digest = base64.b64encode(hashlib.sha256(safe.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; form-action 'none'"
    title = escape(f"{page.title}: {page.question}" if page.question else page.title)
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            *_head(page),
            *(line for section in page.sections for line in _section(section, page)),
            "</main>",
            f'<script type="application/json" id="charts">{_json(page)}</script>',
            f"<script>{safe}</script>",
            "</body>",
            "</html>",
            "",
        )
    )


def _head(page: Page) -> Iterator[str]:
    """Title, answer and the numbers that matter, then where the rest is."""
    yield "<main>"
    yield f"<header><h1>{escape(page.title)}</h1>"
    if page.question:
        yield f'<p class="question">{escape(page.question)}</p>'
    if page.partial is not None:
        yield f'<p class="partial" role="status">{escape(page.partial)}</p>'
    yield f'<p class="answer">{escape(page.answer)}</p>'
    figures = "".join(f"<div><dd>{escape(one.value)}</dd><dt>{escape(one.meaning)}</dt></div>" for one in page.figures)
    yield f'<dl class="figures">{figures}</dl></header>'
    links = "".join(f'<a href="#{escape(one.key)}">{escape(one.title)}</a>' for one in page.sections)
    yield f'<nav aria-label="Sections">{links}</nav>'
    if page.charts:
        yield "<noscript><p>The charts need a script; the tables hold the same numbers.</p></noscript>"


def _section(section: Section, page: Page) -> Iterator[str]:
    yield f'<section id="{escape(section.key)}"><h2>{escape(section.title)}</h2>'
    yield f'<p class="how">{escape(section.how_to_read)}</p>'
    yield '<div class="blocks">'
    for block in section.blocks:
        yield from _block(block, page)
    yield "</div></section>"


def _block(block: Block, page: Page) -> Iterator[str]:
    match block:
        case Text(text):
            yield f"<p>{escape(text)}</p>"
        case Absent(why):
            yield f'<p class="absent">{escape(why)}</p>'
        case Chart(title):
            drawn = f'<div class="chart" id="{_chart_id(block, page)}"></div>'
            yield f"<figure><figcaption>{escape(title)}</figcaption>{drawn}</figure>"
        case Table():
            yield from _table(block)
        case Code(text, title):
            code = f'<pre tabindex="0">{escape(text)}</pre>'
            yield f"<details><summary>{escape(title)}</summary>{code}</details>" if title else code
        case _:
            assert_never(block)


def _table(table: Table) -> Iterator[str]:
    """A table that scrolls by itself where the screen is narrow, and is folded away where it is long."""
    long = len(table.rows) > _LONG
    if long:
        yield f"<details><summary>{escape(table.title or 'The same as a table')}, {len(table.rows)} rows</summary>"
    sides = [' class="number"' if title.startswith(">") else "" for title in table.head]
    kind = "" if any(table.head) else ' class="facts"'
    yield f'<div class="scroll" tabindex="0"><table{kind}>'
    if table.title and not long:
        yield f"<caption>{escape(table.title)}</caption>"
    if any(table.head):
        titles = zip(sides, table.head, strict=True)
        heads = "".join(f"<th{side}>{escape(title.removeprefix('>'))}</th>" for side, title in titles)
        yield f"<thead><tr>{heads}</tr></thead>"
    yield "<tbody>"
    for row in table.rows:
        yield f"<tr>{''.join(f'<td{side}>{escape(cell)}</td>' for side, cell in zip(sides, row, strict=True))}</tr>"
    yield "</tbody></table></div>" + ("</details>" if long else "")


def _chart_id(chart: Chart, page: Page) -> str:
    return f"chart-{next(n for n, one in enumerate(page.charts, 1) if one is chart)}"


def _json(page: Page) -> str:
    """Every chart by its id, as JSON that markup may hold."""
    text = json.dumps({_chart_id(one, page): one.spec for one in page.charts}, allow_nan=False, separators=(",", ":"))
    return "".join(_UNSAFE.get(character, character) for character in text)
