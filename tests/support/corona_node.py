"""A node's protocol as most tests of it want it."""

from service.corona.events import Effect, Event, Send
from service.corona.fleet_policy import FleetPolicy
from service.corona.messages import Summary
from service.corona.protocol import NodeProtocol
from service.model import NodeId


class Node:
    """Takes one event at a time. Its clock is the fleet's, unless told; effects leave out what it owns all told."""

    def __init__(self, me: NodeId, policy: FleetPolicy) -> None:
        self._protocol = NodeProtocol(me, policy)
        self.plans = self._protocol.plans
        self.explain = self._protocol.explain

    def handle(self, event: Event, now_s: float, fleet_s: float | None = None) -> list[Effect]:
        effects = self._protocol.handle([event], now_s, now_s if fleet_s is None else fleet_s)
        return [effect for effect in effects if not (isinstance(effect, Send) and isinstance(effect.message, Summary))]
