"""Members hold what owners assign, whatever was lost, and at rest a fleet's messages do not depend on its channels."""

from collections import Counter

import pytest

from service.corona import messages
from service.corona.fleet_policy import FleetObjective, Goal
from service.model import ChannelId, NodeId
from service.simulate.corona.protocol_fleet import ProtocolNode
from tests.support.fleet import POLICY, PROMPT_S, TICK_S, Fleet

OBJECTIVE = FleetObjective(goal=Goal.LITE, demand_factor=3.0)
INTERVAL_S = POLICY.maintenance_interval_s
STORM_S = 20.0
SETTLED_S = STORM_S + POLICY.soft_state_ttl_s + INTERVAL_S
"""When members have forgotten dead owners and the fleet's scale is known to all."""


class ObservedFleet(Fleet):
    """A fleet that counts its messages by type, and loses the next messages to members if told so."""

    def __init__(self, seed: int, channels: int, *, calm_s: float = 0.0) -> None:
        super().__init__(seed, channels, calm_s=calm_s, objective=OBJECTIVE)
        self.sent: Counter[str] = Counter()
        self.loses = False

    def simulates_polls_of(self, channel: ChannelId, node: ProtocolNode) -> bool:
        return self.now_s < STORM_S and super().simulates_polls_of(channel, node)

    def send(self, sender: NodeId, receiver: NodeId, message: messages.Message) -> None:
        self.sent[type(message).__name__] += 1
        if not self.loses or isinstance(message, messages.Summary):
            super().send(sender, receiver, message)

    def sent_within(self, for_s: float) -> Counter[str]:
        """Return the number of messages by type that are sent in the next ``for_s`` seconds."""
        self.sent.clear()
        self.run_until(self.now_s + for_s)
        return self.sent.copy()


def _fleet(seed: int, nodes: int, channels: int, *, calm_s: float = 0.0) -> ObservedFleet:
    fleet = ObservedFleet(seed, channels, calm_s=calm_s)
    for stored in fleet.channels.values():
        stored.subscribers = max(1, stored.subscribers)
    for _ in range(nodes):
        fleet.join()
    return fleet


@pytest.mark.parametrize("seed", range(10))
def test_members_agree_with_owners_two_intervals_after_the_last_fault(seed: int) -> None:
    """Nothing is repaired any more: every digest is confirmed."""
    fleet = _fleet(seed, 4, 30, calm_s=STORM_S)
    for _ in range(12):
        fleet.after(fleet.random.uniform(0, STORM_S), lambda: _change(fleet))
    fleet.run_until(SETTLED_S)
    for channel in fleet.channels:
        fleet.subscribe(channel, fleet.random.choice((0, 1, 5)))
    fleet.loses = True
    fleet.run_until(fleet.now_s + INTERVAL_S)
    fleet.loses = False
    fleet.run_until(fleet.now_s + 2 * INTERVAL_S + TICK_S + 4 * PROMPT_S)
    sent = fleet.sent_within(2 * INTERVAL_S)
    assert sent["BucketDigests"] == sent["Assign"] == sent["Unassign"] == 0
    for channel, stored in fleet.channels.items():
        schedules = {node.instructions[channel].schedule for node in fleet.alive if channel in node.instructions}
        assert len(schedules) == bool(stored.subscribers)
        polling = {node.node_id for node in fleet.alive if channel in node.instructions}
        assert polling == set(fleet.view.nearest(channel, next(iter(schedules)).size) if schedules else ())


def _change(fleet: Fleet) -> None:
    match fleet.random.choice(("join", "crash", "subscribe")):
        case "join":
            fleet.join()
        case "crash" if len(fleet.alive) > 1:
            fleet.crash(fleet.random.choice(fleet.alive))
        case _:
            fleet.subscribe(fleet.random.choice(list(fleet.channels)), fleet.random.choice((1, 5)))


def test_at_rest_the_number_of_messages_does_not_depend_on_the_number_of_channels() -> None:
    sent = []
    for channels in (100, 400):
        fleet = _fleet(1, 4, channels)
        fleet.run_until(SETTLED_S)
        sent.append(fleet.sent_within(5 * INTERVAL_S))
    assert sent[0] == sent[1]
    assert 0 < sent[0]["AssignmentDigest"] <= 5 * 4 * 3
    assert sent[0].keys() == {"AssignmentDigest", "SummaryConfirmation"}
