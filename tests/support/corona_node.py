"""A wrapper of the Corona node protocol for tests."""

from service.corona.events import Effect, Event, Send
from service.corona.fleet_policy import FleetPolicy
from service.corona.messages import Summary, SummaryConfirmation
from service.corona.node_protocol import NodeProtocol
from service.model import NodeId

_SUMMARIES = Summary | SummaryConfirmation


class Node:
    """Handles one event at a time. Node and fleet clocks are equal by default; effects omit summaries."""

    def __init__(self, node_id: NodeId, policy: FleetPolicy) -> None:
        self._protocol = NodeProtocol(node_id, policy)
        self.plans = self._protocol.plans
        self.explain = self._protocol.explain

    def handle(self, event: Event, now_s: float, fleet_s: float | None = None) -> list[Effect]:
        effects = self._protocol.handle([event], now_s, now_s if fleet_s is None else fleet_s)
        return [e for e in effects if not (isinstance(e, Send) and isinstance(e.message, _SUMMARIES))]
