"""A Redis that comes back without its data: the real programs stop until the operator accepts it."""

import asyncio
import shutil
import sys
from pathlib import Path

import aiohttp
import msgspec
import pytest

from tests.support.bot_in_process import reach
from tests.support.product_process import Product, running
from tests.support.waiting import until, until_so

pytestmark = pytest.mark.faults

_OPTIONS = ("--workers", "1")
_REFUSED = "The store is empty, although"


async def _command(product: Product, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "service.cli", words[0], "--state", str(product.directory), *words[1:]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return said.decode()


async def _readiness(product: Product) -> dict[str, tuple[int, str]]:
    """Return the response of each program to /readyz."""
    ports = msgspec.json.decode((product.directory / "ports.json").read_bytes(), type=dict[str, int])
    found = {}
    async with aiohttp.ClientSession() as http:
        for name in ("worker-1", "bot-1", "console"):
            try:
                async with http.get(f"http://127.0.0.1:{ports[name]}/readyz") as answer:
                    found[name] = (answer.status, await answer.text())
            except aiohttp.ClientError as error:
                found[name] = (0, str(error))
    return found


async def _all_refuse(product: Product) -> bool:
    found = await _readiness(product)
    return all(status == 503 and _REFUSED in text for status, text in found.values())


async def _all_are_ready(product: Product) -> bool:
    return all(status == 200 for status, _ in (await _readiness(product)).values())


async def _a_worker_has_joined(product: Product) -> bool:
    async with product.store() as store:
        return bool(await store.ring.nodes())


async def _store_is_known(product: Product) -> bool:
    file = product.directory / "store-identity.json"
    return file.exists() and bool(msgspec.json.decode(file.read_bytes()).get("counter"))


@pytest.mark.timeout(120)
async def test_an_emptied_store_is_refused_until_the_operator_accepts_it(tmp_path: Path) -> None:
    async with running(tmp_path, *_OPTIONS) as product:
        feed, data = product.ready["sample_feed_url"], product.directory / "redis" / "appendonlydir"
        async with product.chat(0) as alice:
            await alice.say(feed)
            assert feed in await alice.say("list")
            await until(lambda: _store_is_known(product), "the store is known to be in use")
            shutil.rmtree(data)
            await product.kill("redis")
            assert "database is unavailable" in await alice.say("list")
            await until(lambda: _all_refuse(product), "every program refuses the store")
            assert _REFUSED in await _command(product, "doctor")
            await product.stop()
            shutil.rmtree(data)  # and with it the mark that programs left there
            await product.start()
            assert await _all_refuse(product)
            await until_so(lambda: _REFUSED in (tmp_path / "up.log").read_text(), "who starts it is told")
            assert "accepted" in await _command(product, "admin", "accept-store")
            await until(lambda: _all_are_ready(product), "every program goes on")
            await until(lambda: _a_worker_has_joined(product), "a worker has joined the ring again")
            await reach(alice)
            assert "Subscribed to" in await alice.say(feed)
        assert not any("no subscriptions" in message.body for message in alice.received[:-2])
        for name in ("worker-1", "bot-1", "console"):
            log = (tmp_path / "logs" / f"{name}.log").read_text()
            assert 1 <= log.count("store rejected, identity mismatch") <= 2, "once for each of two refusals"
            assert log.count(_REFUSED) < 12, "other parts are not loud about it"
            assert log.count("store identity verified, work resumed") == 1
            assert "Traceback" not in log
