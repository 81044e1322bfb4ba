"""The tree of key groups as a picture: a pure function to SVG, styled by the page's stylesheet.

The root is on top; below each split group stand its halves, each as wide as its part of the key space. The stronger a
leaf's colour, the nearer it is to what a keyspace may deliver.
"""

from typing import Final
from xml.etree import ElementTree as ET

from markupsafe import Markup

from service.clash.table import Standing
from service.console.phrases import percent
from service.shards import Shard, Shards

_WIDTH: Final = 960
_ROW: Final = 30
_GAP: Final = 2
_LEAST_WIDTH: Final = 1.0
_CHAR_WIDTH: Final = 8.5
_SHADES: Final = 5


def shards_svg(found: Shards) -> Markup | None:
    """Return the picture; None if nobody has subscribed yet."""
    if not found.shards:
        return None
    deepest = max(_depth(shard) for shard in found.shards)
    height = (deepest + 1) * _ROW
    svg = ET.Element("svg", {"class": "shards", "viewBox": f"0 0 {_WIDTH} {height}", "role": "img"})
    leaves = sum(shard.standing != Standing.SPLIT for shard in found.shards)
    ET.SubElement(svg, "title").text = f"The tree of key groups: {leaves} leaves, at most {deepest} splits deep"
    for shard in found.shards:
        _draw(svg, shard, found.capacity)
    return Markup(ET.tostring(svg, encoding="unicode"))  # noqa: S704 - ElementTree escaped every text in it


def _depth(shard: Shard) -> int:
    return len(shard.label.removesuffix("*"))


def _draw(svg: ET.Element, shard: Shard, capacity: float) -> None:
    bits = shard.label.removesuffix("*")
    width = _WIDTH / 2 ** len(bits)
    x = int(bits or "0", 2) * width
    split = shard.standing == Standing.SPLIT
    full = min(shard.load / capacity, 1.0) if capacity else 0.0
    look = "split" if split else f"leaf full-{min(int(full * _SHADES), _SHADES - 1)}"
    group = ET.SubElement(svg, "g", {"class": look})
    words = f"{shard.label} in keyspace {shard.keyspace}, {shard.standing}"
    if not split:
        words += (
            f": {shard.subscriptions:,} subscriptions, {shard.load:.1f} deliveries per s, {percent(full)} of its most"
        )
    ET.SubElement(group, "title").text = words
    place = {"x": f"{x:.1f}", "y": f"{_depth(shard) * _ROW}", "height": f"{_ROW - _GAP}"}
    ET.SubElement(group, "rect", {**place, "width": f"{max(_LEAST_WIDTH, width - _GAP):.1f}", "rx": "4"})
    if width > len(shard.label) * _CHAR_WIDTH + _GAP:
        at = {"x": f"{x + width / 2:.1f}", "y": f"{_depth(shard) * _ROW + _ROW / 2 + 4:.1f}", "text-anchor": "middle"}
        ET.SubElement(group, "text", at).text = shard.label
