"""SVG charts for the console: wait curves, poll rate, poll timeline and ring.

The console's stylesheet styles the charts through CSS classes. ElementTree escapes all text.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import ceil, floor, log, log10
from typing import Final
from xml.etree import ElementTree as ET

from markupsafe import Markup

from service.console.formatting import ago, clock, duration, is_success, outcome_label, percent, short_id
from service.corona.optimizer.poll_explanation import PollingTurn
from service.model import ChannelId, NodeId, NodeInfo, PollResult
from service.overlay.ring import BITS, RingView, from_hex, to_hex
from service.store.channels.poll_rate_history import PollRate

_MARGIN_LEFT: Final = 130
_MARGIN_RIGHT: Final = 24
_TIMELINE_WIDTH: Final = 720


def _svg(css_class: str, width: float, height: float, title: str) -> ET.Element:
    svg = ET.Element("svg", {"class": css_class, "viewBox": f"0 0 {width} {height}", "role": "img"})
    ET.SubElement(svg, "title").text = title
    return svg


def _draw(parent: ET.Element, tag: str, css_class: str = "", title: str = "", **attributes: float | str) -> ET.Element:
    """Add an SVG element ``tag`` with the tooltip ``title`` to ``parent``; return the new element.

    Numeric attributes are written with one decimal place.
    """
    texts = {name: value if isinstance(value, str) else f"{value:.1f}" for name, value in attributes.items()}
    shape = ET.SubElement(parent, tag, ({"class": css_class} if css_class else {}) | texts)
    if title:
        ET.SubElement(shape, "title").text = title
    return shape


def _write(svg: ET.Element, x: float, y: float, text: str, anchor: str) -> None:
    ET.SubElement(svg, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}).text = text


def _markup(svg: ET.Element) -> Markup:
    return Markup(ET.tostring(svg, encoding="unicode"))  # noqa: S704 - ElementTree escaped every text in it


def _time_axis(begin_s: float, end_s: float) -> Callable[[float], float]:
    """Return a function that maps times to x coordinates, for a timeline from ``begin_s`` to ``end_s`` (Unix s)."""
    per_s = (_TIMELINE_WIDTH - _MARGIN_LEFT - _MARGIN_RIGHT) / (end_s - begin_s)
    return lambda at_s: _MARGIN_LEFT + (at_s - begin_s) * per_s


def _row_line(svg: ET.Element, y: float, label: str) -> None:
    """Draw a labelled horizontal line on a timeline, at the y coordinate ``y``."""
    _draw(svg, "line", "grid", x1=_MARGIN_LEFT, x2=_TIMELINE_WIDTH - _MARGIN_RIGHT, y1=y, y2=y)
    _write(svg, _MARGIN_LEFT - 10, y + 4, label, "end")


# Wait curves of the page Policy: x is the mean detection delay (logarithmic), y the share of subscriptions with at most
# this delay.

_CURVES_WIDTH: Final = 640
_CURVES_HEIGHT: Final = 260
_CURVES_LEFT: Final = 56
_CURVES_RIGHT: Final = _CURVES_WIDTH - 16
_CURVES_TOP: Final = 12
_CURVES_BOTTOM: Final = _CURVES_HEIGHT - 44
_SHORTEST_S: Final = 0.1
_LONGEST_S: Final = 30 * 86_400.0
_WAIT_TICKS_S: Final = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 28_800),
    *(86_400, 172_800, 604_800, 1_209_600, 2_592_000),
)


def draw_wait_curves(waits_s: Sequence[float], changed_waits_s: Sequence[float] | None = None) -> Markup:
    """Return a chart of the distribution of mean detection delays over all subscriptions.

    The detection delay is the time from a change to the poll that finds it. For each delay, the curve shows the share
    of subscriptions with this delay or a shorter one.

    - ``waits_s``: the current delays in seconds, as quantiles at equal steps from 0 to 100 % of the subscriptions.
    - ``changed_waits_s``: the same quantiles under a new polling policy; None to draw only the current curve.
    """
    curves = {"now": waits_s} if changed_waits_s is None else {"now": waits_s, "then": changed_waits_s}
    title = "Share of all subscriptions by mean detection delay"
    svg = _svg("curves", _CURVES_WIDTH, _CURVES_HEIGHT, title)
    limited_s = [min(max(wait_s, _SHORTEST_S), _LONGEST_S) for curve_s in curves.values() for wait_s in curve_s]
    low, high = floor(log10(min(limited_s)) * 2) / 2, ceil(log10(max(limited_s)) * 2) / 2
    if high <= low:
        low, high = low - 0.5, high + 0.5

    def x(wait_s: float) -> float:
        within = min(max(log10(max(wait_s, _SHORTEST_S)), low), high)
        return _CURVES_LEFT + (within - low) / (high - low) * (_CURVES_RIGHT - _CURVES_LEFT)

    def y(share: float) -> float:
        return _CURVES_BOTTOM - share * (_CURVES_BOTTOM - _CURVES_TOP)

    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        _draw(svg, "line", "grid", x1=_CURVES_LEFT, x2=_CURVES_RIGHT, y1=y(share), y2=y(share))
        _write(svg, _CURVES_LEFT - 8, y(share) + 4, percent(share), "end")
    for tick_s in _wait_ticks(low, high):
        _draw(svg, "line", "grid", x1=x(tick_s), x2=x(tick_s), y1=y(1), y2=y(0))
        _write(svg, x(tick_s), _CURVES_BOTTOM + 18, duration(tick_s), "middle")
    middle = (_CURVES_LEFT + _CURVES_RIGHT) / 2
    _write(svg, middle, _CURVES_HEIGHT - 6, "mean detection delay", "middle")
    for name, curve_s in curves.items():
        steps = len(curve_s) - 1
        points = " ".join(f"{x(wait_s):.1f},{y(place / steps):.1f}" for place, wait_s in enumerate(curve_s))
        _draw(svg, "polyline", f"curve {name}", points=points)
    return _markup(svg)


def _wait_ticks(low: float, high: float) -> Iterator[float]:
    """Yield the delays (s) to label on a logarithmic axis of detection delays.

    The axis runs from ``low`` to ``high``, which are base-10 logarithms of seconds.
    """
    last = low - 1
    for tick_s in _WAIT_TICKS_S:
        if low <= log10(tick_s) <= high and log10(tick_s) - last > (high - low) / 10:
            last = log10(tick_s)
            yield tick_s


# Poll rate of a channel over time: y is the poll interval (logarithmic, shorter is higher); the bottom is "not polled".

_RATE_HEIGHT: Final = 150
_RATE_TOP: Final = 14
_RATE_BOTTOM: Final = _RATE_HEIGHT - 30
_SCALE_MARGIN: Final = 1.5
"""Margin of the y axis in the poll rate chart. The axis begins at the shortest interval divided by this factor, and
ends at the longest interval multiplied by it."""
_INTERVAL_TICKS_S: Final[Sequence[float]] = (1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 172_800, 604_800)
_LABEL_DISTANCE: Final = 18


def draw_poll_rate(poll_rates: Sequence[PollRate], now_s: float, zone: str) -> Markup | None:
    """Return a chart of a channel's poll interval over time; None if no interval was recorded.

    ``poll_rates`` are the recorded intervals, oldest first. ``now_s`` is the Unix time at which the chart ends. The
    chart's title contains the time of the first interval, in the time zone ``zone``.
    """
    if not poll_rates:
        return None
    ends_s = [*(rate.since_s for rate in poll_rates[1:]), max(now_s, poll_rates[-1].since_s + 1)]
    begin_s = poll_rates[0].since_s
    x = _time_axis(begin_s, ends_s[-1])
    polled_s = [rate.interval_s for rate in poll_rates if rate.interval_s > 0] or [1.0]
    soonest_s, latest_s = min(polled_s) / _SCALE_MARGIN, max(polled_s) * _SCALE_MARGIN
    per_log = (_RATE_BOTTOM - _LABEL_DISTANCE - _RATE_TOP) / log(latest_s / soonest_s)

    def y(interval_s: float) -> float:
        return _RATE_TOP + log(interval_s / soonest_s) * per_log if interval_s > 0 else _RATE_BOTTOM

    svg = _svg("paces", _TIMELINE_WIDTH, _RATE_HEIGHT, f"Poll interval since {clock(begin_s, zone)}")
    scale_s = _INTERVAL_TICKS_S if len(set(polled_s)) > 1 else polled_s
    ticks_s = [tick_s for tick_s in scale_s if soonest_s <= tick_s <= latest_s] or [polled_s[-1]]
    labels = [(y(tick_s), f"every {duration(tick_s)}") for tick_s in ticks_s] + [(_RATE_BOTTOM, "not polled")]
    for above, below in pairwise([(-_LABEL_DISTANCE, ""), *labels]):
        if below[0] - above[0] >= _LABEL_DISTANCE:
            _row_line(svg, *below)
    steps = (
        f"{x(at_s):.1f},{y(rate.interval_s):.1f}"
        for rate, until_s in zip(poll_rates, ends_s, strict=True)
        for at_s in (rate.since_s, until_s)
    )
    _draw(svg, "polyline", "pace", points=" ".join(steps))
    for rate in poll_rates:
        label = f"every {duration(rate.interval_s)}" if rate.interval_s > 0 else "not polled"
        title = f"{label} since {clock(rate.since_s, zone)}"
        _draw(svg, "circle", "", title, cx=x(rate.since_s), cy=y(rate.interval_s), r="4")
    _write(svg, _MARGIN_LEFT, _RATE_HEIGHT - 8, ago(begin_s, now_s), "start")
    _write(svg, _TIMELINE_WIDTH - _MARGIN_RIGHT, _RATE_HEIGHT - 8, "now", "end")
    return _markup(svg)


# Poll timeline of a channel: one row per node; past polls are filled in the colour of their outcome, planned ones
# hollow.

_TIMELINE_ROW_HEIGHT: Final = 26
_TIMELINE_TOP: Final = 10
_TIMELINE_BOTTOM: Final = 26
_MAX_ROWS: Final = 16
_LABEL_WIDTH: Final = 90


def draw_poll_timeline(
    polls: Sequence[PollResult], turns: Sequence[PollingTurn], names: Mapping[NodeId, str], now_s: float
) -> Markup | None:
    """Return a chart of a channel's past and planned polls, with one row per node; None if there are no polls.

    ``polls`` are the past polls, newest first. ``turns`` contains the time of the next poll for each node that polls
    the channel. ``names`` maps ids of nodes to their names. ``now_s`` is the current Unix time.
    """
    nodes = list(dict.fromkeys([*(turn.node for turn in turns), *(poll.node for poll in polls)]))[:_MAX_ROWS]
    times_s = [poll.at_s for poll in polls] + [turn.next_poll_s for turn in turns]
    if not times_s:
        return None
    begin_s, end_s = min(*times_s, now_s - 1), max(*times_s, now_s + 1)
    x = _time_axis(begin_s, end_s)
    ground = _TIMELINE_TOP + _TIMELINE_ROW_HEIGHT * len(nodes)
    height = ground + _TIMELINE_BOTTOM
    svg = _svg("polls", _TIMELINE_WIDTH, height, f"{len(polls)} past polls and {len(turns)} planned ones, by node")
    rows = {node: _TIMELINE_TOP + _TIMELINE_ROW_HEIGHT * (place + 0.5) for place, node in enumerate(nodes)}
    for node, y in rows.items():
        _row_line(svg, y, names.get(node, short_id(node))[:16])
    _draw(svg, "line", "now", x1=x(now_s), x2=x(now_s), y1="0", y2=ground)
    dots = [
        (poll.at_s, poll.node, _outcome_class(poll.outcome), f"{outcome_label(poll.outcome)}, {ago(poll.at_s, now_s)}")
        for poll in polls
    ]
    dots += [(turn.next_poll_s, turn.node, "next", f"next in {duration(turn.next_poll_s - now_s)}") for turn in turns]
    for at_s, node, css_class, title in dots:
        if node in rows:
            _draw(svg, "circle", css_class, title, cx=x(at_s), cy=rows[node], r="5")
    if x(now_s) > _MARGIN_LEFT + _LABEL_WIDTH:  # else the labels would overlap
        _write(svg, _MARGIN_LEFT, height - 6, ago(begin_s, now_s), "start")
    _write(svg, x(now_s), height - 6, "now", "middle")
    if x(now_s) < _TIMELINE_WIDTH - _MARGIN_RIGHT - _LABEL_WIDTH:
        _write(svg, _TIMELINE_WIDTH - _MARGIN_RIGHT, height - 6, f"in {duration(end_s - now_s)}", "end")
    return _markup(svg)


def _outcome_class(outcome: str) -> str:
    return "new" if outcome == "new" else "good" if is_success(outcome) else "bad"


# Ring: the id space runs clockwise from the top. The band shows each node's part of it (ownership is by XOR distance,
# so a part can consist of several arcs), dots are nodes, and sectors are the wedge of a channel.

_RING_WIDTH: Final = 640
_RING_HEIGHT: Final = 400
_RADIUS: Final = 150
_SECTOR_RADIUS: Final = _RADIUS - 8
_LABEL_RADIUS: Final = 178
_SEGMENTS: Final = 512  # resolution of ownership: less than 2 px of the band each
_RING_SHADES: Final = 4
_MAX_LABELS: Final = 40  # more would overlap; the table below the chart has every name


def ring_position(identifier: ChannelId | NodeId) -> float:
    """Return the position of an id on the ring as a fraction of a turn in [0, 1), clockwise from the top."""
    return (from_hex(identifier) >> (BITS - 52)) / 2**52


def draw_ring(
    nodes: Sequence[NodeInfo], channel: ChannelId | None = None, polling_set: Sequence[NodeId] = ()
) -> Markup:
    """Return a chart of the ring, the circle of all ids, with ``nodes`` and the parts of the ring that they own.

    If ``channel`` is given, the chart also shows the channel's position and its *wedge*. The wedge is the part of the
    ring that contains the nodes in ``polling_set``, which poll the channel.
    """
    ordered = sorted(nodes, key=lambda node: node.id)
    title = f"Ring of {len(nodes)} nodes, with the channel's position and the {len(polling_set)} nodes that poll it"
    if channel is None:
        title = f"Ring of {len(nodes)} nodes, with the part of the id space that each owns"
    svg = _svg("ring", _RING_WIDTH, _RING_HEIGHT, title)
    if channel is not None:
        for start, end in wedge_arcs([node.id for node in nodes], channel, polling_set):
            _draw(
                svg, "path", "wedge", d=f"{_arc_path(start, end, _SECTOR_RADIUS)}L{_RING_WIDTH / 2} {_RING_HEIGHT / 2}Z"
            )
    shade = {node.id: place % _RING_SHADES for place, node in enumerate(ordered)}
    for owner, start, end in find_regions(ordered):
        _draw(svg, "path", f"region shade-{shade[owner]}", d=_arc_path(start, end, _RADIUS))
    for node in ordered:
        _draw_node(svg, node, "node polls" if node.id in polling_set else "node", has_label=len(ordered) <= _MAX_LABELS)
    if channel is not None:
        x, y = _on_circle(ring_position(channel), _RADIUS)
        _draw(svg, "path", "channel", "The channel", d=f"M{x:.1f} {y - 11:.1f}l11 11-11 11-11-11z")
    return _markup(svg)


def wedge_arcs(
    nodes: Sequence[NodeId], channel: ChannelId, polling_set: Sequence[NodeId]
) -> Sequence[tuple[float, float]]:
    """Return the arcs of the ring that form the wedge of ``channel``: (start, end) as fractions of a turn.

    ``polling_set`` contains the nodes that poll the channel. These are the nodes nearest to it. The *wedge* is a part
    of the id space that contains these nodes, and none of the other ``nodes``. It consists of all ids whose XOR
    distance from the channel's id is less than a certain radius.

    If several radii are possible, the one with the fewest 1 bits is used, because it results in few arcs. The wedge
    is a single arc if the nodes in ``polling_set`` are all nodes with a certain id prefix (Corona §3.1). There are no
    arcs if ``polling_set`` is empty.
    """
    target = from_hex(channel)
    polling = {from_hex(node) ^ target for node in polling_set}
    if not polling:
        return []
    farthest = max(polling)
    outside = min((distance for node in nodes if (distance := from_hex(node) ^ target) > farthest), default=1 << BITS)
    lowest = (farthest ^ outside).bit_length() - 1
    radius = outside >> lowest << lowest
    starts = sorted(
        (((target ^ (radius ^ 1 << bit)) >> bit << bit), 1 << bit) for bit in range(BITS + 1) if radius >> bit & 1
    )
    arcs: list[tuple[int, int]] = []
    for start, length in starts:
        if arcs and arcs[-1][1] == start:
            arcs[-1] = arcs[-1][0], start + length
        else:
            arcs.append((start, start + length))
    return [(start / (1 << BITS), end / (1 << BITS)) for start, end in arcs]


def _arc_path(start: float, end: float, radius: float) -> str:
    """Return the SVG path of an arc around the centre of the ring.

    The arc goes clockwise from ``start`` to ``end``, which are fractions of a turn. The path consists of two halves,
    because SVG cannot draw a full circle as a single arc.
    """
    first, half, last = (
        "{:.2f} {:.2f}".format(*_on_circle(position, radius)) for position in (start, (start + end) / 2, end)
    )
    sweep = f"A{radius} {radius} 0 0 1"
    return f"M{first}{sweep} {half}{sweep} {last}"


def find_regions(nodes: Sequence[NodeInfo]) -> Iterator[tuple[NodeId, float, float]]:
    """Yield the arcs of the ring that the nodes own, clockwise: (owner, start, end).

    The owner of an arc is responsible for the channels whose ids are in the arc. Start and end are fractions of a turn,
    rounded to the chart's resolution.
    """
    view = RingView(0, tuple(sorted(nodes, key=lambda node: node.id)))
    segment = (1 << BITS) // _SEGMENTS
    owners = ((view.owner(to_hex(i * segment + segment // 2)), i) for i in range(_SEGMENTS))
    for owner, run in groupby(owners, key=lambda pair: pair[0]):
        indices = [i for _, i in run]
        if owner is not None:
            yield owner, indices[0] / _SEGMENTS, (indices[-1] + 1) / _SEGMENTS


def _on_circle(position: float, radius: float) -> tuple[float, float]:
    angle = 2 * math.pi * position
    return _RING_WIDTH / 2 + radius * math.sin(angle), _RING_HEIGHT / 2 - radius * math.cos(angle)


def _draw_node(svg: ET.Element, node: NodeInfo, css_class: str, *, has_label: bool) -> None:
    position = ring_position(node.id)
    x, y = _on_circle(position, _RADIUS)
    group = _draw(svg, "g", css_class, f"{node.name}, id {node.id}", **{"data-node": node.id})
    _draw(group, "circle", cx=f"{x:.2f}", cy=f"{y:.2f}", r="7" if has_label else "4")
    if has_label:
        x, y = _on_circle(position, _LABEL_RADIUS)
        offset = x - _RING_WIDTH / 2
        _write(group, x, y + 5, node.name, "middle" if abs(offset) < _RADIUS / 8 else "start" if offset > 0 else "end")
