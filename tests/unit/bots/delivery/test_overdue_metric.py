"""How long a message has been due without being sent, for the metric of the same name."""

from types import SimpleNamespace
from typing import cast

from bots.cluster.partitions import AssignedUsers
from bots.delivery.outbox_consumer import OutboxConsumer
from bots.xmpp.interface import XmppSender
from service.clock import Clock
from service.store import Store


def test_a_message_is_overdue_from_its_due_time_until_it_is_acquired() -> None:
    now_s = 100.0
    clock = cast("Clock", SimpleNamespace(monotonic_s=lambda: now_s))
    store = cast("Store", SimpleNamespace(channels=None))
    users = cast("AssignedUsers", SimpleNamespace(includes=lambda _: True))
    consumer = OutboxConsumer(store, cast("XmppSender", None), clock, users, 1.0)
    assert consumer.overdue_s() == 0
    consumer._scheduler.defer("digest", 500.0)
    consumer._scheduler.on_items_queued(["alice", "digest"], now_s)
    now_s = 130.0
    assert consumer.overdue_s() == 30
    assert consumer._scheduler.acquire_due(10, now_s) == ["alice"]
    assert consumer.overdue_s() == 0
    now_s = 530.0
    assert consumer.overdue_s() == 30, "the digest"
