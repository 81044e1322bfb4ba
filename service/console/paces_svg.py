"""How often a channel was polled, over time: a pure function to SVG, styled by the page's stylesheet.

Time goes to the right; the higher the line, the more often, on a logarithmic scale. At the bottom it was not polled.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import Final
from xml.etree import ElementTree as ET

from markupsafe import Markup

from service.console.phrases import ago, clock, duration
from service.store.paces import Pace

_WIDTH: Final = 720
_HEIGHT: Final = 150
_LEFT: Final = 130
_RIGHT: Final = 24
_TOP: Final = 14
_BOTTOM: Final = 30
_ROOM: Final = 1.5
"""By what factor the scale goes beyond the most and least often."""
_MARKS_S: Final[Sequence[float]] = (1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 172_800, 604_800)
_APART: Final = 18


def paces_svg(paces: Sequence[Pace], now_s: float, zone: str) -> Markup | None:
    """Return the picture; None if nothing was noted. ``paces`` are oldest first."""
    if not paces:
        return None
    ends_s = [*(pace.since_s for pace in paces[1:]), max(now_s, paces[-1].since_s + 1)]
    begin_s, end_s = paces[0].since_s, ends_s[-1]
    polled_s = [pace.interval_s for pace in paces if pace.interval_s > 0] or [1.0]
    soonest_s, latest_s = min(polled_s) / _ROOM, max(polled_s) * _ROOM
    ground = _HEIGHT - _BOTTOM

    def x(at_s: float) -> float:
        return _LEFT + (at_s - begin_s) / (end_s - begin_s) * (_WIDTH - _LEFT - _RIGHT)

    def y(interval_s: float) -> float:
        if interval_s <= 0:
            return ground
        return _TOP + log(interval_s / soonest_s) / log(latest_s / soonest_s) * (ground - _APART - _TOP)

    svg = ET.Element("svg", {"class": "paces", "viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img"})
    ET.SubElement(svg, "title").text = f"How often it was polled since {clock(begin_s, zone)}"
    scale_s = _MARKS_S if len(set(polled_s)) > 1 else polled_s
    marked = [mark_s for mark_s in scale_s if soonest_s <= mark_s <= latest_s] or [polled_s[-1]]
    labels = [(y(mark_s), f"every {duration(mark_s)}") for mark_s in marked] + [(ground, "not polled")]
    for above, below in pairwise([(-_APART, ""), *labels]):
        if below[0] - above[0] >= _APART:
            _draw_mark(svg, *below)
    steps = (
        f"{x(at_s):.1f},{y(pace.interval_s):.1f}"
        for pace, until_s in zip(paces, ends_s, strict=True)
        for at_s in (pace.since_s, until_s)
    )
    ET.SubElement(svg, "polyline", {"class": "pace", "points": " ".join(steps)})
    for pace in paces:
        place = {"cx": f"{x(pace.since_s):.1f}", "cy": f"{y(pace.interval_s):.1f}", "r": "4"}
        said = f"every {duration(pace.interval_s)}" if pace.interval_s > 0 else "not polled"
        ET.SubElement(ET.SubElement(svg, "circle", place), "title").text = f"{said} from {clock(pace.since_s, zone)} on"
    _write(svg, _LEFT, _HEIGHT - 8, ago(begin_s, now_s), "start")
    _write(svg, _WIDTH - _RIGHT, _HEIGHT - 8, "now", "end")
    return Markup(ET.tostring(svg, encoding="unicode"))  # noqa: S704 - ElementTree escaped every text in it


def _draw_mark(svg: ET.Element, y: float, words: str) -> None:
    ends = {"x1": f"{_LEFT}", "x2": f"{_WIDTH - _RIGHT}", "y1": f"{y:.1f}", "y2": f"{y:.1f}"}
    ET.SubElement(svg, "line", {"class": "grid", **ends})
    _write(svg, _LEFT - 10, y + 4, words, "end")


def _write(svg: ET.Element, x: float, y: float, words: str, anchor: str) -> None:
    ET.SubElement(svg, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}).text = words
