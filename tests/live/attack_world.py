"""The publishers of ``tests.live.attacks``, as programs in its network namespace; each ends with its standard input.

``honest JOURNAL``: the name server, and six feeds that get entries in turn. The entries of three feeds are pushed by
their hubs and listed five seconds later; the others have no hub. Publications are recorded in the journal.
``pushes BODY``: four feeds of one site whose hub pushes the content of a file with small variations.
``slow-sites BODY MODE``: 24 hosts with three feeds each that send this content just fast enough, or slowly.
``lag URL JOURNAL``: requests the worker's liveness repeatedly and records the response times.
The attackers begin when they read a line.
"""

import asyncio
import contextlib
import hashlib
import hmac
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TextIO

import aiohttp
from aiohttp import web

from tests.support.internet import NameServer, Zone

POLLED = {f"polled{number}.example": f"93.184.{10 + number}.10" for number in range(3)}
PUSHED = {f"pushed{number}.example": f"93.184.{20 + number}.10" for number in range(3)}
HONEST = POLLED | PUSHED
EVIL = {f"feed{number}.evil.example": "45.33.32.10" for number in range(4)}
SUBDOMAINS = {f"host{number}.slow.example": "45.33.33.10" for number in range(24)}
ONE_NETWORK = {f"slow{number}.example": f"45.33.34.{10 + number}" for number in range(24)}
SLOW_SITES = {"subdomains": SUBDOMAINS, "network": ONE_NETWORK}
FEEDS_PER_HOST = 3
ZONE: Zone = {host: [[address]] for host, address in (HONEST | EVIL | SUBDOMAINS | ONE_NETWORK).items()}

PUBLISHED_EVERY_S = 0.36
"""By each hub, that is 28 times a minute: it may push 30 times."""
PUSHES_AT_ONCE = 20
"""Of each feed; four times as many are 80."""
PUSHES_PER_MINUTE = 30
_LISTED_AFTER_S = 5.0
_LISTED = 30
_JUST_PROMPT_S = 1.9
_TRICKLES_FOR_S = 28.0
_TRICKLES = 40
_LAG_EVERY_S = 0.02

_FEED = """<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>{title}</title>{hub}
<atom:link rel="self" href="http://{title}/feed"/>{items}</channel></rss>"""
_ITEM = "<item><guid>{name}</guid><title>{name}</title><link>http://example.com/{name}</link></item>"


class Hub:
    """A hub that accepts and verifies every subscription, and pushes documents."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.subscribed: dict[str, tuple[str, str]] = {}
        self._http = http
        self._verifying: set[asyncio.Task[None]] = set()

    async def ask(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        task = asyncio.create_task(self._verify(form))
        self._verifying.add(task)
        task.add_done_callback(self._verifying.discard)
        return web.Response(status=202)

    async def _verify(self, form: Mapping[str, str]) -> None:
        topic, callback = form["hub.topic"], form["hub.callback"]
        query = {"hub.mode": form["hub.mode"], "hub.topic": topic, "hub.challenge": "x", "hub.lease_seconds": "9999"}
        async with self._http.get(callback, params=query) as answer:
            if answer.ok:
                self.subscribed[topic] = callback, form["hub.secret"]

    async def push(self, topic: str, body: bytes) -> int:
        """Push a document if the topic has a subscriber; return the status of the response, or 0."""
        if topic not in self.subscribed:
            return 0
        callback, secret = self.subscribed[topic]
        signature = await asyncio.to_thread(lambda: hmac.new(secret.encode(), body, hashlib.sha256).hexdigest())
        headers = {"X-Hub-Signature": f"sha256={signature}", "Content-Type": "application/rss+xml"}
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self._http.post(callback, data=body, headers=headers) as answer:
                return answer.status
        return 0


def document(host: str, *names: str) -> bytes:
    """Return a feed with these entries; it names the hub of its host."""
    hub = "" if host in POLLED else f'<atom:link rel="hub" href="http://{host}/hub"/>'
    return _FEED.format(title=host, hub=hub, items="".join(_ITEM.format(name=name) for name in names)).encode()


@contextlib.asynccontextmanager
async def serve(addresses: set[str], *routes: web.RouteDef) -> AsyncIterator[None]:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        for address in addresses:
            await web.TCPSite(runner, address, 80, backlog=1000).start()
        yield
    finally:
        await runner.cleanup()


async def publish_honestly(journal: str) -> None:
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: NameServer(ZONE), ("127.0.0.1", 53))
    published = {host: [(0.0, "the-first")] for host in HONEST}
    hosts = [host for pair in zip(POLLED, PUSHED, strict=True) for host in pair]

    async def feed(request: web.Request) -> web.Response:
        listed_s = time.time() - (_LISTED_AFTER_S if request.host in PUSHED else 0.0)
        names = [name for at_s, name in published[request.host] if at_s <= listed_s]
        return web.Response(body=document(request.host, *reversed(names[-_LISTED:])), content_type="text/xml")

    lines = open_journal(journal)
    async with aiohttp.ClientSession() as http:
        hub = Hub(http)
        async with serve(set(HONEST.values()), web.get("/feed", feed), web.post("/hub", hub.ask)):
            print_ready()
            await read_line()
            pushing = set()
            for number in itertools.count():
                await asyncio.sleep(PUBLISHED_EVERY_S)
                host, name, at_s = hosts[number % len(hosts)], f"n{number}", time.time()
                published[host].append((at_s, name))
                lines.write(json.dumps([host, name, at_s]) + "\n")
                if host in PUSHED:
                    task = asyncio.create_task(hub.push(f"http://{host}/feed", document(host, name)))
                    pushing.add(task)
                    task.add_done_callback(pushing.discard)


async def push_repeatedly(body: str, journal: str) -> None:
    """Push 80 documents at once, and then as many per minute as are accepted."""
    costly, numbers = Path(body).read_bytes(), itertools.count()
    answers: dict[int, int] = {}

    async def feed(request: web.Request) -> web.Response:
        return web.Response(body=document(request.host, "the-first"), content_type="text/xml")

    async def attack(hub: Hub, host: str) -> None:
        async def one() -> None:
            number = next(numbers)
            # Every other one without what makes it large: by its size it cannot be told from others.
            body = vary(costly if number % 2 else costly.rstrip(), number)
            status = await hub.push(f"http://{host}/feed", body)
            answers[status] = answers.get(status, 0) + 1
            Path(journal).write_text(json.dumps(answers), encoding="utf-8")

        await asyncio.gather(*(one() for _ in range(PUSHES_AT_ONCE)))
        while True:
            await asyncio.sleep(60 / PUSHES_PER_MINUTE)
            await one()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        hub = Hub(http)
        async with serve(set(EVIL.values()), web.get("/feed", feed), web.post("/hub", hub.ask)):
            print_ready()
            await read_line()
            await asyncio.gather(*(attack(hub, host) for host in EVIL))


async def serve_slowly(body: str, mode: str) -> None:
    costly, numbers = Path(body).read_bytes(), itertools.count()
    attacking = asyncio.Event()

    async def feed(request: web.Request) -> web.StreamResponse:
        number = next(numbers)
        if not attacking.is_set():
            return web.Response(body=document(request.host, "the-first"), content_type="text/xml")
        whole = vary(costly, number)
        if number % 3 == 0:
            return web.Response(body=whole, content_type="text/xml")
        return await send_slowly(request, whole, _JUST_PROMPT_S if number % 3 == 1 else _TRICKLES_FOR_S)

    async with serve(set(SLOW_SITES[mode].values()), web.get("/feed{number}", feed)):
        print_ready()
        await read_line()
        attacking.set()
        await asyncio.Event().wait()


async def send_slowly(request: web.Request, body: bytes, for_s: float) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/xml"})
    await response.prepare(request)
    part = len(body) // _TRICKLES + 1
    for start in range(0, len(body), part):
        await response.write(body[start : start + part])
        await asyncio.sleep(for_s / _TRICKLES)
    return response


async def record_lag(url: str, journal: str) -> None:
    lines = open_journal(journal)
    async with aiohttp.ClientSession() as http:
        print_ready()
        while True:
            due_s = time.monotonic() + _LAG_EVERY_S
            await asyncio.sleep(_LAG_EVERY_S)
            asked_s = time.monotonic()
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(f"{url}/livez") as answer:
                    await answer.read()
                lines.write(json.dumps([time.time(), time.monotonic() - asked_s, asked_s - due_s]) + "\n")


def vary(body: bytes, number: int) -> bytes:
    """Return the body with insignificant bytes that depend on ``number``."""
    return body + b"<!-- %d -->" % number


def open_journal(journal: str) -> TextIO:
    """Open a file of lines until this program ends."""
    return Path(journal).open("a", buffering=1, encoding="utf-8")


def print_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


async def read_line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


PROGRAMS: Mapping[str, Callable[..., Awaitable[None]]] = {
    "honest": publish_honestly,
    "pushes": push_repeatedly,
    "slow-sites": serve_slowly,
    "lag": record_lag,
}

if __name__ == "__main__":
    asyncio.run(PROGRAMS[sys.argv[1]](*sys.argv[2:]))  # type: ignore[arg-type]  # they are coroutines
