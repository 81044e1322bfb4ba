"""Malicious and broken URLs: one correct answer within 10 s, bounded memory, no leftovers, no effect on other users.

Several users submit all bad URLs while another one follows a normal channel. Cases that need public addresses, such as
DNS rebinding, are in ``tests/integration/net/test_address_guard_netns.py``.
"""

import asyncio
import contextlib
import hashlib
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
import trustme

from service.embedded.sample_publisher import SamplePublisher
from tests.support.bad_input import (
    CERTIFICATES,
    DOCUMENTS,
    DRIPPING,
    HTTP,
    OFFERED,
    PAGE_SUBSCRIBED,
    SUBSCRIBED,
    URLS,
    WITHOUT_END,
    Case,
)
from tests.support.chat import ChatClient, Received
from tests.support.delivery_audit import tagged
from tests.support.processes import children_of, resident_bytes
from tests.support.product_process import Product, running
from tests.support.raw_http import RawPublisher, ok, raw_publisher
from tests.support.waiting import until_so

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

ANSWER_WITHIN_S = 10.0
MOST_MEMORY_BYTES = 100 * 1024 * 1024
POLL_INTERVAL_S = 1.0
PARSERS = 4
"""Parser processes of one worker: for fast polls, for slow polls, and two for requests of users."""
LONGEST_ANSWER_CHARS = 1_500


class Outcome(NamedTuple):
    """The bot's answers, the longest response time, and the requests to the publisher."""

    told: list[str]
    longest_s: float
    requests: list[str]


PEOPLE = ({**URLS, **WITHOUT_END}, {**HTTP, **CERTIFICATES}, DRIPPING, DOCUMENTS)
EVERYTHING = {name: case for cases in PEOPLE for name, case in cases.items()}


@dataclass
class Afternoon:
    """The observations while several users submitted bad URLs and another one followed a normal channel."""

    product: Product
    before: dict[str, Any]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    usual_bytes: int = 0
    most_bytes: int = 0
    healthy_delays_s: list[float] = field(default_factory=list)

    def worker(self) -> int:
        (pid,) = self.product.pids("workers")
        return pid

    def needed_bytes(self) -> int:
        """Return the memory of the worker and all its parsers for normal documents."""
        parser_bytes = max(map(resident_bytes, children_of(self.worker())))
        return resident_bytes(self.worker()) + PARSERS * parser_bytes

    async def bring(self, account: int, cases: dict[str, Case], authority: trustme.CA) -> None:
        """Let one user submit URLs in sequence."""
        async with self.product.chat(account) as person:
            await person.say("help")
            for name, case in cases.items():
                tls = case.tls(authority) if case.tls else None
                async with raw_publisher(case.make(), tls=tls) as publisher:
                    self.outcomes[name] = await ask(person, case, publisher, name)

    async def follow(self, account: int, publisher: SamplePublisher) -> None:
        """Let one user follow a normal channel until cancelled."""
        await publisher.publish("Before")
        async with self.product.chat(account) as person:
            await person.say(f"subscribe {publisher.feed_url()}")
            for number in count():
                title = tagged(0, number)
                published = await publisher.publish(title)
                heard = await person.wait_for(partial(tells, title), ANSWER_WITHIN_S)
                self.healthy_delays_s.append(heard.at_s - published.published_s)

    async def watch_memory(self) -> None:
        """Sample the worker and its children until cancelled."""
        while True:
            now_bytes = sum(map(resident_bytes, (self.worker(), *children_of(self.worker()))))
            self.most_bytes = max(self.most_bytes, now_bytes)
            await asyncio.sleep(0.02)


def tells(title: str, message: Received) -> bool:
    return title in message.body


async def ask(person: ChatClient, case: Case, publisher: RawPublisher, name: str) -> Outcome:
    """Send the URL, answer "yes" if the case has a second answer, and unsubscribe."""
    seen, took_s = len(person.unique), []
    url = case.url.format(port=publisher.port, unique=hashlib.sha256(name.encode()).hexdigest()[:8])
    for words in (f"subscribe {url}", *(["yes"] if case.then else [])):
        started_s = time.monotonic()
        with contextlib.suppress(TimeoutError):
            await person.say(words, ANSWER_WITHIN_S)
        took_s.append(time.monotonic() - started_s)
    requests = list(publisher.requests)
    leaving = await leave(person)
    told = [message.body for message in person.unique[seen:]]
    return Outcome([words for words in told if words not in leaving], max(took_s), requests)


async def leave(person: ChatClient) -> list[str]:
    """End all subscriptions; return the answer."""
    return [await person.say(words) for words in ("unsubscribe all", "yes")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def afternoon(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Afternoon]:
    directory = tmp_path_factory.mktemp("afternoon")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(directory / "ca.pem"))
        options = ("--workers", "1", "--poll-interval", str(POLL_INTERVAL_S))
        async with running(directory / "up", *options) as product, SamplePublisher(directory) as publisher:
            being = Afternoon(product, product.ready["processes"])
            meanwhile = [asyncio.create_task(being.follow(len(PEOPLE), publisher))]
            await until_so(lambda: being.healthy_delays_s, "the healthy channel's first news was delivered")
            being.usual_bytes = being.needed_bytes()
            meanwhile.append(asyncio.create_task(being.watch_memory()))
            try:
                async with asyncio.TaskGroup() as people:
                    for account, cases in enumerate(PEOPLE):
                        people.create_task(being.bring(account, cases, authority))
                delivered = len(being.healthy_delays_s)
                await until_so(
                    lambda: len(being.healthy_delays_s) > delivered + 1 or any(task.done() for task in meanwhile),
                    "the next channel is unaffected",
                )
                for task in meanwhile:
                    assert not task.done(), task
            finally:
                for task in meanwhile:
                    task.cancel()
                await asyncio.gather(*meanwhile, return_exceptions=True)
            yield being


@pytest.mark.parametrize("what", EVERYTHING)
async def test_a_bad_url_gets_one_correct_answer(afternoon: Afternoon, what: str) -> None:
    case, outcome = EVERYTHING[what], afternoon.outcomes[what]
    expected = [case.told, *([case.then] if case.then else [])]
    assert len(outcome.told) == len(expected), outcome.told
    for words, pattern in zip(outcome.told, expected, strict=True):
        assert re.search(pattern, words), words
        assert len(words) < LONGEST_ANSWER_CHARS
    assert outcome.longest_s <= ANSWER_WITHIN_S


async def test_other_channels_are_unaffected(afternoon: Afternoon) -> None:
    assert max(afternoon.healthy_delays_s) <= ANSWER_WITHIN_S


async def test_memory_is_bounded(afternoon: Afternoon) -> None:
    grown_bytes = afternoon.most_bytes - afternoon.usual_bytes
    slowest = sorted(afternoon.outcomes, key=lambda name: afternoon.outcomes[name].longest_s)[-5:]
    print(f"memory +{grown_bytes / 1e6:.0f} MB; healthy news after {max(afternoon.healthy_delays_s):.1f} s at most")  # noqa: T201 - the figures
    print("; ".join(f"{name}: {afternoon.outcomes[name].longest_s:.1f} s" for name in slowest))  # noqa: T201 - the figures
    assert grown_bytes <= MOST_MEMORY_BYTES


async def test_no_process_died_and_no_child_is_left(afternoon: Afternoon) -> None:
    assert afternoon.product.ready["processes"] == afternoon.before
    await until_so(lambda: len(children_of(afternoon.worker())) <= PARSERS, "only the pools' children are left")


async def test_a_line_break_does_not_reach_the_publisher(afternoon: Afternoon) -> None:
    heads = "".join(afternoon.outcomes["a line of its own"].requests)
    assert "X-Injected" not in heads


async def test_external_entities_are_not_read(afternoon: Afternoon, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("Open sesame")
    body = b""

    async def answer(_head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(ok(body, "Content-Type: text/xml"))
        await writer.drain()

    async with raw_publisher(answer) as publisher, afternoon.product.chat(0) as person:
        body = (
            f'<!DOCTYPE rss SYSTEM "{publisher.url("/dtd")}" [<!ENTITY file SYSTEM "{secret.as_uri()}">'
            f'<!ENTITY web SYSTEM "{publisher.url("/entity")}"><!ENTITY % all SYSTEM "{publisher.url("/all")}">%all;]>'
            "<rss><channel><title>T &file; &web;</title><item><title>x &file; &web;</title></item></channel></rss>"
        ).encode()
        assert re.search(SUBSCRIBED, await person.say(publisher.url("/entities")))
        assert "Open sesame" not in await person.say("list") + await person.say("show #1")
        assert {head.split()[1] for head in publisher.requests} == {"/entities"}
        await leave(person)


@contextlib.asynccontextmanager
async def watched_page(afternoon: Afternoon, lines: list[str]) -> AsyncIterator[tuple[RawPublisher, ChatClient]]:
    """Let a user monitor a page with a clock and these lines, which tests can change."""

    async def answer(_head: str, writer: asyncio.StreamWriter) -> None:
        shown = "".join(f"<p>{line}</p>" for line in (f"Your request was number {time.time_ns()}", *lines))
        writer.write(ok(f"<!doctype html><title>A page</title>{shown}".encode(), "Content-Type: text/html"))
        await writer.drain()

    async with raw_publisher(answer) as publisher, afternoon.product.chat(0) as person:
        assert OFFERED in await person.say(publisher.url("/page"))
        assert PAGE_SUBSCRIBED in await person.say("yes")
        await several_looks(publisher)
        assert not person.notifications
        yield publisher, person
        await leave(person)


async def several_looks(publisher: RawPublisher) -> None:
    before = len(publisher.requests)
    await until_so(lambda: len(publisher.requests) > before + 3, "the page was looked at several times")


async def test_a_clock_on_a_page_triggers_and_hides_no_notification(afternoon: Afternoon) -> None:
    lines = [f"This is what paragraph {number} says." for number in range(20)]
    async with watched_page(afternoon, lines) as (publisher, person):
        lines[7] = "This is news."
        await person.wait_for(partial(tells, "This is news."))
        await several_looks(publisher)
        assert len(person.notifications) == 1


async def test_a_complete_rewrite_of_a_long_page_is_one_notification(afternoon: Afternoon) -> None:
    lines = [f"{number} green bottles" for number in range(20_000)]
    async with watched_page(afternoon, lines) as (publisher, person):
        lines[:] = [f"line {number} of something else" for number in range(20_000)]
        await person.wait_for(partial(tells, "Rewritten: 20,0"))
        await several_looks(publisher)
        assert len(person.notifications) == 1
