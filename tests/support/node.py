"""A node's protocol as most tests of it want it."""

from service.corona.events import Effect, Event, Send
from service.corona.messages import Summary
from service.corona.protocol import NodeProtocol


class Node(NodeProtocol):
    """Its clock is the fleet's, unless told; what it tells others of its channels is left out of the effects."""

    def handle(self, event: Event, now_s: float, fleet_s: float | None = None) -> list[Effect]:
        effects = super().handle(event, now_s, now_s if fleet_s is None else fleet_s)
        return [effect for effect in effects if not (isinstance(effect, Send) and isinstance(effect.message, Summary))]
