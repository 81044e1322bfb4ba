"""Reading elsewhere, with real servers: a webhook that fails for a minute, and feeds at secret addresses."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from service.embedded.sample_publisher import SamplePublisher
from tests.support.product_process import Product, running
from tests.support.waiting import until_so
from tests.support.webhook_receiver import receiving

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Product]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CORONET_CONSOLE_PUBLIC_URL", "https://coronet.example")
        async with running(tmp_path_factory.mktemp("up"), "--workers", "1", "--poll-interval", "1") as started:
            yield started


@pytest_asyncio.fixture(loop_scope="module")
async def publisher(tmp_path: Path) -> AsyncIterator[SamplePublisher]:
    async with SamplePublisher(tmp_path) as serving:
        yield serving


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fails_for_s", [10.0, pytest.param(60.0, marks=pytest.mark.storms)])
async def test_a_webhook_that_fails_for_a_while_gets_everything_in_order(
    product: Product, publisher: SamplePublisher, fails_for_s: float
) -> None:
    """Chat is not delayed meanwhile, and the bot is killed once."""
    await publisher.publish("Before")
    async with product.chat(0) as alice, receiving() as hook:
        await alice.say(publisher.feed_url())
        hook.secret = (await alice.say(f"webhook {hook.url}")).split()[-1]
        await publisher.publish("News 0")
        await until_so(lambda: hook.titles == ["News 0"], "the first entry is posted")
        hook.status = 503
        for number in (1, 2, 3):
            await publisher.publish(f"News {number}")
        await alice.wait_for(lambda message: "News 3" in message.body)
        await until_so(lambda: len(hook.refused) > 1, "requests fail and are repeated")
        await product.kill("bot")
        await asyncio.sleep(fails_for_s)
        assert hook.titles == ["News 0"]
        hook.status = 200
        await until_so(lambda: len(hook.titles) >= 4, "the rest is posted", within_s=150)
        assert hook.titles == ["News 0", "News 1", "News 2", "News 3"]
        assert set(hook.refused) == {hook.accepted[1][0]}, "the first request is repeated, under its id"
        assert "I post everything" in await alice.say("webhook")
        await alice.say("webhook off")
        await alice.say("unsubscribe all")
        await alice.say("yes")


async def test_a_feed_at_a_secret_address_follows_the_subscriptions_until_it_is_revoked(
    product: Product, publisher: SamplePublisher
) -> None:
    await publisher.publish("Before", 1)
    async with product.chat(1) as bob, aiohttp.ClientSession() as session:
        await bob.say(publisher.feed_url(1))
        shown = re.search(r"https://coronet\.example(/feeds/\S+)", await bob.say("atom"))
        assert shown is not None
        url = product.ready["console_url"].rstrip("/") + shown[1]

        async def read(etag: str = "") -> tuple[int, str, str]:
            async with session.get(url, headers={"If-None-Match": etag} if etag else {}) as answer:
                return answer.status, await answer.text(), answer.headers.get("ETag", "")

        status, text, etag = await read()
        assert status == 200
        assert "Before" in text
        assert (await read(etag))[0] == 304
        await publisher.publish("After", 1)
        await bob.wait_for(lambda message: "After" in message.body)
        status, text, _ = await read(etag)
        assert status == 200
        assert text.index("After") < text.index("Before")
        await bob.say("atom off")
        assert (await read())[0] == 404
