"""Pushed entries end to end: hub, console, owner, outbox."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from service.host_process import serve_programs
from service.settings import Settings
from service.store import Store
from tests.integration.workers.test_worker_fleet import all_delivered, subscribed
from tests.support.console import console
from tests.support.waiting import until, until_so
from tests.support.websub_hub import Hub
from workers.main import WorkerProgram

FEED = """<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>Cats</title>
<atom:link rel="hub" href="{hub}"/><atom:link rel="self" href="{topic}"/>{items}</channel></rss>"""
ITEM = "<item><guid>{name}</guid><title>{name}</title></item>"


@dataclass
class Publisher:
    """A publisher with a hub; once ``down``, only the hub has its new entries."""

    hub: Hub
    url: str = ""
    names: list[str] = field(default_factory=list)
    down: bool = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/feed", self._feed)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/feed"
            yield
        finally:
            await runner.cleanup()

    def document(self, *names: str) -> str:
        return FEED.format(hub=self.hub.url, topic=self.url, items="".join(ITEM.format(name=name) for name in names))

    async def _feed(self, _: web.Request) -> web.Response:
        if self.down:
            return web.Response(status=503)
        return web.Response(text=self.document(*self.names), content_type="application/rss+xml")


@asynccontextmanager
async def _worker(settings: Settings, public_url: str) -> AsyncIterator[None]:
    own_settings = settings.model_copy(update={"console_public_url": public_url})
    task = asyncio.create_task(serve_programs(own_settings, [WorkerProgram]))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_entries_that_only_the_hub_has_are_sent_once(store: Store, settings: Settings) -> None:
    hub = Hub()
    publisher = Publisher(hub, names=["first"])
    async with hub.open(), publisher.open(), console(store) as (url, _), _worker(settings, url):
        await until(store.ring.nodes, "a node in the ring")
        await subscribed(store, publisher.url)
        publisher.names.insert(0, "second")
        assert await all_delivered(store, ["second"]) == ["second"]
        await until_so(lambda: hub.subscribed, "a subscription at the hub")
        publisher.down = True
        for _ in range(2):
            assert await hub.push(publisher.document("third").encode()) == [202]
        assert await hub.push(publisher.document("lies").encode(), secret="a guess") == [202]
        assert await hub.push(publisher.document("fourth", "third").encode()) == [202]
        assert await all_delivered(store, ["third", "fourth"]) == ["third", "fourth"]
        publisher.names[:0], publisher.down = ["fifth", "fourth", "third"], False
        assert await all_delivered(store, ["fifth"]) == ["fifth"]
