"""Messages on their way out: assignments that one node is sent one after the other travel together."""

from collections.abc import Iterable

from service.corona.events import Send
from service.corona.messages import Assign, Assignment
from service.model import NodeId

MOST_ASSIGNMENTS = 1_000
"""What a message grows to at most before the next one is begun."""


def gathered(sends: Iterable[Send]) -> list[Send]:
    """Return the same in fewer messages: each node is told the same things in the same order."""
    found: list[Send] = []
    growing: dict[NodeId, tuple[int, int, list[Assignment]]] = {}
    grown: list[tuple[int, int, list[Assignment]]] = []
    for send in sends:
        message, last = send.message, growing.pop(send.node, None)
        if isinstance(message, Assign):
            if last is not None and last[1] == message.ring_version and len(last[2]) < MOST_ASSIGNMENTS:
                last[2].extend(message.assignments)
                growing[send.node] = last
                continue
            growing[send.node] = len(found), message.ring_version, list(message.assignments)
            grown.append(growing[send.node])
        found.append(send)
    for index, ring_version, assignments in grown:
        found[index] = Send(found[index].node, Assign(ring_version, tuple(assignments)))
    return found
