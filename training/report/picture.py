"""Graphs as SVG that a page can zoom: boxes in layers, marked by colour and by sign."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from passwright.training.report.condense import Box, Boxes, condensed, plain
from passwright.training.report.layout import Placed, layered
from passwright.training.report.model_content import INSERTED, REMOVED, Drawing

#: Nodes up to which a graph is also drawn with a box for each.
MOST = 700
_ROW, _HEIGHT, _CHAR, _PAD, _MARGIN = 62.0, 38.0, 6.7, 18.0, 14.0
_LONGEST = 26
#: Besides the colour, for who does not tell colours apart, and on paper.
_SIGN = {REMOVED: "\N{MINUS SIGN}", INSERTED: "+"}
#: Members of a box that its tip names.
_NAMED = 12


@dataclass(frozen=True)
class Picture:
    """One SVG, its size, and how many boxes and nodes it shows."""

    svg: str
    width: float
    height: float
    boxes: int
    nodes: int


def grouped(drawing: Drawing, title: str) -> Picture:
    """With one box for alike nodes and for untouched regions."""
    return _picture(condensed(drawing), title)


def in_full(drawing: Drawing, title: str) -> Picture | None:
    """With a box for every node; None for a graph that is too large to be read, or as small as it is."""
    boxes = plain(drawing)
    if len(boxes[0]) > MOST or len(condensed(drawing)[0]) == len(boxes[0]):
        return None
    return _picture(boxes, title)


def _picture(found: Boxes, title: str) -> Picture:
    boxes, edges = found
    widths = {at: _width(box) for at, box in enumerate(boxes)}
    placed = layered(widths, edges, row=_ROW)
    width, height = placed.width + 2 * _MARGIN, placed.height + 2 * _MARGIN
    head = (
        f'<svg class="graph" role="img" tabindex="0" aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" data-width="{width:.0f}" data-height="{height:.0f}"'
        f' preserveAspectRatio="xMidYMin meet"><g transform="translate({_MARGIN:.0f} {_MARGIN:.0f})">'
    )
    parts = [head]
    parts += [_edge(placed, edge, boxes) for edge in edges]
    parts += [_box(box, widths[at], placed.centres[at]) for at, box in enumerate(boxes)]
    parts.append("</g></svg>")
    nodes = sum(len(box.members) for box in boxes)
    return Picture("".join(parts), width, height, len(boxes), nodes)


def _title(box: Box) -> str:
    sign = _SIGN.get(box.mark, "")
    text = box.title
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 9]}…{text[-8:]}"
    return f"{sign} {text}" if sign else text


def _width(box: Box) -> float:
    shape = 0.86 * len(box.shape)
    return max(44.0, max(len(_title(box)), shape) * _CHAR + _PAD)


def _box(box: Box, width: float, centre: tuple[float, float]) -> str:
    x, y = centre
    kind = " ".join(
        word
        for word, holds in (
            ("box", True),
            (box.mark, bool(box.mark)),
            ("input", box.is_input),
            ("region", box.is_region),
            ("many", len(box.members) > 1),
        )
        if holds
    )
    steps = " ".join(map(str, box.steps))
    left, top = x - width / 2, y - _HEIGHT / 2
    second = (
        f'<text class="shape" x="{x:.1f}" y="{y + 12:.1f}">{escape(box.shape)}</text>'
        if box.shape
        else ""
    )
    shift = -2.0 if box.shape else 4.0
    under = (
        f'<rect class="under" x="{left + 4:.1f}" y="{top + 4:.1f}" width="{width:.1f}"'
        f' height="{_HEIGHT:.0f}" rx="7"/>'
        if len(box.members) > 1
        else ""
    )
    return (
        f'<g class="{kind}" data-steps="{steps}"><title>{escape(_tip(box))}</title>{under}'
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_HEIGHT:.0f}" rx="7"/>'
        f'<text x="{x:.1f}" y="{y + shift:.1f}">{escape(_title(box))}</text>{second}</g>'
    )


def _tip(box: Box) -> str:
    what = {REMOVED: "removed", INSERTED: "inserted"}.get(box.mark, "kept")
    if box.steps:
        numbers = ", ".join(map(str, box.steps))
        what += f" by step {numbers}"
    named = ", ".join(node.name for node in box.members[:_NAMED])
    more = len(box.members) - _NAMED
    return f"{what}: {named}" + (f" and {more} more" if more > 0 else "")


def _edge(placed: Placed, edge: tuple[int, int], boxes: Sequence[Box]) -> str:
    points = list(placed.routes[edge])
    points[0] = (points[0][0], points[0][1] + _HEIGHT / 2)
    points[-1] = (points[-1][0], points[-1][1] - _HEIGHT / 2)
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        middle = (y0 + y1) / 2
        path += f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    mark = next((boxes[at].mark for at in edge if boxes[at].mark), "")
    kind = f"edge {mark}" if mark else "edge"
    return f'<path class="{kind}" d="{path}"/>'
