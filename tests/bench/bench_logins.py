"""Effect of many failed logins on other users of the console.

Run it alone on the machine: ``python -m tests.bench.bench_logins``. One user requests the settings page and the API in
sequence, first alone, then while fifty clients, each with its own address and account name, try wrong passwords
repeatedly. Prints JSON: median and p95 of milliseconds per request, and their ratios.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
from aiohttp.test_utils import unused_port
from yarl import URL

from service.console.auth.authentication import FORM_COOKIE, SESSION_COOKIE
from service.console.auth.csrf import csrf_token
from service.console.auth.passwords import Passwords
from service.embedded.private_redis import PrivateRedis
from service.settings import Settings
from service.store import Store, open_store
from service.store.console.accounts import Account
from tests.support.waiting import until

_GUESSERS = 50
_SECONDS = 6.0
_NOWHERE = asyncio.subprocess.DEVNULL
_PATHS = ("/settings", "/api/v1/nodes")


async def measure() -> dict[str, object]:
    """Return the figures."""
    with tempfile.TemporaryDirectory() as directory:
        async with PrivateRedis(Path(directory)) as redis:
            store = open_store(Settings(redis_url=redis.url))
            try:
                return await _measure_with_console(store, redis.url)
            finally:
                await store.close()


async def _measure_with_console(store: Store, redis_url: str) -> dict[str, object]:
    account = Account(await Passwords().hash("correct horse battery"), 0.0)
    await store.accounts.change("ada", account, {})
    port = unused_port()
    environment = {**os.environ, "CORONET_REDIS_URL": redis_url, "CORONET_CONSOLE_PORT": str(port)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "service.cli", "console", env=environment, stdout=_NOWHERE, stderr=_NOWHERE
    )
    url = f"http://127.0.0.1:{port}"
    try:
        jar = aiohttp.CookieJar(unsafe=True)
        jar.update_cookies({SESSION_COOKIE: await store.sessions.open("ada", account)}, URL(url))
        async with aiohttp.ClientSession(url, cookie_jar=jar) as reader:
            await until(lambda: _is_available(reader), "the console answers")
            await _read_pages(reader, 1.0)
            alone_ms = await _read_pages(reader, _SECONDS)
            answered: dict[int, int] = {}
            guessers = [asyncio.create_task(_guess_passwords(url, number, answered)) for number in range(_GUESSERS)]
            crowded_ms = await _read_pages(reader, _SECONDS)
            for guesser in guessers:
                guesser.cancel()
            await asyncio.gather(*guessers, return_exceptions=True)
    finally:
        process.terminate()
        await process.wait()
    alone, crowded = _summary(alone_ms), _summary(crowded_ms)
    slower = {each: round(crowded[each] / alone[each], 2) for each in ("median", "p95")}
    return {"alone_ms": alone, "crowded_ms": crowded, "logins_answered": answered, "slower": slower}


async def _is_available(http: aiohttp.ClientSession) -> bool:
    try:
        async with http.get("/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def _read_pages(http: aiohttp.ClientSession, for_s: float) -> list[float]:
    took_ms = []
    ends = time.monotonic() + for_s
    while time.monotonic() < ends:
        for path in _PATHS:
            began = time.monotonic()
            async with http.get(path) as answer:
                await answer.read()
                assert answer.status == 200
            took_ms.append((time.monotonic() - began) * 1000)
            await asyncio.sleep(0.01)
    return took_ms


async def _guess_passwords(url: str, number: int, answered: dict[int, int]) -> None:
    """Try passwords from a separate loopback address (127.0.0.0/8)."""
    connector = aiohttp.TCPConnector(local_addr=(f"127.0.1.{number + 1}", 0))
    jar = aiohttp.CookieJar(unsafe=True)
    jar.update_cookies({FORM_COOKIE: "a"}, URL(url))
    form = {"csrf": csrf_token("a"), "name": f"guessed-{number}", "password": "wrong"}
    async with aiohttp.ClientSession(url, connector=connector, cookie_jar=jar) as http:
        while True:
            async with http.post("/login", data=form, headers={"Origin": url}) as answer:
                answered[answer.status] = answered.get(answer.status, 0) + 1
                if answer.status == 429:
                    await asyncio.sleep(0.5)


def _summary(took_ms: Sequence[float]) -> dict[str, float]:
    ranked = sorted(took_ms)
    return {
        "requests": len(ranked),
        "median": round(statistics.median(ranked), 2),
        "p95": round(ranked[int(0.95 * len(ranked))], 2),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(measure()), indent=2) + "\n")
