"""Aggregation of summaries between nodes, and invalid summaries. ``ME`` has one sibling in each of two rows."""

from math import inf, nan

import pytest

from service.corona.aggregation import EMPTY_AGGREGATE, Aggregation
from service.corona.events import Send
from service.corona.messages import Aggregate, Summary, SummaryConfirmation
from service.corona.optimizer.allocation_solver import AllocationProblem
from service.corona.optimizer.tradeoff_clusters import encode, summarise
from service.model import NodeId
from tests.support.ring_strategies import ring

ME, NEAR, FAR, FARTHER = "00" + "0" * 38, "01" + "0" * 38, "10" + "0" * 38, "11" + "0" * 38
SILENCE_S = 30.0


def _aggregate(subscribers: float, nodes: int = 1) -> Aggregate:
    return Aggregate(nodes, subscribers, encode(summarise(AllocationProblem.of([subscribers]))))


def _node(*others: NodeId) -> Aggregation:
    node = Aggregation(ME, SILENCE_S)
    node.on_ring_changed(ring([ME, *others]))
    node.own = _aggregate(1.0)
    return node


def _on_summary(sender: NodeId, digits: int, part: Aggregate) -> Aggregate:
    """Return a node that has processed one summary."""
    node = _node(NEAR, FAR)
    node.on_message(sender, Summary(digits, part), 0)
    return node.fleet()


def test_a_single_node_is_the_whole_fleet_and_sends_nothing() -> None:
    node = _node()
    assert (node.fleet(), list(node.tick(0, is_maintenance=True))) == (node.own, [])


def test_a_node_without_a_ring_has_its_own_aggregate() -> None:
    assert Aggregation(ME, SILENCE_S).fleet() == EMPTY_AGGREGATE


def test_each_row_is_sent_the_aggregate_it_lacks() -> None:
    node = _node(NEAR, FAR)
    node.on_message(NEAR, Summary(2, _aggregate(4.0)), 0)
    far, near = node.tick(1, is_maintenance=True)
    assert node.own is not None
    assert near == Send(NEAR, Summary(2, node.own))
    assert isinstance(far.message, Summary)
    assert (far.node, far.message.digits, far.message.aggregate.nodes, far.message.aggregate.demand) == (FAR, 1, 2, 5.0)


def test_a_sibling_counts_once_however_often_it_is_received() -> None:
    node = _node(NEAR, FAR, FARTHER)
    for sender in (FAR, FAR, FARTHER):
        node.on_message(sender, Summary(1, _aggregate(8.0, nodes=2)), 0)
    assert (node.fleet().nodes, node.fleet().demand) == (3, 9.0)


def test_an_aggregate_that_is_not_repeated_expires() -> None:
    node = _node(NEAR)
    node.on_message(NEAR, Summary(2, _aggregate(4.0)), 0)
    list(node.tick(SILENCE_S - 1, is_maintenance=True))
    assert node.fleet().nodes == 2
    list(node.tick(SILENCE_S, is_maintenance=True))
    assert node.fleet() == node.own


def test_an_unchanged_aggregate_is_confirmed_at_maintenance_only() -> None:
    node = _node(NEAR)
    list(node.tick(0, is_maintenance=True))
    assert list(node.tick(SILENCE_S / 4, is_maintenance=False)) == []
    (send,) = node.tick(SILENCE_S / 3, is_maintenance=True)
    assert isinstance(send.message, SummaryConfirmation)


def test_a_repeated_aggregate_does_not_expire() -> None:
    node = _node(NEAR)
    for now_s in (0, 20, 40):
        node.on_message(NEAR, Summary(2, _aggregate(4.0)), now_s)
    list(node.tick(60, is_maintenance=True))
    assert node.fleet().nodes == 2


def test_the_aggregate_of_a_node_that_left_is_dropped_at_once() -> None:
    node = _node(NEAR, FAR)
    node.on_message(NEAR, Summary(2, _aggregate(4.0)), 0)
    node.on_ring_changed(ring([ME, FAR], version=2))
    assert node.fleet() == node.own
    node.on_message(NEAR, Summary(2, _aggregate(4.0)), 1)
    assert node.fleet() == node.own


def test_a_summary_from_a_node_that_joins_later_is_kept_until_then() -> None:
    node = _node(FAR)
    node.on_message(NEAR, Summary(2, _aggregate(4.0)), 0)
    assert node.fleet() == node.own
    node.on_ring_changed(ring([ME, NEAR, FAR], version=2))
    assert (node.fleet().nodes, node.fleet().demand) == (2, 5.0)
    list(node.tick(SILENCE_S, is_maintenance=True))
    assert node.fleet() == node.own


@pytest.mark.parametrize(
    ("sender", "digits", "part"),
    [
        (ME, 1, _aggregate(4.0)),
        (FAR, 2, _aggregate(4.0)),
        (FARTHER, 1, _aggregate(4.0)),
        ("no node", 1, _aggregate(4.0)),
        (NEAR, 2, Aggregate(1, 4.0, b"not clusters")),
        (NEAR, 2, Aggregate(1, inf, b"")),
        (NEAR, 2, Aggregate(1, nan, b"")),
    ],
    ids=["myself", "another base", "not on the ring", "not an id", "no clusters", "endless demand", "no number"],
)
def test_invalid_summaries_are_ignored(sender: NodeId, digits: int, part: Aggregate) -> None:
    assert _on_summary(sender, digits, part) == _aggregate(1.0)
