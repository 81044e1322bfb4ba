"""Traffic on the whole product for fault tests, which end with a delivery audit."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

from service.embedded.sample_publisher import SamplePublisher
from service.store import Store
from tests.support.chat import ChatClient
from tests.support.delivery_audit import Subscribed, Verdict, audit, tagged
from tests.support.product_process import Product, running
from tests.support.waiting import until

FEEDS = (1, 2)
PEOPLE = 3


class Traffic:
    """A continuous publisher and its subscribers, with the data for the delivery audit."""

    def __init__(self, product: Product, publisher: SamplePublisher, people: list[ChatClient]) -> None:
        self.product = product
        self.publisher = publisher
        self.people = people
        self.subscribed: list[Subscribed] = []
        self._numbers = dict.fromkeys(FEEDS, 0)

    async def publish_once(self) -> None:
        """Publish one entry in every feed."""
        for feed in FEEDS:
            self._numbers[feed] += 1
            await self.publisher.publish(tagged(feed, self._numbers[feed]), feed)

    async def subscribe_all(self) -> None:
        """Subscribe every user to every feed."""
        for person in self.people:
            for feed in FEEDS:
                answer = await person.say(f"subscribe {self.publisher.feed_url(feed)}")
                assert "#" in answer, answer
                self.subscribed.append(Subscribed(person.jid, feed, time.time()))

    async def last_one_leaves_a_feed(self) -> None:
        """Unsubscribe the last user from the last feed, and record the confirmed end of the subscription."""
        person, feed = self.people[-1], FEEDS[-1]
        answer = await person.say(f"unsubscribe {self.publisher.feed_url(feed)}")
        assert "#" in answer, answer
        (old,) = (each for each in self.subscribed if (each.jid, each.feed) == (person.jid, feed))
        self.subscribed.remove(old)
        self.subscribed.append(Subscribed(person.jid, feed, old.since_s, time.time()))

    def verdict(self, held: dict[str, set[int]]) -> Verdict:
        """Return the present result of the audit; ``held`` has the feeds of each JID according to the store."""
        published = [entry for feed in FEEDS for entry in self.publisher.published(feed)]
        received = {p.jid: [m for m in p.received if not m.thread] for p in self.people}
        return audit(published, self.subscribed, received, held)

    async def settle(self) -> Verdict:
        """Wait until all published entries have arrived, or 45 s have passed; return the result of the audit."""

        async def nothing_missing() -> bool:
            return "I1" not in self.verdict({p.jid: set() for p in self.people}).broken

        with contextlib.suppress(AssertionError):  # the audit reports missing entries in detail
            await until(nothing_missing, "all that is owed", within_s=45)
        async with self.product.store() as store:
            return self.verdict({p.jid: await self._held(store, p) for p in self.people})

    async def _held(self, store: Store, person: ChatClient) -> set[int]:
        subscriptions = await store.subscriptions.of_user(person.jid)
        channels = await store.channels.get_many([subscription.channel for subscription in subscriptions])
        feeds = {self.publisher.feed_url(feed): feed for feed in FEEDS}
        return {feeds[channel.url] for channel in channels if channel is not None}


@contextlib.asynccontextmanager
async def traffic(directory: Path, *size: str) -> AsyncIterator[Traffic]:
    """Run a product with a publisher and users; ``size`` are options of ``coronet up``, by default three workers."""
    options = (*(size or ("--workers", "3")), "--poll-interval", "2", "--no-sample-feeds")
    async with contextlib.AsyncExitStack() as stack:
        product = await stack.enter_async_context(running(directory / "state", *options))
        publisher = await stack.enter_async_context(SamplePublisher(directory / "publisher"))
        people = [await stack.enter_async_context(product.chat(number)) for number in range(PEOPLE)]
        yield Traffic(product, publisher, people)


async def keep_publishing(running_traffic: Traffic) -> None:
    """Publish an entry per second in every feed until cancelled."""
    while True:
        await running_traffic.publish_once()
        await asyncio.sleep(1)


@contextlib.asynccontextmanager
async def entries_coming(running_traffic: Traffic) -> AsyncIterator[None]:
    """Publish an entry per second in every feed while the context is open."""
    publishing = asyncio.create_task(keep_publishing(running_traffic))
    try:
        yield
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)


async def until_told_something_new(live: Traffic) -> None:
    """Wait until all users have received an entry published after the call, which shows that delivery works."""
    now_s = time.time()

    async def all_told() -> bool:
        later = [entry.title for entry in live.publisher.published(FEEDS[0]) if entry.published_s > now_s]
        return all(any(title in m.body for m in person.received for title in later) for person in live.people)

    await until(all_told, "everybody is told of what is published now", within_s=30)
