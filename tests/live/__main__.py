"""Five minutes with many feeds on one address: ``python -m tests.live [--seconds S] [--seed N] [--poll-interval S]``.

20 feeds with 5 initial entries each get one new entry per second, with three workers. Prints the publisher's request
rate, the delays of subscribers, and the delivery audit. One of two subscribers is offline for 70 s.
"""

import argparse
import asyncio
import contextlib
import tempfile
import time
from pathlib import Path

from service.embedded.sample_publisher import PublishedEntry
from tests.live.twenty_feeds import FEEDS, LATE, SAME_GUID, TwentyFeeds, plan, quantile, twenty_feeds
from tests.support.chat import ChatClient
from tests.support.delivery_audit import Subscribed, Verdict, audit
from tests.support.product_process import running
from tests.support.waiting import until

MOST_REQUESTS = 680
OFFLINE_FROM_S, OFFLINE_S = 100.0, 70.0
WORKERS = 3


async def run(seconds: int, seed: int, poll_interval_s: float) -> str:
    """Run it; return the report."""
    options = ("--workers", str(WORKERS), "--poll-interval", str(poll_interval_s), "--no-sample-feeds")
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        product = await stack.enter_async_context(running(directory / "state", *options))
        publisher = await stack.enter_async_context(twenty_feeds())
        people = [await stack.enter_async_context(product.chat(number)) for number in range(2)]
        subscribed = [await subscribe(person, publisher, feed) for person in people for feed in range(FEEDS)]
        await asyncio.sleep(poll_interval_s / WORKERS)  # every polling set has begun
        probes, started_s = len(publisher.requests), time.time()
        await asyncio.gather(publish(publisher, plan(seconds, seed)), stay_offline(people[1]))
        ended_s = time.time()
        held = {person.jid: set(range(FEEDS)) for person in people}

        def verdict() -> Verdict:
            received = {p.jid: [m for m in p.received if not m.thread] for p in people}
            return audit(publisher.published, subscribed, received, held)

        async def all_told() -> bool:
            return "I1" not in verdict().broken

        with contextlib.suppress(AssertionError):  # the verdict says it better
            await until(all_told, "all that is owed", within_s=60)
        during = sum(started_s <= at_s <= ended_s for at_s in publisher.requests)
        waits = delivery_delays(publisher.published, people[0])
        asked = f"{probes} requests before, {during} in {ended_s - started_s:.0f} s (at most {MOST_REQUESTS} in all)"
        return "\n".join([asked, *map(format_line, waits.items()), f"ledger: {verdict()}"])


async def subscribe(person: ChatClient, publisher: TwentyFeeds, feed: int) -> Subscribed:
    """Subscribe, acknowledged."""
    answer = await person.say(f"subscribe {publisher.url(feed)}")
    assert "#" in answer, answer
    return Subscribed(person.jid, feed, time.time())


async def publish(publisher: TwentyFeeds, feeds: list[int]) -> None:
    """Publish one entry a second."""
    began_s = asyncio.get_running_loop().time()
    for second, feed in enumerate(feeds):
        await asyncio.sleep(began_s + second - asyncio.get_running_loop().time())
        publisher.publish(feed)


async def stay_offline(person: ChatClient) -> None:
    """Be offline for a while."""
    await asyncio.sleep(OFFLINE_FROM_S)
    await person.vanish()
    await asyncio.sleep(OFFLINE_S)
    await person.start()


def delivery_delays(published: list[PublishedEntry], person: ChatClient) -> dict[str, list[float]]:
    """Return how long a person who was there all the while waited for each entry, by kind of feed."""
    waits: dict[str, list[float]] = {"all": [], "one guid for all": [], "dated half an hour ago": []}
    for entry in published:
        arrived = [message.at_s for message in person.received if entry.title in message.body]
        if arrived:
            kinds = {SAME_GUID: "one guid for all", LATE: "dated half an hour ago"}
            for kind in {"all", kinds.get(entry.feed, "all")}:
                waits[kind].append(min(arrived) - entry.published_s)
    return waits


def format_line(waits: tuple[str, list[float]]) -> str:
    """Return one line of the report."""
    kind, values = waits
    if not values:
        return f"{kind}: none"
    p50, p95 = quantile(values, 0.5), quantile(values, 0.95)
    return f"{kind}: {len(values)} entries, p50 {p50:.2f} s, p95 {p95:.2f} s, longest {max(values):.2f} s"


def main() -> None:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--poll-interval", type=float, default=26.5)
    given = parser.parse_args()
    print(asyncio.run(run(given.seconds, given.seed, given.poll_interval)))  # noqa: T201 - this is its output


if __name__ == "__main__":
    main()
