"""Laws of the picture of the ring."""

import math
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from service.console.charts import regions, ring_svg, turn
from service.model import NodeInfo
from service.overlay.id_space import BITS, to_hex
from service.overlay.ring import RingView

ids = st.integers(min_value=0, max_value=(1 << BITS) - 1).map(to_hex)
names = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=12)
rings = st.lists(st.builds(NodeInfo, id=ids, epoch=st.just(1), name=names, joined_s=st.just(0.0)), max_size=50)


def _drawn(picture: str) -> list[ET.Element]:
    return [group for group in ET.fromstring(picture).iter("g") if "data-node" in group.attrib]  # noqa: S314 - ours


@given(rings)
def test_every_node_is_drawn_once_in_the_order_of_the_ring(nodes: list[NodeInfo]) -> None:
    drawn = [group.attrib["data-node"] for group in _drawn(ring_svg(nodes))]
    assert drawn == sorted(node.id for node in nodes)


@given(rings)
def test_a_dot_stands_at_the_angle_of_its_id(nodes: list[NodeInfo]) -> None:
    for group in _drawn(ring_svg(nodes)):
        dot = group.find("circle")
        assert dot is not None
        angle = math.atan2(float(dot.attrib["cx"]) - 320, 200 - float(dot.attrib["cy"])) / (2 * math.pi) % 1
        apart = abs(angle - turn(group.attrib["data-node"]))
        assert min(apart, 1 - apart) < 1e-3


@given(ids, ids)
def test_angles_are_in_the_order_of_ids_and_within_one_turn(a: str, b: str) -> None:
    assert 0 <= turn(a) < 1
    assert (a < b) <= (turn(a) <= turn(b))


@given(rings)
def test_the_regions_cover_the_whole_ring_and_belong_to_the_nearest(nodes: list[NodeInfo]) -> None:
    parts = list(regions(nodes))
    assert bool(parts) == bool(nodes)
    assert math.isclose(sum(end - start for _, start, end in parts), 1.0 if nodes else 0.0, abs_tol=1e-9)
    view = RingView(0, tuple(nodes))
    for owner, start, _ in parts:
        assert view.owner(to_hex(int((start + 1 / 1024) * (1 << BITS)))) == owner


@given(rings, ids, st.integers(min_value=0, max_value=5))
def test_chords_lead_from_the_channel_to_each_of_its_polling_set(
    nodes: list[NodeInfo], channel: str, count: int
) -> None:
    polling_set = RingView(0, tuple(nodes)).nearest(channel, count)
    picture = ring_svg(nodes, channel, polling_set)
    assert picture.count('class="chord"') == len(polling_set)
    assert {group.attrib["data-node"] for group in _drawn(picture) if "polls" in group.attrib["class"]} == set(
        polling_set
    )


def test_a_nodes_name_is_text() -> None:
    assert "<b>" not in ring_svg([NodeInfo("0" * 40, 1, "<b>&\"'", 0.0)])
