"""Watched pages: changed lines are detected, and lines that change all the time are ignored."""

import asyncio
import itertools
import re
import time

import pytest

from service.errors import BadUrl
from service.feeds.canonical_urls import page_url
from service.model import Change, ChannelId
from service.store import Store
from service.users.numeric_conditions import NumericCondition, is_met
from tests.integration.workers.conftest import StartWorker
from tests.support.channels import count_channels
from tests.support.raw_http import ok, raw_publisher
from tests.support.waiting import until

PRICES = ["Apples 1.20", "Pears 2.10", "Plums 3.40"]


class Shop:
    """A page of prices with a clock and a counter on it."""

    def __init__(self) -> None:
        self.prices = list(PRICES)
        self._visits = itertools.count(1)

    async def answer(self, _head: str, writer: asyncio.StreamWriter) -> None:
        rows = "".join(f"<li>{price}</li>" for price in self.prices)
        visit = next(self._visits)
        page = f"<title>Shop</title><h1>Prices</h1><p>Visitor {visit}</p><ul id=prices>{rows}</ul><p>12:00:{visit}</p>"
        writer.write(ok(page.encode(), "Content-Type: text/html"))
        await writer.drain()


async def changes(store: Store, cid: ChannelId, version: int) -> list[Change]:
    async def versioned() -> bool:
        channel = await store.channels.get(cid)
        return channel is not None and channel.version >= version

    await until(versioned, "the change is found", within_s=20)
    delta = await store.channels.delta(cid, version)
    assert delta is not None
    return list(delta.changes)


async def one_worker(store: Store, start_worker: StartWorker) -> None:
    await start_worker()

    async def there() -> bool:
        return len(await store.ring.nodes()) == 1

    await until(there, "a node in the ring")


@pytest.mark.parametrize("selector", ["", "#prices"])
async def test_a_changed_line_is_detected_and_a_clock_is_ignored(
    store: Store, start_worker: StartWorker, selector: str
) -> None:
    await one_worker(store, start_worker)
    shop = Shop()
    async with raw_publisher(shop.answer) as publisher:
        probed = await store.worker_requests.probe(page_url(publisher.url("/"), selector), as_page=True)
        assert probed.channel is not None
        assert (probed.channel.kind, probed.channel.title) == ("page", "Shop")
        await store.subscriptions.subscribe("alice@example.org", probed.channel.id)
        asked = len(publisher.requests)

        async def polled_twice_more() -> bool:
            return len(publisher.requests) >= asked + 2

        await until(polled_twice_more, "polls that find only the clock", within_s=20)
        shop.prices[1] = "Pears 1.90"
        (change,) = await changes(store, probed.channel.id, 2)
        assert (change.kind, change.before, change.entry.summary) == ("replacement", "Pears 2.10", "Pears 1.90")
        assert change.line == (2 if selector else 4)


@pytest.mark.parametrize("selector", ["#nowhere", "li::[", "xpath=//h7", "json=$.a"])
async def test_a_selector_without_a_match_is_an_error_and_creates_nothing(
    store: Store, start_worker: StartWorker, selector: str
) -> None:
    """The user chose the selector, so it is not an error of the publisher."""
    await one_worker(store, start_worker)
    async with raw_publisher(Shop().answer) as publisher:
        with pytest.raises(BadUrl, match=re.escape(selector)):
            await store.worker_requests.probe(page_url(publisher.url("/"), selector), as_page=True)
    assert await count_channels(store) == 0


class Api:
    """A web API that serves a list of prices as JSON and as XML."""

    def __init__(self) -> None:
        self.price = "25.00"

    async def answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        if " /json" in head:
            body = f'{{"served": {time.time()}, "items": [{{"name": "Pears", "price": "{self.price}"}}]}}'
            writer.write(ok(body.encode(), "Content-Type: application/json"))
        else:
            body = f'<list xmlns="urn:x" at="{time.time()}"><item><price>{self.price}</price></item></list>'
            writer.write(ok(body.encode(), "Content-Type: application/xml"))
        await writer.drain()


@pytest.mark.parametrize(
    ("path", "selector"),
    [("/json", "json=$.items[*].price"), ("/json", "json=$..price"), ("/xml", "xpath=//item/price/text()")],
)
async def test_a_value_in_json_or_xml_is_watched_and_the_rest_is_ignored(
    store: Store, start_worker: StartWorker, path: str, selector: str
) -> None:
    await one_worker(store, start_worker)
    api = Api()
    async with raw_publisher(api.answer) as publisher:
        probed = await store.worker_requests.probe(page_url(publisher.url(path), selector), as_page=True)
        assert probed.channel is not None
        assert probed.channel.kind == "page"
        assert [entry.summary for entry in probed.latest] == ["25.00"]
        await store.subscriptions.subscribe("alice@example.org", probed.channel.id)
        api.price = "19.00"
        (change,) = await changes(store, probed.channel.id, 2)
        assert (change.kind, change.before, change.entry.summary) == ("replacement", "25.00", "19.00")
        assert is_met(NumericCondition("<", 20.0), change)
        assert not is_met(NumericCondition(">", 20.0), change)
