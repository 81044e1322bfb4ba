"""The last steps of changes, messages that were sent and their receipts: how long they took; for logs and traces."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from bots.bodies import Body
from bots.ids import is_batch
from service.metrics import DELIVERY, RECEIPT
from service.model import UserId
from service.store.outbox import Batch, MessageId
from service.tracing import TRACING

_MOST_AWAITED: Final = 10_000
"""Of older messages the receipts are taken as ever, but are no step of a trace."""


class Tracks:
    """Which changes each message tells of, until its receipt comes. Times are Unix s."""

    def __init__(self) -> None:
        """Know of no message."""
        self._awaited: OrderedDict[MessageId, tuple[float, Sequence[str]]] = OrderedDict()

    def sending(self, messages: Iterable[tuple[Batch, Body]], now_s: float) -> None:
        """Note that messages go out now: a receipt may come before the server's own word."""
        for batch, body in messages:
            self._awaited[batch.message_id] = now_s, body.traces
            if len(self._awaited) > _MOST_AWAITED:
                self._awaited.popitem(last=False)

    def sent(self, messages: Iterable[tuple[Batch, Body]], now_s: float) -> None:
        """Note that the server has messages."""
        for batch, body in messages:
            for trace in body.traces:
                TRACING.step(trace, "sent", batch.claimed_s, message=batch.message_id)
            if not batch.acked and not batch.replaces:  # of a correction, most was detected long ago
                for detected_s in body.detected_s:
                    DELIVERY.observe(max(0.0, now_s - detected_s))

    def forget(self, uid: UserId) -> None:
        """Know of no message to a person."""
        for message_id in [message_id for message_id in self._awaited if is_batch(uid, message_id)]:
            del self._awaited[message_id]

    def received(self, message_id: MessageId, now_s: float) -> None:
        """Note that a client has a message."""
        if message_id not in self._awaited:
            return
        sent_s, traces = self._awaited.pop(message_id)
        RECEIPT.observe(max(0.0, now_s - sent_s))
        for trace in traces:
            TRACING.step(trace, "received", sent_s, message=message_id)
