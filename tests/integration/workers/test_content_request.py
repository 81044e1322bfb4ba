"""The latest entries for `show` and the console: from the nearest copy that exists."""

import pytest

from bots.dialogue.request_handler import RequestHandler
from service.embedded.sample_publisher import SamplePublisher
from service.store import Store
from service.store.client import keys
from tests.integration.workers.conftest import StartWorker
from tests.integration.workers.test_worker_fleet import nodes_in_the_ring, subscribed
from tests.support.channels import restate


@pytest.mark.parametrize(
    ("lost", "source"),
    [((), "cache"), (("digest",), "store"), (("digest", "latest", "memory"), "publisher")],
)
async def test_the_latest_entries_are_shown_while_a_copy_exists(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker, lost: tuple[str, ...], source: str
) -> None:
    await start_worker()
    await nodes_in_the_ring(store, 1)
    channel = await subscribed(store, publisher.feed_url())
    if lost:
        await restate(store, channel.id, digest=b"")
        await store.redis.call("HDEL", keys.channel(channel.id), *lost)
    shown = await store.worker_requests.content(channel.id)
    assert ([entry.title for entry in shown.latest], shown.source) == (["The first"], source)


async def test_more_entries_are_read_from_the_log_without_workers(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker
) -> None:
    worker = await start_worker()
    await nodes_in_the_ring(store, 1)
    channel = await subscribed(store, publisher.feed_url())
    requests = RequestHandler.__new__(RequestHandler)
    requests._store = store
    (first,) = await requests.latest(channel.id, 5)
    assert await requests.latest(channel.id, 20) == (first,)
    worker.cancel()
    await nodes_in_the_ring(store, 0)
    assert await requests.latest(channel.id, 5) == (first,)
