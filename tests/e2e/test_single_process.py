"""The whole product with worker, bot and console in one process."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from service.console.queries.metrics_statistics import parse_metrics
from service.embedded.sample_publisher import SamplePublisher
from tests.support.product_process import Product, running
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Product]:
    options = ("--small", "--no-sample-feeds", "--poll-interval", "1")
    async with running(tmp_path_factory.mktemp("small"), *options) as started:
        yield started


async def test_one_process_replies_delivers_and_serves_the_metrics_of_all_programs(
    product: Product, tmp_path: Path
) -> None:
    assert len(set(product.pids("workers", "bot", "console"))) == 1
    async with SamplePublisher(tmp_path) as publisher, product.chat(0) as alice:
        await publisher.publish("Before")
        assert "Before" in await alice.say(publisher.feed_url())
        await publisher.publish("Breaking news")
        await alice.wait_for(lambda message: "Breaking news" in message.body)
    async with product.store() as store:
        (node,) = await store.ring.nodes()
        assert await store.bot_endpoints.metrics_urls() == [node.metrics_url]
    for url in (node.metrics_url, f"{product.ready['console_url']}/metrics"):
        async with aiohttp.request("GET", url) as response:
            metrics = parse_metrics(await response.text())
        assert metrics['coronet_polls_total{outcome="new"}'] >= 1
        assert metrics["coronet_messages_total"] >= 1


async def test_the_console_is_not_ready_while_the_bot_is_not(product: Product) -> None:
    ready = f"{product.ready['console_url']}/readyz"
    async with aiohttp.ClientSession() as http:

        async def status() -> int:
            async with http.get(ready) as response:
                return response.status

        async def is_refused() -> bool:
            return await status() == 503

        async def is_ready() -> bool:
            return await status() == 200

        assert await is_ready()
        killing = asyncio.create_task(product.kill("prosody"))
        await until(is_refused, "the process is not ready without an XMPP server")
        await killing
        await until(is_ready, "the process is ready again")


async def test_the_process_fails_if_one_program_cannot_run(product: Product, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "service.cli", "serve"),
            env={
                "CORONET_REDIS_URL": product.ready["redis_url"],
                "CORONET_XMPP_HOST": "127.0.0.1",
                "CORONET_XMPP_PORT": "1",
                "CORONET_CONSOLE_PORT": str(occupied.getsockname()[1]),
            },
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 1, output
    assert b'"event": "program ended unexpectedly"' in output
    assert b"coronet: The console ended unexpectedly: " in output
