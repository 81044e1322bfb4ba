"""Aggregation on any ring: all nodes agree on one fleet, in which each counts once, in as many ticks as rows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.corona.aggregation import Aggregation, summary_recipients
from service.corona.messages import Aggregate, Summary, SummaryConfirmation, SummaryRequest
from service.corona.optimizer.allocation_solver import AllocationProblem
from service.corona.optimizer.tradeoff_clusters import decode, encode, summarise
from service.model import NodeId
from service.overlay.ring import RingView, digit, from_hex, shared_digits
from tests.support.ring_strategies import joined_ids, ring, rings

bases = st.sampled_from([2, 4, 16])


def routing_rows(view: RingView, node_id: NodeId, base: int) -> list[set[NodeId]]:
    """Return the contacts of ``node_id`` by row: per sibling digit the nearest node that has it (Corona §3.1)."""
    rows: dict[int, dict[int, NodeId]] = {}
    for node in view.nearest(node_id, len(view.nodes))[1:]:
        row = shared_digits(from_hex(node_id), from_hex(node), base)
        rows.setdefault(row, {}).setdefault(digit(from_hex(node), row, base), node)
    return [set(rows.get(row, {}).values()) for row in range(max(rows, default=-1) + 1)]


def _tick(nodes: dict[str, Aggregation]) -> None:
    """Let every node send its summaries, and then deliver them."""
    for node_id, sends in [(node_id, list(node.tick(0.0, is_maintenance=True))) for node_id, node in nodes.items()]:
        for send in sends:
            assert isinstance(send.message, Summary | SummaryConfirmation | SummaryRequest)
            nodes[send.node].on_message(node_id, send.message, 0.0)


def _fleet(view: RingView, base: int) -> dict[str, Aggregation]:
    nodes = {node_id: Aggregation(node_id, 1.0, base=base) for node_id in view.ids}
    for number, node in enumerate(nodes.values()):
        node.on_ring_changed(view)
        weights = [float(2**number % 997 + each) for each in range(number % 4 + 1)]
        node.own = Aggregate(1, sum(weights), encode(summarise(AllocationProblem.of(weights))))
    return nodes


@given(rings, bases)
def test_summary_recipients_are_the_inverse_of_contacts(view: RingView, base: int) -> None:
    rows = {node_id: routing_rows(view, node_id, base) for node_id in view.ids}
    for node_id in view.ids:
        found = summary_recipients(view, node_id, base)
        assert len(found) == len(rows[node_id])
        for index, nodes in enumerate(found):
            assert set(nodes) == {
                other for other in view.ids if index < len(rows[other]) and node_id in rows[other][index]
            }


@settings(max_examples=40)
@given(rings, bases)
def test_all_nodes_agree_on_a_fleet_in_which_each_counts_once(view: RingView, base: int) -> None:
    nodes = _fleet(view, base)
    for _ in range(max((len(routing_rows(view, node_id, base)) for node_id in nodes), default=0)):
        _tick(nodes)
    fleets = [node.fleet() for node in nodes.values()]
    assert all(fleet == fleets[0] for fleet in fleets)
    for fleet in fleets[:1]:
        clusters = decode(fleet.clusters)
        assert clusters is not None
        assert fleet.nodes == len(nodes)
        assert fleet.demand == pytest.approx(sum(node.own.demand for node in nodes.values() if node.own))
        assert clusters.weight.sum() == pytest.approx(fleet.demand)


def test_hundreds_of_nodes_agree_after_three_ticks_with_fifty_summaries_each() -> None:
    nodes = _fleet(ring(joined_ids(320)), base=16)
    for _ in range(3):
        _tick(nodes)
    assert len({node.fleet().clusters for node in nodes.values()}) == 1
    told = sum(len(list(node.tick(0.0, is_maintenance=True))) for node in nodes.values())
    assert told <= 50 * len(nodes)
