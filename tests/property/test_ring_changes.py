"""A node on a large ring follows changes of the ring that concern few of its channels."""

from collections.abc import Iterator
from random import Random

import pytest

from service.corona.events import (
    ChannelsListed,
    Effect,
    ListedChannel,
    MessageReceived,
    OwnershipTaken,
    ReleaseOwnership,
    RingChanged,
    Send,
    StartPolling,
    StopPolling,
    TakeOwnership,
    Tick,
)
from service.corona.fleet_policy import FleetObjective, FleetPolicy
from service.corona.messages import Assign, Assignment
from service.corona.polling_schedule import PollingSchedule
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView, from_hex, to_hex
from tests.support.corona_node import Node
from tests.support.ring_strategies import joined_ids, ring

POLICY = FleetPolicy(900.0, 120.0, 10.0, FleetObjective(demand_factor=4))
CHANNELS = 60
RINGS = [ring(joined_ids(nodes)) for nodes in (40, 120)]
NEARBY_BITS = 155
"""Points that differ in so many last bits from this node's id are nearest to it or to one of its neighbours."""

SOME = (0, 0, 1, 1, 1, 2, 3, 12)
"""Numbers of nodes that join or leave at once."""

seeds = pytest.mark.parametrize("seed", range(12))


def _changes(first: RingView, me: NodeId, random: Random, count: int) -> Iterator[RingView]:
    """Yield rings after changes, some far from ``me`` and some near, of one node or several; ids are used again."""
    view, unused = first, list[NodeId]()
    for _ in range(count):
        near = [node for node in view.nearest(me, 8) if node != me]
        gone = random.sample([*near, *random.sample(view.ids, 20)], random.choice(SOME))
        bits = [random.choice((160, NEARBY_BITS)) for _ in range(random.choice(SOME))]
        new = [to_hex(from_hex(me) >> own << own | random.getrandbits(own)) for own in bits]
        new += [unused.pop() for _ in range(random.choice(SOME)) if unused]
        unused += gone
        view = ring({*view.ids, *new} - {*gone} | {me}, view.version + 1)
        yield view


def _points(me: NodeId, random: Random) -> Iterator[ChannelId]:
    while True:
        yield to_hex(from_hex(me) >> NEARBY_BITS << NEARBY_BITS | random.getrandbits(NEARBY_BITS))


@seeds
def test_an_owner_assigns_exactly_the_present_polling_sets(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - repeatable, not secret
    first = random.choice(RINGS)
    me = random.choice(first.ids)
    node, ranks, owned = Node(me, POLICY), dict[tuple[ChannelId, NodeId], Assignment | StartPolling](), set[ChannelId]()

    def process(effects: list[Effect], now_s: float) -> None:
        for effect in effects:
            match effect:
                case Send(member, Assign() as message):
                    ranks.update({(each.channel, member): each for each in message.assignments})
                case StartPolling(channel):
                    ranks[channel, me] = effect
                case ReleaseOwnership(channel):
                    owned.discard(channel)
                case TakeOwnership(channel):
                    owned.add(channel)
                    process(node.handle(OwnershipTaken(channel, 1, 1), now_s), now_s)

    process(node.handle(RingChanged(first), 0), 0)
    channels = [channel for _, channel in zip(range(CHANNELS), _points(me, random), strict=False)]
    listed = tuple(ListedChannel(channel, int(random.paretovariate(0.7))) for channel in channels)
    process(node.handle(ChannelsListed(0, listed), 0), 0)
    for now_s in range(0, 60, 3):
        process(node.handle(Tick(), now_s), now_s)
    for view in _changes(first, me, random, 25):
        process(node.handle(RingChanged(view), 60), 60)
        assert owned <= {channel for channel in channels if view.owner(channel) == me}
        for channel in owned:
            size = ranks[channel, me].schedule.size
            assert [ranks[channel, member].rank for member in view.nearest(channel, size)] == [*range(size)]
        process(node.handle(ChannelsListed(60, listed), 60), 60)
        assert len(owned) == sum(view.owner(channel) == me for channel in channels)


@seeds
def test_a_member_polls_and_takes_over_exactly_the_channels_its_ring_assigns(seed: int) -> None:
    for run in range(20):
        _follow_as_member(Random(100 * seed + run))  # noqa: S311 - repeatable, not secret


def _follow_as_member(random: Random) -> None:
    known = random.choice(RINGS)
    me = random.choice(known.ids)
    node, polled, owned = Node(me, POLICY), dict[ChannelId, int](), set[ChannelId]()
    node.handle(RingChanged(known), 0)
    for view in _changes(known, me, random, 5):
        for channel in (next(_points(me, random)) for _ in range(20)):
            size, by = random.choice((1, 2, 3, 8)), random.choice((known, view))
            owner = by.owner(channel)
            if me in by.nearest(channel, size) and owner not in {me, None} and known.owner(channel) != me:
                assignment = Assignment(channel, 0, PollingSchedule(0.0, 900.0 / size, size), 1)
                node.handle(MessageReceived(str(owner), Assign(by.version, (assignment,))), 0)
                polled[channel] = size
        if random.random() < 0.4:  # the next ring comes first
            continue
        known = view
        for effect in node.handle(RingChanged(view), 0):
            match effect:
                case StopPolling(channel):
                    del polled[channel]
                case TakeOwnership(channel):
                    owned.add(channel)
                case ReleaseOwnership(channel):
                    owned.discard(channel)
        assert all(me in view.nearest(channel, size) for channel, size in polled.items())
        assert owned >= {channel for channel in polled if view.owner(channel) == me}
