"""A bot is killed in the middle of an import: the next one goes on, and counts each feed once."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from service.feeds import opml_writer
from service.feeds.opml_writer import OpmlSubscription
from service.host_process import serve_programs
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from tests.support.bot_process import bots
from tests.support.chat import ChatClient
from tests.support.feed_documents import item, rss
from tests.support.raw_http import RawPublisher, ok, raw_publisher
from tests.support.waiting import until
from workers.main import WorkerProgram

pytestmark = pytest.mark.e2e

FEEDS, MISSING = 80, 4
LIST = "/list.opml"
ANSWER_S = 0.2


@pytest_asyncio.fixture
async def publisher() -> AsyncIterator[RawPublisher]:
    """A slow publisher of a list of feeds, some of which do not exist."""

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        path = head.split()[1]
        if path == LIST:
            urls = [running.url(f"/{number}") for number in range(FEEDS)]
            listed = [OpmlSubscription(url, f"My {url.rpartition('/')[2]}") for url in urls]
            writer.write(ok(opml_writer.write("Mine", listed), "Content-Type: text/x-opml"))
        else:
            await asyncio.sleep(ANSWER_S)
            found = int(path[1:]) >= MISSING
            missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            writer.write(ok(rss([item(path)]), "Content-Type: application/rss+xml") if found else missing)
        await writer.drain()

    async with raw_publisher(answer) as running:
        yield running


@pytest.mark.timeout(180)
@pytest.mark.parametrize("people", [1], indirect=True)
async def test_an_import_goes_on_after_the_bot_is_killed(
    settings: Settings, people: list[ChatClient], publisher: RawPublisher, store: Store, tmp_path: Path
) -> None:
    (alice,) = people
    local = settings.model_copy(update={"allow_private": True})
    worker = asyncio.create_task(serve_programs(local, [WorkerProgram]))

    async def are_some_added() -> bool:
        return len(await store.subscriptions.of_user(alice.jid)) > FEEDS // 4

    try:
        await until(store.ring.nodes, "a worker is there")
        async with bots(settings, tmp_path, 1) as running:
            assert f"{FEEDS} feeds" in await alice.say(f"import {publisher.url(LIST)}", 60.0)
            await until(are_some_added, "some feeds are added", within_s=60.0)
            await running[0].kill()
        assert len(await store.subscriptions.of_user(alice.jid)) < FEEDS - MISSING, "it is in the middle"
        async with bots(settings, tmp_path, 1):
            told = await alice.wait_for(lambda message: "Your list is imported" in message.body, 90.0)
            assert f"{FEEDS - MISSING} new subscriptions. {MISSING} couldn't be added:" in told.body
            assert sorted(re.findall(r"http\S+/([0-9]+)”", told.body)) == [str(number) for number in range(MISSING)]
            status = await alice.say("import status")
            assert status == "No list is being imported right now."
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    subscriptions = await store.subscriptions.of_user(alice.jid)
    assert len(subscriptions) == FEEDS - MISSING
    (preferences,) = await store.preferences.of_users([user_id(alice.jid)])
    assert {own.title for own in preferences.values()} == {f"My {number}" for number in range(MISSING, FEEDS)}
    results = [message for message in alice.unique if "Your list is imported" in message.body]
    assert len(results) == 1
