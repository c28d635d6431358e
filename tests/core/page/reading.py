"""Reads a page as a browser would: elements, their texts, and the data of its charts."""

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "input", "link", "hr"}


@dataclass
class Element:
    """One element with what it holds."""

    tag: str
    attributes: dict
    children: list = field(default_factory=list)

    @property
    def text(self):
        return "".join(one if isinstance(one, str) else one.text for one in self.children)

    def find(self, tag, **attributes):
        """Every element below of one kind, in order."""
        found = []
        for one in self.children:
            if isinstance(one, Element):
                if one.tag == tag and all(one.attributes.get(name) == value for name, value in attributes.items()):
                    found.append(one)
                found += one.find(tag, **attributes)
        return found


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data):
        self.open[-1].children.append(data)


def read(text):
    """The document's root; every element that was opened is closed, in order."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [reader.root]
    return reader.root


def sections(root):
    """Sections by key, in order."""
    return {one.attributes["id"]: one for one in root.find("section")}


def charts(root):
    """Vega-Lite by the id of the element that it is drawn in."""
    return json.loads(root.find("script", id="charts")[0].text)


def data(spec):
    """Every row of a chart and of its layers."""
    return [row for one in (spec, *spec["layer"]) for row in one.get("data", {}).get("values", [])]
