"""Repeated imports of large OPML files: ``python -m tests.live.opml_attack [--json]``.

One user follows a feed and sends commands to the bot, while others import files of 5 MiB: three at once at the console,
as files to the bot, and by URL, which a worker fetches. A phase without imports comes first. Prints for both phases the
delays of entries and answers, the memory of programs and their parser processes, and event loop delays. Exits with
status 1 if delays more than doubled, a program grew by more than 150 MB, or an event loop was delayed by more than 100
ms and more than in the first phase.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from bots.xmpp.stanzas import message, shared_file
from tests.live.twenty_feeds import TwentyFeeds, quantile, twenty_feeds
from tests.support.chat import ChatClient
from tests.support.client_software import software
from tests.support.processes import children_of, resident_bytes
from tests.support.product_process import Product, running

MOST_TIMES_QUIET = 2.0
MOST_GROWTH_MB = 150.0
MOST_LAG_MS = 100.0

_MB = 1024 * 1024
_FILE_BYTES = 5 * _MB
_WARM_UP_S = 5.0
_PUBLISHED_EVERY_S = 0.5
_SAID_EVERY_S = 0.5
_SENT_EVERY_S = 1.0
_SAMPLED_EVERY_S = 0.02
_IMPORTED_AT_ONCE = 3
_POLL_INTERVAL_S = 2.0
_OBSERVER, _ATTACKER = 0, 1


def make_lists() -> list[bytes]:
    """Return lists of 5 MiB that are costly to parse: many lines, many invalid URLs, many stray ampersands."""
    outlines = b"".join(b'<outline text="Feed %d" xmlUrl="ftp://example.org/%d"/>\n' % (n, n) for n in range(4_900))
    head = b"<opml><body>"
    return [
        (head + b"\n" * _FILE_BYTES)[:_FILE_BYTES],
        (head + outlines + b" " * _FILE_BYTES)[:_FILE_BYTES],
        (head + b"&" * _FILE_BYTES)[:_FILE_BYTES],
    ]


class Samples:
    """Samples of the programs' memory and of the response times of ``/livez``."""

    def __init__(self, ids_by_name: Mapping[str, int], urls_by_name: Mapping[str, str]) -> None:
        self._programs = ids_by_name
        self._urls = urls_by_name
        self.memory: list[tuple[float, str, float, float]] = []
        self.lags: list[tuple[float, str, float]] = []

    async def run(self) -> None:
        """Sample until cancelled."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http, asyncio.TaskGroup() as group:
            group.create_task(self._look_at_memory())
            for name, url in self._urls.items():
                group.create_task(self._ask(http, name, url))

    async def _look_at_memory(self) -> None:
        while True:
            for name, pid in self._programs.items():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    children = sum(map(resident_bytes, children_of(pid)))
                    self.memory.append((time.time(), name, resident_bytes(pid) / _MB, children / _MB))
            await asyncio.sleep(_SAMPLED_EVERY_S)

    async def _ask(self, http: aiohttp.ClientSession, name: str, url: str) -> None:
        while True:
            await asyncio.sleep(_SAMPLED_EVERY_S)
            begun_s = time.monotonic()
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with http.get(f"{url}/livez") as answer:
                    await answer.read()
                self.lags.append((time.time(), name, (time.monotonic() - begun_s) * 1000))


async def sample_until_input_ends(told: str) -> None:
    """Run as the process that takes samples until its input ends, and then write them to a file."""
    ids_by_name, urls_by_name = json.loads(told)
    samples = Samples(ids_by_name, urls_by_name)
    running_samples = asyncio.create_task(samples.run())
    await asyncio.to_thread(sys.stdin.read)
    running_samples.cancel()
    await asyncio.gather(running_samples, return_exceptions=True)
    print(json.dumps([samples.memory, samples.lags]))  # noqa: T201 - the other process reads it


async def import_at_the_console(told: str) -> None:
    """Run as the process that repeatedly sends three lists at once to the console."""
    url, token = json.loads(told)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "text/x-opml"}
    async with aiohttp.ClientSession(headers=headers) as http:

        async def send(body: bytes) -> None:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with http.post(f"{url}/api/v1/opml", data=BytesIO(body)) as answer:
                    print(answer.status, flush=True)  # noqa: T201 - the other process counts them

        while True:
            await asyncio.gather(*map(send, make_lists()))


@contextlib.asynccontextmanager
async def start_process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run another process of this module."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.live.opml_attack", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=64 * _MB,
    )
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.kill()
        await started.wait()


@contextlib.asynccontextmanager
async def list_publisher() -> AsyncIterator[str]:
    """Serve the lists on a free port; yield the base URL."""
    bodies = make_lists()

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=bodies[int(request.match_info["n"]) % len(bodies)], content_type="text/x-opml")

    app = web.Application()
    app.router.add_get("/{n}.opml", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def upload(client: ChatClient, body: bytes) -> str:
    """Upload a list like a user's client, and return its URL."""
    stream = software(client)
    stream.register_plugin("xep_0363")
    url = await stream.plugin["xep_0363"].upload_file("a.opml", len(body), "text/xml", input_file=BytesIO(body))
    return str(url)


async def import_by_chat(attacker: ChatClient, publisher_url: str) -> None:
    """Repeatedly send the bot three files and the URLs of three more lists, until cancelled."""
    files = [await upload(attacker, body) for body in make_lists()]
    for number in itertools.count():
        for nth, url in enumerate(files):
            attacker.send(f"import {publisher_url}/{_IMPORTED_AT_ONCE * number + nth}.opml")
            attacker.send_raw(message(f"{attacker.jid}/test", attacker.bot_jid, f"{number}-{nth}", shared_file(url)))
        await asyncio.sleep(_SENT_EVERY_S)


async def send_commands(person: ChatClient, waits: list[tuple[float, float]]) -> None:
    """Repeatedly send the bot a command, and record its time and the delay of the reply."""
    while True:
        begun_s = time.time()
        await person.say("status", 60.0)
        waits.append((begun_s, time.time() - begun_s))
        await asyncio.sleep(_SAID_EVERY_S)


async def publish(publisher: TwentyFeeds) -> None:
    """Publish entries until cancelled."""
    while True:
        await asyncio.sleep(_PUBLISHED_EVERY_S)
        publisher.publish(0)


def metrics_url(pid: int) -> str:
    """Return the URL of the metrics of a program."""
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    port = next(each for each in environment if each.startswith(b"CORONET_METRICS_PORT=")).partition(b"=")[2]
    return f"http://127.0.0.1:{port.decode()}"


async def measure(phase_s: float, directory: Path) -> dict[str, Any]:
    """Run the product through both phases; return the figures of each."""
    options = ("--workers", "1", "--poll-interval", str(_POLL_INTERVAL_S), "--no-sample-feeds")
    async with contextlib.AsyncExitStack() as stack:
        product = await stack.enter_async_context(running(directory / "state", *options))
        publisher = await stack.enter_async_context(twenty_feeds())
        publisher_url = await stack.enter_async_context(list_publisher())
        observer = await stack.enter_async_context(product.chat(_OBSERVER))
        attacker = await stack.enter_async_context(product.chat(_ATTACKER))
        assert "#" in await observer.say(f"subscribe {publisher.url(0)}")
        told = json.dumps([process_ids(product), process_urls(product)])
        sampler = await stack.enter_async_context(start_process("--sample", told))
        answers: list[tuple[float, float]] = []
        tasks = [asyncio.create_task(publish(publisher)), asyncio.create_task(send_commands(observer, answers))]
        try:
            await asyncio.sleep(_WARM_UP_S)
            phases = {"quiet": (time.time(), time.time() + phase_s)}
            await asyncio.sleep(phase_s)
            phases["attacked"] = (time.time(), time.time() + phase_s)
            console = json.dumps([product.ready["console_url"], product.ready["admin_token"]])
            async with start_process("--import-at-the-console", console) as importer:
                tasks.append(asyncio.create_task(import_by_chat(attacker, publisher_url)))
                await asyncio.sleep(phase_s)
                importer.kill()
                assert importer.stdout is not None
                statuses = (await importer.stdout.read()).split()
            await asyncio.sleep(2 * _POLL_INTERVAL_S)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for failed in ended:
            if isinstance(failed, Exception) and not isinstance(failed, asyncio.CancelledError):
                raise failed
        found, _ = await sampler.communicate(b"")
        memory, lags = json.loads(found)
        figures = {
            phase: summarise(within, answers, publisher, observer, memory, lags) for phase, within in phases.items()
        }
        counted = {status.decode(): statuses.count(status) for status in sorted(set(statuses))}
        said = [each.body[:60] for each in attacker.received]
        figures["attack"] = {
            "console_statuses": counted,
            "answers_in_chat": {words: said.count(words) for words in sorted(set(said))},
        }
        return figures


def process_ids(product: Product) -> dict[str, int]:
    """Return the process ids of the measured programs."""
    return {"console": product.pids("console")[0], "bot": product.pids("bot")[0], "worker": product.pids("workers")[0]}


def process_urls(product: Product) -> dict[str, str]:
    """Return the base URL of each program."""
    found = process_ids(product)
    return {name: metrics_url(pid) for name, pid in found.items() if name != "console"} | {
        "console": product.ready["console_url"]
    }


def summarise(  # noqa: PLR0917 - what was measured
    within: tuple[float, float],
    answers: Sequence[tuple[float, float]],
    publisher: TwentyFeeds,
    observer: ChatClient,
    memory: Sequence[tuple[float, str, float, float]],
    lags: Sequence[tuple[float, str, float]],
) -> dict[str, Any]:
    """Return one phase's figures: seconds, megabytes, milliseconds."""

    def is_in(at_s: float) -> bool:
        return within[0] <= at_s < within[1]

    news = []
    for entry in (each for each in publisher.published if is_in(each.published_s)):
        arrived = [each.at_s for each in observer.received if entry.title in each.body]
        news.append(min(arrived, default=time.time()) - entry.published_s)
    names = sorted({name for _, name, *_ in memory})
    return {
        "news_s": percentiles(news),
        "answer_s": percentiles([took for at, took in answers if is_in(at)]),
        "memory_mb": {
            name: {
                "program": maximum([own for at, who, own, _ in memory if is_in(at) and who == name]),
                "parsers": maximum([theirs for at, who, _, theirs in memory if is_in(at) and who == name]),
            }
            for name in names
        },
        "loop_lag_ms": {
            name: percentiles([took for at, who, took in lags if is_in(at) and who == name]) for name in names
        },
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return percentiles of the values."""
    if not values:
        return {"count": 0}
    shares: dict[str, Callable[[Sequence[float]], float]] = {
        "p50": lambda found: quantile(found, 0.5),
        "p95": lambda found: quantile(found, 0.95),
        "p99": lambda found: quantile(found, 0.99),
        "max": max,
    }
    return {"count": len(values)} | {name: round(share(values), 3) for name, share in shares.items()}


def maximum(values: Sequence[float]) -> float:
    """Return the maximum of the values, rounded."""
    return round(max(values, default=0.0), 1)


def broken_bounds(figures: Mapping[str, Any]) -> list[str]:
    """Return the bounds that do not hold."""
    quiet, attacked = figures["quiet"], figures["attacked"]
    found = [
        f"{what} p95 is {attacked[what]['p95']} s, with {quiet[what]['p95']} s when it is quiet"
        for what in ("news_s", "answer_s")
        if attacked[what].get("p95", float("inf")) > MOST_TIMES_QUIET * quiet[what]["p95"]
    ]
    for name, own in attacked["memory_mb"].items():
        grown = own["program"] - quiet["memory_mb"][name]["program"]
        if grown > MOST_GROWTH_MB:
            found.append(f"the {name} grew by {grown:.0f} MB")
        lag = attacked["loop_lag_ms"][name]
        if lag["max"] > max(MOST_LAG_MS, quiet["loop_lag_ms"][name]["max"]):
            found.append(f"the {name}'s event loop was {lag['max']:.0f} ms late")
    return found


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase")
    parser.add_argument("--sample", help=argparse.SUPPRESS)
    parser.add_argument("--import-at-the-console", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.sample:
        asyncio.run(sample_until_input_ends(given.sample))
        return 0
    if given.import_at_the_console:
        asyncio.run(import_at_the_console(given.import_at_the_console))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        figures = asyncio.run(measure(given.seconds, Path(directory)))
    figures["broken"] = broken_bounds(figures)
    figures["own_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(figures, indent=None if given.json else 2, ensure_ascii=False))  # noqa: T201 - its output
    return 1 if figures["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
