"""The ring as a picture: a pure function from the view to SVG, styled by the page's stylesheet.

The id space goes clockwise from the top. The band shows who owns which part of it (by XOR nearness
a node's part may lie in pieces), dots are nodes, and for one channel chords lead to its polling set.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final
from xml.etree import ElementTree as ET

from markupsafe import Markup

from service.model import ChannelId, NodeId, NodeInfo
from service.overlay.ids import BITS, from_hex, to_hex
from service.overlay.ring import RingView

_WIDTH: Final = 640
_HEIGHT: Final = 400
_RADIUS: Final = 150
_LABELS_AT: Final = 178
_PIECES: Final = 512  # how finely ownership is sampled: under 2 px of the band each
_SHADES: Final = 4
_MOST_LABELS: Final = 40  # more would overlap; the table below the picture has every name


def turn(point: ChannelId | NodeId) -> float:
    """Return where an id is on the ring: a fraction of a turn in [0, 1), clockwise from the top."""
    return (from_hex(point) >> (BITS - 52)) / 2**52


def ring_svg(nodes: Sequence[NodeInfo], channel: ChannelId | None = None, polling_set: Sequence[NodeId] = ()) -> Markup:
    """Return the picture of these nodes, and of a channel with its polling set if one is given."""
    ordered = sorted(nodes, key=lambda node: node.id)
    svg = ET.Element("svg", {"class": "ring", "viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img"})
    ET.SubElement(svg, "title").text = _title(ordered, channel, polling_set)
    _draw_regions(svg, ordered)
    if channel is not None:
        _draw_chords(svg, channel, polling_set)
    for node in ordered:
        _draw_node(svg, node, "node polls" if node.id in polling_set else "node", named=len(ordered) <= _MOST_LABELS)
    if channel is not None:
        x, y = _at(turn(channel), _RADIUS)
        ET.SubElement(svg, "path", {"class": "channel", "d": f"M{x:.1f} {y - 9:.1f}l9 9-9 9-9-9z"})
    return Markup(ET.tostring(svg, encoding="unicode"))  # noqa: S704 - ElementTree escaped every text in it


def regions(nodes: Sequence[NodeInfo]) -> Iterator[tuple[NodeId, float, float]]:
    """Yield (owner, from turn, to turn) for the parts of the id space, clockwise, to the picture's precision."""
    view = RingView(0, tuple(nodes))
    piece = (1 << BITS) // _PIECES
    owners = ((view.owner(to_hex(i * piece + piece // 2)), i) for i in range(_PIECES))
    for owner, run in groupby(owners, key=lambda pair: pair[0]):
        indices = [i for _, i in run]
        if owner is not None:
            yield owner, indices[0] / _PIECES, (indices[-1] + 1) / _PIECES


def _title(nodes: Sequence[NodeInfo], channel: ChannelId | None, polling_set: Sequence[NodeId]) -> str:
    if channel is None:
        return f"The ring with {len(nodes)} nodes and the part of the id space each owns"
    return f"The ring of {len(nodes)} nodes with the place of the channel and the {len(polling_set)} that poll it"


def _at(where: float, radius: float) -> tuple[float, float]:
    angle = 2 * math.pi * where
    return _WIDTH / 2 + radius * math.sin(angle), _HEIGHT / 2 - radius * math.cos(angle)


def _draw_regions(svg: ET.Element, nodes: Sequence[NodeInfo]) -> None:
    shade = {node.id: i % _SHADES for i, node in enumerate(nodes)}
    for owner, start, end in regions(nodes):
        # An arc cannot close on itself: the whole ring is drawn as two halves.
        middle = (start + end) / 2
        first, half, last = ("{:.2f} {:.2f}".format(*_at(where, _RADIUS)) for where in (start, middle, end))
        sweep = f"A{_RADIUS} {_RADIUS} 0 0 1"
        path = {"class": f"region shade-{shade[owner]}", "d": f"M{first}{sweep} {half}{sweep} {last}"}
        ET.SubElement(svg, "path", path)


def _draw_chords(svg: ET.Element, channel: ChannelId, polling_set: Sequence[NodeId]) -> None:
    x1, y1 = _at(turn(channel), _RADIUS)
    for node in polling_set:
        x2, y2 = _at(turn(node), _RADIUS)
        ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
        ET.SubElement(svg, "line", {"class": "chord", **ends})


def _draw_node(svg: ET.Element, node: NodeInfo, look: str, *, named: bool) -> None:
    where = turn(node.id)
    x, y = _at(where, _RADIUS)
    group = ET.SubElement(svg, "g", {"class": look, "data-node": node.id})
    ET.SubElement(group, "title").text = f"{node.name}, id {node.id}"
    ET.SubElement(group, "circle", {"cx": f"{x:.2f}", "cy": f"{y:.2f}", "r": "7"})
    if named:
        x, y = _at(where, _LABELS_AT)
        side = "middle" if abs(x - _WIDTH / 2) < _RADIUS / 8 else "start" if x > _WIDTH / 2 else "end"
        label = ET.SubElement(group, "text", {"x": f"{x:.1f}", "y": f"{y + 5:.1f}", "text-anchor": side})
        label.text = node.name
