"""Who polled a channel when, and who will: a pure function to SVG, styled by the page's stylesheet.

Time goes to the right, each node has a line; past polls are filled by how they ended, planned ones are hollow.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from markupsafe import Markup

from service.console.phrases import ago, duration, outcome_words, short_id, went_well
from service.corona.reasons import Turn
from service.model import NodeId, PollResult

_WIDTH: Final = 720
_LEFT: Final = 130
_RIGHT: Final = 24
_ROW: Final = 26
_TOP: Final = 10
_BOTTOM: Final = 26
_MOST_ROWS: Final = 16


def polls_svg(
    polls: Sequence[PollResult], turns: Sequence[Turn], names: Mapping[NodeId, str], now_s: float
) -> Markup | None:
    """Return the picture; None if there is nothing to draw. ``polls`` are newest first."""
    nodes = list(dict.fromkeys([*(turn.node for turn in turns), *(poll.node for poll in polls)]))[:_MOST_ROWS]
    times_s = [poll.at_s for poll in polls] + [turn.next_poll_s for turn in turns]
    if not times_s:
        return None
    begin_s, end_s = min(*times_s, now_s - 1), max(*times_s, now_s + 1)
    height = _TOP + _ROW * len(nodes) + _BOTTOM
    svg = ET.Element("svg", {"class": "polls", "viewBox": f"0 0 {_WIDTH} {height}", "role": "img"})
    title = f"{len(polls)} past polls and {len(turns)} planned ones, by node"
    ET.SubElement(svg, "title").text = title

    def x(at_s: float) -> float:
        return _LEFT + (at_s - begin_s) / (end_s - begin_s) * (_WIDTH - _LEFT - _RIGHT)

    rows = {node: _TOP + _ROW * (place + 0.5) for place, node in enumerate(nodes)}
    for node, y in rows.items():
        ends = {"x1": f"{_LEFT}", "x2": f"{_WIDTH - _RIGHT}", "y1": f"{y}", "y2": f"{y}"}
        ET.SubElement(svg, "line", {"class": "grid", **ends})
        _write(svg, _LEFT - 10, y + 4, names.get(node, short_id(node))[:16], "end")
    ends = {"x1": f"{x(now_s):.1f}", "x2": f"{x(now_s):.1f}", "y1": "0", "y2": f"{height - _BOTTOM}"}
    ET.SubElement(svg, "line", {"class": "now", **ends})
    for poll in polls:
        if poll.node in rows:
            look = "good" if went_well(poll.outcome) else "bad"
            words = f"{outcome_words(poll.outcome)}, {ago(poll.at_s, now_s)}"
            _dot(svg, x(poll.at_s), rows[poll.node], "new" if poll.outcome == "new" else look, words)
    for turn in turns:
        if turn.node in rows:
            _dot(svg, x(turn.next_poll_s), rows[turn.node], "next", f"next in {duration(turn.next_poll_s - now_s)}")
    if x(now_s) > _LEFT + 90:  # else the words would overlap
        _write(svg, _LEFT, height - 6, ago(begin_s, now_s), "start")
    _write(svg, x(now_s), height - 6, "now", "middle")
    if x(now_s) < _WIDTH - _RIGHT - 90:
        _write(svg, _WIDTH - _RIGHT, height - 6, f"in {duration(end_s - now_s)}", "end")
    return Markup(ET.tostring(svg, encoding="unicode"))  # noqa: S704 - ElementTree escaped every text in it


def _dot(svg: ET.Element, x: float, y: float, look: str, words: str) -> None:
    dot = ET.SubElement(svg, "circle", {"class": look.strip(), "cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "5"})
    ET.SubElement(dot, "title").text = words


def _write(svg: ET.Element, x: float, y: float, words: str, anchor: str) -> None:
    ET.SubElement(svg, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}).text = words
