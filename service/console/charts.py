"""The console's charts as SVG, styled by the pages' stylesheet. Pure functions; ElementTree escapes every text."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import ceil, floor, log, log10
from typing import Final, Literal, NamedTuple
from xml.etree import ElementTree as ET

from markupsafe import Markup

from service.console.formatting import ago, clock, duration, outcome_words, percent, short_id, went_well
from service.corona.poll_explanation import PollingTurn
from service.model import ChannelId, NodeId, NodeInfo, PollResult
from service.overlay.id_space import BITS, from_hex, to_hex
from service.overlay.ring import RingView
from service.store.channels.admin_settings import PollRate

_ON_LEFT: Final = 130
_ON_RIGHT: Final = 24
_TIMELINE_WIDTH: Final = 720


def _svg(look: str, width: float, height: float, title: str) -> ET.Element:
    svg = ET.Element("svg", {"class": look, "viewBox": f"0 0 {width} {height}", "role": "img"})
    ET.SubElement(svg, "title").text = title
    return svg


def _draw(parent: ET.Element, tag: str, look: str = "", title: str = "", **attributes: float | str) -> ET.Element:
    """Add a shape; numbers are written with one decimal."""
    shown = {name: value if isinstance(value, str) else f"{value:.1f}" for name, value in attributes.items()}
    shape = ET.SubElement(parent, tag, ({"class": look} if look else {}) | shown)
    if title:
        ET.SubElement(shape, "title").text = title
    return shape


def _write(svg: ET.Element, x: float, y: float, words: str, anchor: str) -> None:
    ET.SubElement(svg, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}).text = words


def _markup(svg: ET.Element) -> Markup:
    return Markup(ET.tostring(svg, encoding="unicode"))  # noqa: S704 - ElementTree escaped every text in it


def _time_axis(begin_s: float, end_s: float) -> Callable[[float], float]:
    """Return the function from a time to its x on a timeline."""
    per_s = (_TIMELINE_WIDTH - _ON_LEFT - _ON_RIGHT) / (end_s - begin_s)
    return lambda at_s: _ON_LEFT + (at_s - begin_s) * per_s


def _row_line(svg: ET.Element, y: float, words: str) -> None:
    """Draw a horizontal line of a timeline with its label."""
    _draw(svg, "line", "grid", x1=_ON_LEFT, x2=_TIMELINE_WIDTH - _ON_RIGHT, y1=y, y2=y)
    _write(svg, _ON_LEFT - 10, y + 4, words, "end")


# The curves of the page Policy: upwards the share of all subscriptions, to the right, on a logarithmic scale, the wait
# that they do not exceed.

_CURVES_WIDTH: Final = 640
_CURVES_HEIGHT: Final = 260
_CURVES_LEFT: Final = 56
_CURVES_RIGHT: Final = _CURVES_WIDTH - 16
_CURVES_TOP: Final = 12
_CURVES_GROUND: Final = _CURVES_HEIGHT - 44
_SHORTEST_S: Final = 0.1
_WAIT_MARKS_S: Final = (0.1, 1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000)
_FINE_WAIT_MARKS_S: Final = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 28_800),
)
_FEWEST_MARKS: Final = 3


class Curve(NamedTuple):
    """The waits of 0, …, 100 % of all subscriptions, in seconds; ``name`` says how it is drawn."""

    name: Literal["now", "then"]
    waits_s: Sequence[float]


def curves_svg(curves: Sequence[Curve]) -> Markup:
    """Return the chart of one curve or two."""
    title = "Which share of all subscriptions waits how long, on average, for news to be seen"
    svg = _svg("curves", _CURVES_WIDTH, _CURVES_HEIGHT, title)
    waits_s = [min(max(wait_s, _SHORTEST_S), _WAIT_MARKS_S[-1]) for curve in curves for wait_s in curve.waits_s]
    low, high = floor(log10(min(waits_s)) * 2) / 2, ceil(log10(max(waits_s)) * 2) / 2
    if high <= low:
        low, high = low - 0.5, high + 0.5

    def x(wait_s: float) -> float:
        within = min(max(log10(max(wait_s, _SHORTEST_S)), low), high)
        return _CURVES_LEFT + (within - low) / (high - low) * (_CURVES_RIGHT - _CURVES_LEFT)

    def y(share: float) -> float:
        return _CURVES_GROUND - share * (_CURVES_GROUND - _CURVES_TOP)

    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        _draw(svg, "line", "grid", x1=_CURVES_LEFT, x2=_CURVES_RIGHT, y1=y(share), y2=y(share))
        _write(svg, _CURVES_LEFT - 8, y(share) + 4, percent(share), "end")
    for mark_s in _wait_marks(low, high):
        _draw(svg, "line", "grid", x1=x(mark_s), x2=x(mark_s), y1=y(1), y2=y(0))
        _write(svg, x(mark_s), _CURVES_GROUND + 18, duration(mark_s), "middle")
    middle = (_CURVES_LEFT + _CURVES_RIGHT) / 2
    _write(svg, middle, _CURVES_HEIGHT - 6, "longest mean wait of that share of subscriptions", "middle")
    for curve in curves:
        steps = len(curve.waits_s) - 1
        points = " ".join(f"{x(wait_s):.1f},{y(place / steps):.1f}" for place, wait_s in enumerate(curve.waits_s))
        _draw(svg, "polyline", f"curve {curve.name}", points=points)
    return _markup(svg)


def _wait_marks(low: float, high: float) -> Iterator[float]:
    """Yield the marks between these logarithms; on a short scale more of them."""
    is_short = sum(low <= log10(mark_s) <= high for mark_s in _WAIT_MARKS_S) < _FEWEST_MARKS
    last = low - 1
    for mark_s in _FINE_WAIT_MARKS_S if is_short else _WAIT_MARKS_S:
        if low <= log10(mark_s) <= high and log10(mark_s) - last > (high - low) / 10:
            last = log10(mark_s)
            yield mark_s


# How often a channel was polled over time: the higher the line, the more often, on a logarithmic scale; at the bottom
# it was not polled.

_PACES_HEIGHT: Final = 150
_PACES_TOP: Final = 14
_PACES_GROUND: Final = _PACES_HEIGHT - 30
_BEYOND: Final = 1.5
"""By what factor the scale goes beyond the shortest and longest interval."""
_INTERVAL_MARKS_S: Final[Sequence[float]] = (1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 172_800, 604_800)
_LABELS_APART: Final = 18


def paces_svg(paces: Sequence[PollRate], now_s: float, zone: str) -> Markup | None:
    """Return the chart; None if nothing was noted. ``paces`` are oldest first."""
    if not paces:
        return None
    ends_s = [*(pace.since_s for pace in paces[1:]), max(now_s, paces[-1].since_s + 1)]
    begin_s = paces[0].since_s
    x = _time_axis(begin_s, ends_s[-1])
    polled_s = [pace.interval_s for pace in paces if pace.interval_s > 0] or [1.0]
    soonest_s, latest_s = min(polled_s) / _BEYOND, max(polled_s) * _BEYOND
    per_log = (_PACES_GROUND - _LABELS_APART - _PACES_TOP) / log(latest_s / soonest_s)

    def y(interval_s: float) -> float:
        return _PACES_TOP + log(interval_s / soonest_s) * per_log if interval_s > 0 else _PACES_GROUND

    svg = _svg("paces", _TIMELINE_WIDTH, _PACES_HEIGHT, f"How often it was polled since {clock(begin_s, zone)}")
    scale_s = _INTERVAL_MARKS_S if len(set(polled_s)) > 1 else polled_s
    marked = [mark_s for mark_s in scale_s if soonest_s <= mark_s <= latest_s] or [polled_s[-1]]
    labels = [(y(mark_s), f"every {duration(mark_s)}") for mark_s in marked] + [(_PACES_GROUND, "not polled")]
    for above, below in pairwise([(-_LABELS_APART, ""), *labels]):
        if below[0] - above[0] >= _LABELS_APART:
            _row_line(svg, *below)
    steps = (
        f"{x(at_s):.1f},{y(pace.interval_s):.1f}"
        for pace, until_s in zip(paces, ends_s, strict=True)
        for at_s in (pace.since_s, until_s)
    )
    _draw(svg, "polyline", "pace", points=" ".join(steps))
    for pace in paces:
        words = f"every {duration(pace.interval_s)}" if pace.interval_s > 0 else "not polled"
        title = f"{words} from {clock(pace.since_s, zone)} on"
        _draw(svg, "circle", "", title, cx=x(pace.since_s), cy=y(pace.interval_s), r="4")
    _write(svg, _ON_LEFT, _PACES_HEIGHT - 8, ago(begin_s, now_s), "start")
    _write(svg, _TIMELINE_WIDTH - _ON_RIGHT, _PACES_HEIGHT - 8, "now", "end")
    return _markup(svg)


# Who polled a channel when, and who will: each node has a line; past polls are filled by how they ended, planned ones
# are hollow.

_POLLS_ROW: Final = 26
_POLLS_TOP: Final = 10
_POLLS_BOTTOM: Final = 26
_MOST_ROWS: Final = 16
_LABEL_WIDTH: Final = 90


def polls_svg(
    polls: Sequence[PollResult], turns: Sequence[PollingTurn], names: Mapping[NodeId, str], now_s: float
) -> Markup | None:
    """Return the chart; None if there is nothing to draw. ``polls`` are newest first."""
    nodes = list(dict.fromkeys([*(turn.node for turn in turns), *(poll.node for poll in polls)]))[:_MOST_ROWS]
    times_s = [poll.at_s for poll in polls] + [turn.next_poll_s for turn in turns]
    if not times_s:
        return None
    begin_s, end_s = min(*times_s, now_s - 1), max(*times_s, now_s + 1)
    x = _time_axis(begin_s, end_s)
    ground = _POLLS_TOP + _POLLS_ROW * len(nodes)
    height = ground + _POLLS_BOTTOM
    svg = _svg("polls", _TIMELINE_WIDTH, height, f"{len(polls)} past polls and {len(turns)} planned ones, by node")
    rows = {node: _POLLS_TOP + _POLLS_ROW * (place + 0.5) for place, node in enumerate(nodes)}
    for node, y in rows.items():
        _row_line(svg, y, names.get(node, short_id(node))[:16])
    _draw(svg, "line", "now", x1=x(now_s), x2=x(now_s), y1="0", y2=ground)
    dots = [
        (poll.at_s, poll.node, _look(poll.outcome), f"{outcome_words(poll.outcome)}, {ago(poll.at_s, now_s)}")
        for poll in polls
    ]
    dots += [(turn.next_poll_s, turn.node, "next", f"next in {duration(turn.next_poll_s - now_s)}") for turn in turns]
    for at_s, node, look, words in dots:
        if node in rows:
            _draw(svg, "circle", look, words, cx=x(at_s), cy=rows[node], r="5")
    if x(now_s) > _ON_LEFT + _LABEL_WIDTH:  # else the words would overlap
        _write(svg, _ON_LEFT, height - 6, ago(begin_s, now_s), "start")
    _write(svg, x(now_s), height - 6, "now", "middle")
    if x(now_s) < _TIMELINE_WIDTH - _ON_RIGHT - _LABEL_WIDTH:
        _write(svg, _TIMELINE_WIDTH - _ON_RIGHT, height - 6, f"in {duration(end_s - now_s)}", "end")
    return _markup(svg)


def _look(outcome: str) -> str:
    return "new" if outcome == "new" else "good" if went_well(outcome) else "bad"


# The ring: the id space goes clockwise from the top. The band shows who owns which part of it (by XOR nearness a node's
# part may lie in pieces), dots are nodes, and for one channel chords lead to its polling set.

_RING_WIDTH: Final = 640
_RING_HEIGHT: Final = 400
_RADIUS: Final = 150
_LABELS_AT: Final = 178
_PIECES: Final = 512  # how finely ownership is sampled: under 2 px of the band each
_RING_SHADES: Final = 4
_MOST_LABELS: Final = 40  # more would overlap; the table below the picture has every name


def turn(point: ChannelId | NodeId) -> float:
    """Return where an id is on the ring: a fraction of a turn in [0, 1), clockwise from the top."""
    return (from_hex(point) >> (BITS - 52)) / 2**52


def ring_svg(nodes: Sequence[NodeInfo], channel: ChannelId | None = None, polling_set: Sequence[NodeId] = ()) -> Markup:
    """Return the chart of these nodes, and of a channel with its polling set if one is given."""
    ordered = sorted(nodes, key=lambda node: node.id)
    title = f"The ring of {len(nodes)} nodes with the place of the channel and the {len(polling_set)} that poll it"
    if channel is None:
        title = f"The ring with {len(nodes)} nodes and the part of the id space each owns"
    svg = _svg("ring", _RING_WIDTH, _RING_HEIGHT, title)
    shade = {node.id: place % _RING_SHADES for place, node in enumerate(ordered)}
    for owner, start, end in regions(ordered):
        # An arc cannot close on itself: the whole ring is drawn as two halves.
        first, half, last = (
            "{:.2f} {:.2f}".format(*_on_circle(where, _RADIUS)) for where in (start, (start + end) / 2, end)
        )
        sweep = f"A{_RADIUS} {_RADIUS} 0 0 1"
        _draw(svg, "path", f"region shade-{shade[owner]}", d=f"M{first}{sweep} {half}{sweep} {last}")
    if channel is not None:
        x1, y1 = _on_circle(turn(channel), _RADIUS)
        for node_id in polling_set:
            x2, y2 = _on_circle(turn(node_id), _RADIUS)
            _draw(svg, "line", "chord", x1=x1, y1=y1, x2=x2, y2=y2)
    for node in ordered:
        _draw_node(svg, node, "node polls" if node.id in polling_set else "node", named=len(ordered) <= _MOST_LABELS)
    if channel is not None:
        _draw(svg, "path", "channel", d=f"M{x1:.1f} {y1 - 9:.1f}l9 9-9 9-9-9z")
    return _markup(svg)


def regions(nodes: Sequence[NodeInfo]) -> Iterator[tuple[NodeId, float, float]]:
    """Yield (owner, from turn, to turn) for the parts of the id space, clockwise, to the picture's precision."""
    view = RingView(0, tuple(nodes))
    piece = (1 << BITS) // _PIECES
    owners = ((view.owner(to_hex(i * piece + piece // 2)), i) for i in range(_PIECES))
    for owner, run in groupby(owners, key=lambda pair: pair[0]):
        indices = [i for _, i in run]
        if owner is not None:
            yield owner, indices[0] / _PIECES, (indices[-1] + 1) / _PIECES


def _on_circle(where: float, radius: float) -> tuple[float, float]:
    angle = 2 * math.pi * where
    return _RING_WIDTH / 2 + radius * math.sin(angle), _RING_HEIGHT / 2 - radius * math.cos(angle)


def _draw_node(svg: ET.Element, node: NodeInfo, look: str, *, named: bool) -> None:
    where = turn(node.id)
    x, y = _on_circle(where, _RADIUS)
    group = _draw(svg, "g", look, f"{node.name}, id {node.id}", **{"data-node": node.id})
    _draw(group, "circle", cx=f"{x:.2f}", cy=f"{y:.2f}", r="7")
    if named:
        x, y = _on_circle(where, _LABELS_AT)
        right = x - _RING_WIDTH / 2
        _write(group, x, y + 5, node.name, "middle" if abs(right) < _RADIUS / 8 else "start" if right > 0 else "end")
