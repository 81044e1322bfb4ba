"""How long subscriptions wait, as curves: a pure function to SVG, styled by the page's stylesheet.

Upwards: which share of all subscriptions; to the right, on a logarithmic scale: what those do not wait longer than.
"""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10
from typing import Final, Literal, NamedTuple
from xml.etree import ElementTree as ET

from markupsafe import Markup

from service.console.phrases import duration, percent

_WIDTH: Final = 640
_HEIGHT: Final = 260
_LEFT: Final = 56
_RIGHT: Final = 16
_TOP: Final = 12
_BOTTOM: Final = 44
_SHORTEST_S: Final = 0.1
_MARKS_S: Final = (0.1, 1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000)


class Curve(NamedTuple):
    """The waits of 0, …, 100 % of all subscriptions, in seconds; ``name`` says how it is drawn."""

    name: Literal["now", "then"]
    waits_s: Sequence[float]


def curves_svg(curves: Sequence[Curve]) -> Markup:
    """Return the picture of one curve or two."""
    svg = ET.Element("svg", {"class": "curves", "viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img"})
    ET.SubElement(
        svg, "title"
    ).text = "Which share of all subscriptions waits how long, on average, for news to be seen"
    waits_s = [min(max(wait_s, _SHORTEST_S), _MARKS_S[-1]) for curve in curves for wait_s in curve.waits_s]
    low, high = _decades(min(waits_s), max(waits_s))
    _draw_axes(svg, low, high)
    for curve in curves:
        steps = len(curve.waits_s) - 1
        points = ((_x(wait_s, low, high), _y(place / steps)) for place, wait_s in enumerate(curve.waits_s))
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        ET.SubElement(svg, "polyline", {"class": f"curve {curve.name}", "points": line})
    return Markup(ET.tostring(svg, encoding="unicode"))  # noqa: S704 - ElementTree escaped every text in it


def _decades(least_s: float, most_s: float) -> tuple[float, float]:
    """Return the logarithms between which the scale runs, a tenth or more apart."""
    low, high = floor(log10(least_s) * 2) / 2, ceil(log10(most_s) * 2) / 2
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _x(wait_s: float, low: float, high: float) -> float:
    within = min(max(log10(max(wait_s, _SHORTEST_S)), low), high)
    return _LEFT + (within - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _draw_axes(svg: ET.Element, low: float, high: float) -> None:
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(share)
        ends = {"x1": f"{_LEFT}", "x2": f"{_WIDTH - _RIGHT}", "y1": f"{y:.1f}", "y2": f"{y:.1f}"}
        ET.SubElement(svg, "line", {"class": "grid", **ends})
        _write(svg, _LEFT - 8, y + 4, percent(share), "end")
    for mark_s in _shown(low, high):
        x = _x(mark_s, low, high)
        ends = {"x1": f"{x:.1f}", "x2": f"{x:.1f}", "y1": f"{_y(1)}", "y2": f"{_y(0)}"}
        ET.SubElement(svg, "line", {"class": "grid", **ends})
        _write(svg, x, _HEIGHT - _BOTTOM + 18, duration(mark_s), "middle")
    _write(
        svg, (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, "longest mean wait of that share of subscriptions", "middle"
    )


def _shown(low: float, high: float) -> Iterator[float]:
    """Yield the marks on the scale; where it is short, also what lies between them."""
    marks: Sequence[float] = _MARKS_S
    if sum(low <= log10(mark_s) <= high for mark_s in marks) < 3:  # noqa: PLR2004 - fewer tell nothing
        marks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 28_800]
    last = low - 1
    for mark_s in marks:
        if low <= log10(mark_s) <= high and log10(mark_s) - last > (high - low) / 10:
            last = log10(mark_s)
            yield mark_s


def _write(svg: ET.Element, x: float, y: float, words: str, anchor: str) -> None:
    ET.SubElement(svg, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}).text = words
