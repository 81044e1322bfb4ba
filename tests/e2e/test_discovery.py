"""Search and saved searches with real servers: only channels with several subscribers are found by others."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from service.embedded.sample_publisher import SamplePublisher
from service.feeds.canonical_urls import channel_id
from tests.support.product_process import Product, running
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Product]:
    async with running(tmp_path_factory.mktemp("up"), "--workers", "2", "--poll-interval", "3") as started:
        yield started


async def test_a_stranger_finds_and_watches_only_public_channels(product: Product, tmp_path: Path) -> None:
    async with SamplePublisher(tmp_path) as publisher, product.chat(0) as alice, product.chat(1) as bob:
        await publisher.publish("Before", 1)
        await publisher.publish("Before", 2)
        ours, hidden = publisher.feed_url(1), f"{publisher.feed_url(2)}?token=abc"
        for url in (ours, hidden):
            assert "Subscribed" in await alice.say(url)
        assert "Saved as search" in await bob.say('watch "breaking news"')
        await publisher.publish("Breaking news of one", 1)
        await alice.wait_for(lambda message: "Breaking news of one" in message.body)
        assert "Nothing matches" in await bob.say("find host=127.0.0.1")

        async with product.store() as store:
            for url in (ours, hidden):
                for number in range(4):
                    await store.subscriptions.subscribe(f"reader{number}@nowhere.invalid", channel_id(url))

        async def found() -> bool:
            return ours.partition("://")[2] in await bob.say("find host=127.0.0.1 type=feed")

        await until(found, "what five people follow is found", within_s=30)
        answer = await bob.say("find host=127.0.0.1")
        assert "token" not in answer
        assert "2." not in answer, "what is not public is not counted either"
        await publisher.publish("Breaking news again", 1)
        await publisher.publish("Breaking news in secret", 2)
        await bob.wait_for(lambda message: "Breaking news again" in message.body)
        for title in ("Breaking news again", "Breaking news in secret"):
            await alice.wait_for(lambda message, title=title: title in message.body)  # type: ignore[misc]  # a default
        await bob.say("find host=127.0.0.1")
        assert "Subscribed" in await bob.say("1")
        told = "\n".join(message.body for message in bob.received if not message.thread)
        assert "in secret" not in told
        assert "news of one" not in told
        assert told.count("Breaking news again") == 1
