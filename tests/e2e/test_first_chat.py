"""The main function with real servers: a user subscribes in chat and receives changes."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from service.embedded.sample_publisher import SamplePublisher
from service.feeds.canonical_urls import channel_id
from tests.support.delivery_audit import Subscribed, audit, tagged
from tests.support.otlp import Collector, Span, collecting
from tests.support.product_process import Product, running
from tests.support.terminal import terminal
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

POLL_INTERVAL_S = 3.0
WORKERS = 3
OPTIONS = ("--workers", str(WORKERS), "--poll-interval", str(POLL_INTERVAL_S))
_STEPS = {"found", "versioned", "fanned out", "sent", "received"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as running_collector:
        yield running_collector


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> AsyncIterator[Product]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CORONET_LOG_LEVEL", "debug")
        environment.setenv("CORONET_LOG_JSON", "true")
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        async with running(tmp_path_factory.mktemp("up"), *OPTIONS) as started:
            yield started


@pytest_asyncio.fixture(loop_scope="module")
async def publisher(tmp_path: Path) -> AsyncIterator[SamplePublisher]:
    async with SamplePublisher(tmp_path) as serving:
        yield serving


async def test_a_user_subscribes_receives_changes_and_unsubscribes(
    product: Product, publisher: SamplePublisher, collector: Collector
) -> None:
    await publisher.publish("Before")
    async with product.chat(0) as alice:
        first = await alice.say(publisher.feed_url())
        assert "Before" in first
        # When this is answered, the bot has had a receipt of hers: only then it asks for one of what is new.
        assert publisher.feed_url() in await alice.say("list")
        await publisher.publish("Breaking news")
        told = await alice.wait_for(lambda message: "Breaking news" in message.body)
        assert not told.thread
        assert "Before" not in told.body
        assert await until(lambda: _way_of(product, told.id), "one id leads from the poll to the receipt")
        spans = await until(lambda: _exported(collector, told.id), "all its steps have been exported")
        assert len({span.trace for span in spans}) == 1
        found, *later = spans
        assert (found.name, found.parent, found.told["changes"]) == ("found", "", 1)
        assert {span.parent for span in later} == {found.span}
        assert all(span.began_ns <= span.ended_ns for span in spans)
        assert found.began_ns < max(span.ended_ns for span in later)
        assert publisher.feed_url() in await alice.say("list")
        await alice.say("unsubscribe #1")
        assert publisher.feed_url() not in await alice.say("list")


async def _exported(collector: Collector, message_id: str) -> list[Span]:
    """Wait until all processes have exported the spans of a message's change, and return them."""
    spans = collector.trace_of(message=message_id)
    return spans if {span.name for span in spans} == _STEPS else []


async def _way_of(product: Product, message_id: str) -> bool:
    """Return whether the logs of all processes have every step of a message's change under one trace id."""
    lines = [line for log in (product.directory / "logs").glob("*.log") for line in log.read_text().splitlines()]
    steps = [step for line in lines if line.startswith("{") and "trace" in (step := json.loads(line))]
    traces = {step["trace"] for step in steps if step.get("message") == message_id}
    told = {trace: {step["step"] for step in steps if step["trace"] == trace} for trace in traces}
    return any(events == _STEPS for events in told.values())


async def test_fifty_entries_arrive_within_the_poll_interval_divided_by_nodes(
    tmp_path: Path, publisher: SamplePublisher
) -> None:
    """The 95th percentile from publication to the chat message is at most (poll interval / n) + 2 s.

    It has a product of its own: for a minute after such a feed, the other tests' channels would get few polls.
    """
    feed = 1
    await publisher.publish(tagged(feed, 0), feed)
    async with running(tmp_path / "up", *OPTIONS) as product, product.chat(1) as bob:
        await bob.say(f"subscribe {publisher.feed_url(feed)}")
        subscribed = Subscribed(bob.jid, feed, publisher.published(feed)[-1].published_s)
        for number in range(1, 51):
            await publisher.publish(tagged(feed, number), feed)
            await asyncio.sleep(0.5)  # the publisher's own pace, unrelated to ours
        await bob.wait_for(lambda message: tagged(feed, 50) in message.body)
        async with product.store() as store:
            held = {channel_id(publisher.feed_url(feed)): feed}
            listed = {held[subscription.channel] for subscription in await store.subscriptions.of_user(bob.jid)}
        received = [message for message in bob.received if not message.thread]
        verdict = audit(publisher.published(feed), [subscribed], {bob.jid: received}, {bob.jid: listed})
        assert verdict.broken == {}
        assert verdict.received == 50
        at_s = {
            entry.title: next(m.at_s for m in bob.notifications if entry.title in m.body)
            for entry in publisher.published(feed)[1:]
        }
        delays_s = sorted(at_s[entry.title] - entry.published_s for entry in publisher.published(feed)[1:])
        print(f"delay p50 {delays_s[25]:.2f} s, p95 {delays_s[47]:.2f} s, max {delays_s[-1]:.2f} s")  # noqa: T201 - the figure
        assert delays_s[47] <= POLL_INTERVAL_S / WORKERS + 2.0


def heard(screen: str, nick: str) -> list[str]:
    """Return the messages of a chat in Profanity."""
    # Each begins with its time and who says it; its further lines stand below, indented.
    talk = screen.rstrip().rpartition("\n")[0]  # what follows is the line to type in
    messages = re.split(r"^\d\d:\d\d:\d\d - ", talk, flags=re.MULTILINE)
    lines = [[line.strip() for line in message.rstrip().split("\n")] for message in messages]
    return ["\n".join(said).removeprefix(f"{nick}: ") for said in lines if said[0].startswith(f"{nick}: ")]


async def test_a_first_chat_in_profanity_is_readable(
    product: Product, publisher: SamplePublisher, tmp_path: Path
) -> None:
    """Profanity runs with its default configuration."""
    feed, xmpp = publisher.feed_url(4), product.ready["xmpp"]
    erin, bot = xmpp["accounts"][4], xmpp["bot_jid"]
    await publisher.publish("Before", 4)
    async with terminal("profanity", {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}) as client:
        await client.shows("Type '/help'")
        await client.type(f"/connect {erin['jid']} server {xmpp['host']} port {xmpp['port']} tls trust")
        await client.shows("Enter password:")
        await client.type(erin["password"])
        await client.shows("logged in successfully")
        await client.type(f"/msg {bot} subscribe {feed}")
        await client.shows("entries/4/1")
        await client.type("list")
        await client.shows("me: list")
        await publisher.publish("Breaking news & more", 4)
        await client.shows("entries/4/2")
        await client.type("unsubscribe #1")
        screen = await client.shows("Unsubscribed")

    assert heard(screen, bot) == [
        (
            "Hello! I'm Coronet. I keep an eye on feeds and web pages and message you when something new appears.\n"
            "Send me the address of a site or feed to subscribe to it, e.g. `subscribe example.org`.\n"
            "`help` shows what else I can do. Deutsch: `language de`, français: `language fr`, "
            "español: `language es`,\n"
            "italiano: `language it`, português: `language pt`, Nederlands: `language nl`, polski: `language pl`.\n\n"
            f"Subscribed to *Sample feed 4* (#1).\nLatest entry:\nBefore\n{publisher.url}/entries/4/1"
        ),
        f"1 subscription:\n#1 Sample feed 4\n{feed}",
        f"*Sample feed 4*\nBreaking news & more\n{publisher.url}/entries/4/2",
        f"Unsubscribed from *Sample feed 4* (#1). To undo, send `subscribe {feed}`.",
    ]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("hello there", "help"),
        ("http://not a url", "not a full host name"),
        ("subscribe http://192.168.0.1/feed", "address"),
        ("subscribe http://no-such-host.invalid/feed", "no-such-host.invalid"),
        ("{publisher}/bad/404", "404"),
        ("{publisher}/bad/html", "Shall I monitor the page itself"),
        ("{publisher}/bad/broken.xml", "broken"),
        ("{publisher}/bad/empty", "nothing to read"),
        ("{publisher}/bad/huge", "larger"),
    ],
)
async def test_an_unusable_url_gets_a_specific_answer_and_changes_nothing(
    product: Product, publisher: SamplePublisher, what: str, words: str
) -> None:
    before = product.ready["processes"]
    async with product.chat(2) as carol:
        answer = await carol.say(what.format(publisher=publisher.url), timeout_s=15)
        assert words in answer
        assert "no subscriptions" in (await carol.say("list")).lower()
    assert product.ready["processes"] == before


async def test_every_program_is_ready(product: Product) -> None:
    async with aiohttp.ClientSession() as session, session.get(product.ready["console_url"] + "/readyz") as answer:
        assert answer.status == 200


async def test_a_worker_returns_the_content_of_a_channel(product: Product, publisher: SamplePublisher) -> None:
    async with product.store() as store:
        async with product.chat(3) as dave:
            await publisher.publish("For everybody", 7)
            await dave.say(f"subscribe {publisher.feed_url(7)}")
            assert "For everybody" in await dave.say("show #1")
        shown = await store.worker_requests.content(channel_id(publisher.feed_url(7)))
        assert [entry.title for entry in shown.latest] == ["For everybody"]
