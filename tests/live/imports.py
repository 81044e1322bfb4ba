"""Imports of 10,000 feeds in chat and at the console: ``python -m tests.live.imports [--feeds N] [--json]``.

One worker, the bot and the console run as separate processes. A publisher on loopback has a list of feeds, and so many
feeds that each import finds new ones. One person imports the list in chat while another sends commands; the bot and the
worker are killed with SIGKILL on the way. Then an admin imports a list at the console, while the console and the worker
are killed. Prints for both how many minutes the import took, its counts, and how long the answers in chat took. Exits
with status 1 if a feed is missing, an import took more than ten minutes, or an answer took more than 300 ms (95th
percentile, outside of the 30 s after a kill of the bot).
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from service.feeds import opml_writer
from service.feeds.opml_import import ImportProgress
from service.feeds.opml_writer import OpmlSubscription
from service.store.client.keys import user_id
from tests.live.twenty_feeds import quantile
from tests.support.chat import ChatClient
from tests.support.product_process import Product, running

MOST_MINUTES = 10.0
MOST_ANSWER_MS = 300.0

_SAID_EVERY_S = 0.5
_LOOKED_EVERY_S = 0.5
_AFTER_KILL_S = 30.0
_ANSWERED_WITHIN_S = 20.0
_QUIET_S = 15.0
_LONGEST_S = 3_600.0
_KILLS = {"chat": {0.3: "bot", 0.6: "workers"}, "console": {0.3: "console", 0.6: "workers"}}
"""For each way to import, what is killed after which share of the feeds."""


def feed(name: str) -> bytes:
    """Return a feed with ten entries."""
    items = "".join(
        f"<item><guid>{name}/{n}</guid><title>Entry {n} of {name}</title><link>http://127.0.0.1/{name}/{n}</link>"
        f"<description>{f'A sentence of entry {n}. ' * 20}</description></item>"
        for n in range(10)
    )
    return f'<rss version="2.0"><channel><title>Feed {name}</title>{items}</channel></rss>'.encode()


async def publish() -> None:
    """Run as the publisher, until killed; the first line of the output is its port."""

    async def answer(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name.endswith(".opml"):
            way, _, count = name.removesuffix(".opml").partition("-")
            host = f"http://{request.host}"
            listed = [OpmlSubscription(f"{host}/{way}-{n}", f"My feed {n}") for n in range(int(count))]
            return web.Response(body=opml_writer.write("Mine", listed), content_type="text/x-opml")
        body = feed(name)
        etag = hashlib.sha256(body).hexdigest()[:16]
        if any(known.value == etag for known in request.if_none_match or ()):
            return web.Response(status=304, headers={"ETag": f'"{etag}"'})
        return web.Response(body=body, content_type="application/rss+xml", headers={"ETag": f'"{etag}"'})

    app = web.Application()
    app.router.add_get("/{name}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)  # noqa: T201 - the other process reads it
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def publisher() -> AsyncIterator[str]:
    """Run the publisher as another process; yield its base URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.live.imports", "--publish"), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def send_commands(person: ChatClient, answers: list[tuple[float, float]]) -> None:
    """Repeatedly send the bot a command, and record its time and the delay of the answer."""
    while True:
        begun_s = time.monotonic()
        with contextlib.suppress(TimeoutError):  # a server drops messages to a component that was killed
            await person.say("list", _ANSWERED_WITHIN_S)
        answers.append((begun_s, time.monotonic() - begun_s))
        await asyncio.sleep(_SAID_EVERY_S)


async def kill_on_the_way(
    product: Product, way: str, look: Callable[[], Awaitable[ImportProgress | None]], feeds: int
) -> tuple[list[dict[str, Any]], ImportProgress | None]:
    """Kill programs when shares of the feeds are done, until the import ends; return the kills and the last progress.

    ``look`` returns the progress of the import, or None if there is none any more.
    """
    left, kills, last = dict(_KILLS[way]), list[dict[str, Any]](), None
    while (progress := await look()) is not None and not progress.ended_s:
        last = progress
        for share in [share for share in left if progress.done >= share * feeds]:
            kind = left.pop(share)
            kills.append({"killed": kind, "after_feeds": progress.done, "at_s": time.monotonic()})
            await product.kill(kind)
        await asyncio.sleep(_LOOKED_EVERY_S)
    return kills, progress or last


async def import_in_chat(product: Product, person: ChatClient, url: str, feeds: int) -> dict[str, Any]:
    """Import a list in chat; return the figures."""
    async with product.store() as store:
        uid = user_id(person.jid)
        await person.say("list")
        await store.people.set_max_subscriptions(uid, 2 * feeds)
        began_s = time.monotonic()
        started = await person.say(f"import {url}/chat-{feeds}.opml", 60.0)
        kills, progress = await kill_on_the_way(product, "chat", lambda: store.user_imports.progress(uid), feeds)
        result = await person.wait_for(lambda message: "Your list is imported" in message.body, _LONGEST_S)
        took_s = time.monotonic() - began_s
        subscriptions = await store.subscriptions.of_user(person.jid)
    told = [message for message in person.received if message.body.startswith("Importing your list")]
    return {
        **figures(took_s, progress, kills, len(subscriptions)),
        "started": started,
        "result": result.body[:200],
        "progress_messages": sum(not message.replaces for message in told),
        "corrections": sum(bool(message.replaces) for message in told),
        "last_progress": told[-1].body if told else "",
    }


async def import_at_the_console(product: Product, url: str, feeds: int) -> dict[str, Any]:
    """Import a list at the console; return the figures."""
    headers = {"Authorization": f"Bearer {product.ready['admin_token']}"}
    async with aiohttp.ClientSession(headers=headers) as http, product.store() as store:
        async with http.get(f"{url}/console-{feeds}.opml") as response:
            body = await response.read()
        began_s = time.monotonic()
        opml_url, is_opml = f"{product.ready['console_url']}/api/v1/opml", {"Content-Type": "text/x-opml"}
        async with http.post(opml_url, data=body, headers=is_opml) as response:
            assert response.status == 202, await response.text()
            ident = (await response.json())["id"]
        answered_s = time.monotonic() - began_s
        kills, progress = await kill_on_the_way(
            product, "console", lambda: store.console_imports.progress(ident), feeds
        )
        took_s = time.monotonic() - began_s
    listed = progress.new + progress.existing if progress else 0
    return {**figures(took_s, progress, kills, listed), "post_s": round(answered_s, 2)}


def figures(
    took_s: float, progress: ImportProgress | None, kills: Sequence[Mapping[str, Any]], added: int
) -> dict[str, Any]:
    """Return what both ways have in common; ``added`` is the number of feeds that were found added at the end."""
    assert progress is not None
    return {
        "minutes": round(took_s / 60, 2),
        "added": added,
        "failed": progress.failed,
        "kills": [{name: value for name, value in kill.items() if name != "at_s"} for kill in kills],
        "killed_bot_at_s": [kill["at_s"] for kill in kills if kill["killed"] == "bot"],
    }


def answer_times(answers: Sequence[tuple[float, float]], killed_bot_at_s: Sequence[float]) -> dict[str, float]:
    """Return milliseconds of the answers, except those after kills of the bot, and the longest of these in seconds."""

    def is_disturbed(at_s: float) -> bool:
        return any(killed_s - 1 < at_s < killed_s + _AFTER_KILL_S for killed_s in killed_bot_at_s)

    calm = [1000 * took_s for at_s, took_s in answers if not is_disturbed(at_s)]
    disturbed = [took_s for at_s, took_s in answers if is_disturbed(at_s)]
    found = {f"p{100 * share:g}": round(quantile(calm, share), 1) for share in (0.5, 0.95, 0.99)} if calm else {}
    return {"count": len(calm), **found, "max": round(max(calm, default=0.0), 1)} | (
        {"max_after_kill_s": round(max(disturbed), 1)} if disturbed else {}
    )


async def measure(feeds: int, directory: Path) -> dict[str, Any]:
    """Run both imports; return the figures."""
    async with contextlib.AsyncExitStack() as stack:
        product = await stack.enter_async_context(
            running(directory / "state", "--workers", "1", "--poll-interval", "1800", "--no-sample-feeds")
        )
        url = await stack.enter_async_context(publisher())
        importer, other = [await stack.enter_async_context(product.chat(number)) for number in range(2)]
        assert "#" in await other.say(f"subscribe {url}/another")
        answers: list[tuple[float, float]] = []
        talking = asyncio.create_task(send_commands(other, answers))
        try:
            await asyncio.sleep(_QUIET_S)
            found: dict[str, Any] = {"feeds": feeds, "quiet_answers_ms": answer_times(answers, ())}
            for way in ("chat", "console"):
                answers.clear()
                doing = (
                    import_in_chat(product, importer, url, feeds)
                    if way == "chat"
                    else import_at_the_console(product, url, feeds)
                )
                figures_of_way = await doing
                killed_at_s = figures_of_way.pop("killed_bot_at_s")
                found[way] = figures_of_way | {"answers_ms": answer_times(answers, killed_at_s)}
        finally:
            talking.cancel()
            await asyncio.gather(talking, return_exceptions=True)
        return found


def broken_bounds(found: Mapping[str, Any]) -> list[str]:
    """Return the bounds that do not hold."""
    broken = []
    for way in ("chat", "console"):
        own = found[way]
        if own["added"] != found["feeds"]:
            broken.append(f"{own['added']} feeds were added in {way}")
        if own["minutes"] > MOST_MINUTES:
            broken.append(f"the import in {way} took {own['minutes']} minutes")
        if own["answers_ms"].get("p95", 0.0) > MOST_ANSWER_MS:
            broken.append(f"answers took {own['answers_ms']['p95']} ms during the import in {way}")
        if len(own["kills"]) < len(_KILLS[way]):
            broken.append(f"the import in {way} was too short for all kills")
    return broken


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--feeds", type=int, default=10_000)
    parser.add_argument("--publish", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.publish:
        asyncio.run(publish())
        return 0
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(measure(given.feeds, Path(directory)))
    found["broken"] = broken_bounds(found)
    print(json.dumps(found, indent=None if given.json else 2, ensure_ascii=False))  # noqa: T201 - its output
    return 1 if found["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
