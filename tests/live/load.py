"""The whole product under load: ``python -m tests.live.load [--scale F] [--seconds S] [--growth-seconds S]``.

Prints one JSON object, and fails if a claim does not hold. At full scale 5,000 channels of 1,000 sites at public
addresses in a network namespace have 20,000 subscriptions of 500 users, all of whom are online and send receipts. Three
workers, a bot, a console, a Redis and a Prosody without archives run on this machine, with its publishers and users.

Feeds publish when they are polled (``tests.live.load_publisher``), 100 entries per second in all. So the delay from
publication to arrival at the user contains every step but the wait for a poll, which the policy decides. After a
warm-up there are three phases:

1. ``quiet``: all publishers behave.
2. ``hostile``: a tenth of the sites misbehave in many ways; the delays of the others' entries count.
3. ``growth``: all behave again; the workers' memory at the end is compared with that at the beginning.

By default the fleet polls a channel with one subscriber four times an hour and less: 5,000 channels get 3 polls per
second. ``SETTINGS`` names the settings that raise this to the target.
"""

import argparse
import asyncio
import contextlib
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from pydantic import SecretStr

from service.embedded.private_prosody import PrivateProsody
from service.embedded.private_redis import PrivateRedis
from service.settings import Settings
from service.store.client.keys import user_id
from tests.bench.bench_fanout import PASSWORD, make_accounts
from tests.bench.bench_idle import cpu_s, memory_mb, process_tree
from tests.live.load_clients import Arrival
from tests.live.load_publisher import Load, Published, number_of
from tests.support.bot_process import bots
from tests.support.polling_audit import most_at_once
from tests.support.prosody import ForgetfulProsody
from tests.support.public_fleet import Feed, PublicFleet, public_fleet
from tests.support.public_publisher import HOURLY, Request
from tests.support.waiting import until
from workers.polling.politeness import BURST

WORKERS: Final = 3
CHANNELS, SUBSCRIPTIONS, USERS = 5_000, 20_000, 500
FEEDS_PER_SITE: Final = 5
HOURLY_SHARE: Final = 0.01
HOSTILE_SHARE: Final = 0.1
POLLS_PER_S, UPDATES_PER_S, MESSAGES_PER_S = 50.0, 100.0, 500.0
PLANNED_POLLS_PER_S: Final = 55.0
ZIPF: Final = 0.6
"""The exponent of the popularity of channels."""

POLLS_PER_HOUR_FOR_ONE, MOST_POLLS_PER_HOUR = 60.0, 720.0
SITE_REQUESTS_PER_S: Final = 1.0
SETTINGS: Final = {
    "CORONET_POLL_INTERVAL_S": 60,
    "CORONET_POLLS_PER_HOUR_FOR_ONE_SUBSCRIBER": POLLS_PER_HOUR_FOR_ONE,
    "CORONET_MAX_POLLS_PER_HOUR": MOST_POLLS_PER_HOUR,
    "CORONET_GOAL": "lite",
    "CORONET_DEMAND_FACTOR": 10,
    "CORONET_LONGEST_WAIT_S": 120,
    "CORONET_WEEKLY_RHYTHM": "false",
    "CORONET_CLUSTER_SECRET": "the fleet's",
}
"""Settings that differ from the defaults; the budget of polls is set with the number of channels."""
MESSAGES_PER_S_PER_USER: Final = 20.0
"""By default 1: entries would be combined into fewer messages."""

MOST_DELAY_S: Final = 5.0
MOST_TIMES_AS_LATE: Final = 2.0
NOT_LATE_S: Final = 0.5
"""A quiet phase's p99 counts as this at least: below, the machine's other work decides."""
MOST_MB_PER_WORKER: Final = 300
MOST_GROWTH: Final = 0.05
_WARM_UP_S: Final = 240.0
_SAMPLED_EVERY_S: Final = 2.0
_RECOVERY_S: Final = 30.0
"""Time after the hostile phase until the growth of memory is observed."""
_RECENT_S: Final = 30.0
_LAST_ONES_S: Final = 60.0
_CONCURRENT: Final = 16


class Sizes(NamedTuple):
    """What there is, and the load."""

    channels: int
    subscriptions: int
    users: int
    polls_per_s: float
    updates_per_s: float
    messages_per_s: float

    @classmethod
    def scaled(cls, scale: float) -> "Sizes":
        """Return the sizes at a fraction of the full scale."""
        channels, subscriptions, users = (max(10, round(count * scale)) for count in (CHANNELS, SUBSCRIPTIONS, USERS))
        rates = (rate * scale for rate in (POLLS_PER_S, UPDATES_PER_S, MESSAGES_PER_S))
        return cls(channels, subscriptions, users, *rates)


def popularity(sizes: Sizes) -> list[int]:
    """Return the number of subscribers of each channel, most popular first; at least one."""
    weights = [(number + 1) ** -ZIPF for number in range(sizes.channels)]
    scale = sizes.subscriptions / sum(weights)
    for _ in range(20):  # at least one each: the others get less
        counts = [min(sizes.users, max(1, round(scale * weight))) for weight in weights]
        scale *= sizes.subscriptions / sum(counts)
    return counts


def feeds_of(sizes: Sizes) -> list[Feed]:
    """Return the feeds; a few ask to be polled once an hour."""
    hourly_every = round(1 / HOURLY_SHARE)
    return [
        Feed(
            f"http://hourly{number}.example{HOURLY}"
            if number % hourly_every == hourly_every - 1
            else f"http://site{number % math.ceil(sizes.channels / FEEDS_PER_SITE)}.example/feed{number}",
            subscribers,
        )
        for number, subscribers in enumerate(popularity(sizes))
    ]


class Span(NamedTuple):
    """A phase: when it began and ended (Unix s)."""

    begin_s: float
    end_s: float

    def contains(self, at_s: float) -> bool:
        return self.begin_s <= at_s < self.end_s

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


class Deliveries:
    """The ledger: joins what was published with what arrived."""

    def __init__(
        self, published: Sequence[Published], arrivals: Sequence[Arrival], subscribers: Mapping[int, Sequence[str]]
    ) -> None:
        self._published = published
        self._subscribers = subscribers
        self._entries: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self._arrived_s: dict[tuple[str, int, int], float] = {}
        self.resent = 0
        """Messages that arrived again under the same id."""
        ids = set[tuple[str, str]]()
        for arrival in arrivals:
            if (arrival.user, arrival.id) in ids:
                self.resent += 1
                continue
            ids.add((arrival.user, arrival.id))
            for feed, number in arrival.entries:
                self._entries[arrival.user, feed].append(number)
                self._arrived_s.setdefault((arrival.user, feed, number), arrival.at_s)
        self.messages = [arrival.at_s for arrival in arrivals]

    def is_complete(self) -> bool:
        """Return whether everything has arrived."""
        return len(self._arrived_s) >= sum(len(self._subscribers[entry.feed]) for entry in self._published)

    def audit(self) -> dict[str, Any]:
        """Return the numbers of entries that are owed, lost, repeated, out of order and unknown, with examples."""
        numbers: defaultdict[int, list[int]] = defaultdict(list)
        for entry in self._published:
            numbers[entry.feed].append(entry.number)
        counts, examples = Counter[str](), dict[str, list[str]]()
        for feed, users in self._subscribers.items():
            for user in users:
                told, owed = self._entries.pop((user, feed), []), numbers[feed]
                counts["owed"] += len(owed)
                found = {
                    "lost": sorted(set(owed) - set(told)),
                    "repeated": sorted(number for number, times in Counter(told).items() if times > 1),
                    "out of order": [] if told == sorted(told) else told,
                    "unknown": sorted(set(told) - set(owed)),
                }
                for kind, wrong in found.items():
                    counts[kind] += len(wrong)
                    if wrong:
                        examples.setdefault(kind, []).append(f"{user}, feed {feed}: {wrong}")
        for (user, feed), told in self._entries.items():
            counts["unknown"] += len(told)
            examples.setdefault("unknown", []).append(f"{user} is not subscribed to feed {feed}: {told}")
        return {**counts, "examples": {kind: found[:5] for kind, found in examples.items()}}

    def delays_s(self, span: Span, feeds: set[int]) -> list[float]:
        """Return the delays of the entries of these feeds that were published in a phase, for each subscriber."""
        return sorted(
            self._arrived_s[user, entry.feed, entry.number] - entry.at_s
            for entry in self._published
            if span.contains(entry.at_s) and entry.feed in feeds
            for user in self._subscribers[entry.feed]
            if (user, entry.feed, entry.number) in self._arrived_s
        )

    def entries_per_s(self, span: Span) -> float:
        """Return how many entries arrived per second of a phase."""
        return sum(map(span.contains, self._arrived_s.values())) / span.seconds


class Observer:
    """Samples the memory and the processor time of all programs."""

    def __init__(self, fleet: PublicFleet, others: Mapping[str, int]) -> None:
        self._pids = {**{name: worker.pid for name, worker in fleet.workers.items()}, **others}
        self._workers = tuple(fleet.workers)
        self._memory: list[tuple[float, dict[str, float]]] = []

    async def watch(self) -> None:
        """Sample the workers' memory until cancelled."""
        while True:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a parser process has ended meanwhile
                found = {name: sum(map(memory_mb, process_tree(self._pids[name]))) for name in self._workers}
                self._memory.append((time.time(), found))
            await asyncio.sleep(_SAMPLED_EVERY_S)

    def cpu_s(self) -> dict[str, float]:
        """Return the processor time (s) that each program has used."""
        return {name: sum(map(cpu_s, process_tree(pid))) for name, pid in self._pids.items()}

    def most_mb(self) -> dict[str, float]:
        """Return the most memory of each worker with its children (proportional set size)."""
        return {name: round(max(found[name] for _, found in self._memory), 1) for name in self._workers}

    def growth(self, span: Span) -> dict[str, float]:
        """Return how much more memory each worker has in the last tenth of a phase than in the first tenth."""
        part_s = max(span.seconds / 10, 2 * _SAMPLED_EVERY_S)
        parts = (Span(span.begin_s, span.begin_s + part_s), Span(span.end_s - part_s, span.end_s))
        first, last = ([found for at_s, found in self._memory if part.contains(at_s)] for part in parts)
        return {
            name: round(mean(found[name] for found in last) / mean(found[name] for found in first) - 1, 4)
            for name in self._workers
        }


class Run:
    """One run."""

    def __init__(self, sizes: Sizes, feeds: Sequence[Feed], scratch: Path, seed: int) -> None:
        self.sizes = sizes
        self.scratch = scratch
        self.feeds = feeds
        chance = random.Random(seed)  # noqa: S311 - a workload
        users = [f"u{number}" for number in range(sizes.users)]
        self.subscribers = {number_of(feed.url): chance.sample(users, feed.subscribers) for feed in feeds}
        hosts = sorted({urlsplit(feed.url).netloc for feed in feeds if not feed.url.endswith(HOURLY)})
        self.hostile_hosts = frozenset(chance.sample(hosts, max(1, round(len(hosts) * HOSTILE_SHARE))))
        self.healthy = {number_of(feed.url) for feed in feeds if urlsplit(feed.url).netloc not in self.hostile_hosts}
        self.broken: list[str] = []
        self._mixed = chance.sample(feeds, len(feeds))

    def claim(self, text: str, *, holds: bool) -> None:
        """Record a claim that does not hold."""
        if not holds:
            self.broken.append(text)

    async def prepare(self, fleet: PublicFleet) -> None:
        """Create the channels and the subscriptions, evenly over one round of polls, by which polls stay even."""
        limit, began_s = asyncio.Semaphore(_CONCURRENT), time.monotonic()
        round_s = self.sizes.channels / (self.sizes.polls_per_s * PLANNED_POLLS_PER_S / POLLS_PER_S)

        async def add(number: int, feed: Feed) -> None:
            await asyncio.sleep(began_s + number / len(self.feeds) * round_s - time.monotonic())
            async with limit:
                await fleet.create(feed)
                for user in self.subscribers[number_of(feed.url)]:
                    await fleet.store.subscriptions.subscribe(f"{user}@localhost", feed.id)
                await fleet.store.worker_requests.announce_channel(feed.id)

        await asyncio.gather(*(add(number, feed) for number, feed in enumerate(self._mixed)))
        await fleet.store.users.mark_receipts([user_id(f"u{number}@localhost") for number in range(self.sizes.users)])

    async def warm_up(self, fleet: PublicFleet) -> float:
        """Wait until almost every channel has been polled, and polls are as frequent as wanted."""
        began_s = time.time()
        wanted = sum(not feed.url.endswith(HOURLY) for feed in self.feeds)

        async def is_warm() -> bool:
            await asyncio.sleep(5)
            requests, now_s = fleet.publisher.requests(), time.time()
            recent = sum(request.at_s > now_s - _RECENT_S for request in requests) / _RECENT_S
            polled = len({request.url for request in requests})
            report(f"{polled} of {wanted} channels polled, {recent:.1f} polls per second")
            return polled >= 0.98 * wanted and recent >= self.sizes.polls_per_s

        with contextlib.suppress(AssertionError):  # the figures say it better
            await until(is_warm, "polls are as frequent as wanted", within_s=_WARM_UP_S)
        return time.time() - began_s

    def deliveries(self) -> Deliveries:
        """Return the ledger of what has happened so far."""
        published = _lines(self.scratch / "published.jsonl", Published)
        return Deliveries(published, _lines(self.scratch / "arrivals.jsonl", Arrival), self.subscribers)

    def check_requests(self, requests: Sequence[Request], span: Span) -> dict[str, Any]:
        """Claim that no publisher was asked above its rate; return the figures of the whole run."""
        sites, channels = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
        for request in requests:
            sites[request.host].append(request.at_s)
            channels[request.url].append(request.at_s)
        most = max(most_at_once(times_s, SITE_REQUESTS_PER_S) for times_s in sites.values())
        self.claim("no site is asked above its rate", holds=most <= BURST)
        above = {}
        for feed in self.feeds:
            per_hour = min(POLLS_PER_HOUR_FOR_ONE * math.sqrt(feed.subscribers), MOST_POLLS_PER_HOUR)
            at_once = most_at_once(channels[feed.url], per_hour / 3600)
            if at_once > BURST:
                above[feed.url] = round(at_once, 2)
        self.claim("no channel is asked above its rate", holds=not above)
        hourly = max((len(times_s) for url, times_s in channels.items() if url.endswith(HOURLY)), default=0)
        self.claim("feeds that say hourly are asked at most twice", holds=hourly <= 2)
        polls_per_s = sum(span.contains(request.at_s) for request in requests) / span.seconds
        self.claim("polls per second", holds=polls_per_s >= self.sizes.polls_per_s)
        return {
            "polls_per_s": round(polls_per_s, 1),
            "most_requests_at_once_of_a_site": round(most, 2),
            "channels_above_their_rate": dict(list(above.items())[:5]),
            "most_requests_of_an_hourly_feed": hourly,
            "requests_in_each_10_s": _per_10_s([request.at_s for request in requests]),
        }


def report(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return percentiles of sorted values."""
    if not values:
        return {"count": 0, "p50": math.inf, "p95": math.inf, "p99": math.inf, "max": math.inf}
    found = {f"p{share}": round(values[min(len(values) - 1, len(values) * share // 100)], 3) for share in (50, 95, 99)}
    return {"count": len(values), **found, "max": round(values[-1], 3)}


def _per_10_s(times_s: Sequence[float]) -> list[int]:
    counts = Counter(int(at_s - times_s[0]) // 10 for at_s in times_s)
    return [counts[number] for number in range(max(counts, default=0) + 1)]


def _lines(path: Path, kind: Any) -> list[Any]:
    decoder = msgspec.json.Decoder(kind)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []


@contextlib.asynccontextmanager
async def clients(prosody: PrivateProsody, journal: Path, users: int) -> AsyncIterator[int]:
    """Run the users; yield the process id."""
    argv = ["127.0.0.1", str(prosody.c2s_port), PASSWORD, str(journal), *(f"u{number}" for number in range(users))]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.live.load_clients", *argv, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.terminate()
        await process.wait()


async def set_load(fleet: PublicFleet, load: Load) -> None:
    await fleet.publisher.control("/load", load)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the load; return the figures and the claims that do not hold."""
    sizes = Sizes.scaled(options.scale)
    async with contextlib.AsyncExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="load-")))
        run = Run(sizes, feeds_of(sizes), scratch, options.seed)
        make_accounts(scratch / "prosody", [f"u{number}" for number in range(sizes.users)])
        prosody = await running.enter_async_context(ForgetfulProsody(scratch / "prosody"))
        redis = await running.enter_async_context(PrivateRedis(scratch / "redis"))
        settings = SETTINGS | {"CORONET_BUDGET_POLLS_PER_MINUTE": 60 * PLANNED_POLLS_PER_S * options.scale}
        fleet = await running.enter_async_context(
            public_fleet(scratch, redis.url, run.feeds, "tests.live.load_publisher", workers=WORKERS, **settings)
        )
        await run.prepare(fleet)
        report(f"{sum(map(len, run.subscribers.values()))} subscriptions to {len(run.feeds)} channels")
        bot_settings = Settings(
            redis_url=redis.url,
            xmpp_jid=prosody.component_jid,
            xmpp_password=SecretStr(prosody.component_secret),
            xmpp_host="127.0.0.1",
            xmpp_port=prosody.component_port,
            messages_per_s_per_user=MESSAGES_PER_S_PER_USER,
        )
        users_pid = await running.enter_async_context(clients(prosody, scratch / "arrivals.jsonl", sizes.users))
        (bot,) = await running.enter_async_context(bots(bot_settings, scratch, 1))
        pids = {"redis": redis.pid, "prosody": prosody.pid, "bot": bot.pid, "console": fleet.console.pid}
        observer = Observer(fleet, {**pids, "users": users_pid})
        await set_load(fleet, Load(sizes.updates_per_s))
        warm_up_s = await run.warm_up(fleet)
        watching = asyncio.create_task(observer.watch())
        running.callback(watching.cancel)
        before, quiet_s = observer.cpu_s(), time.time()
        await asyncio.sleep(options.seconds)
        quiet = Span(quiet_s, time.time())
        between = observer.cpu_s()
        report("a tenth of the sites misbehave")
        await set_load(fleet, Load(sizes.updates_per_s, tuple(run.hostile_hosts)))
        await asyncio.sleep(options.seconds)
        hostile, after = Span(quiet.end_s, time.time()), observer.cpu_s()
        await set_load(fleet, Load(sizes.updates_per_s))
        await asyncio.sleep(_RECOVERY_S)
        growth_s = time.time()
        await asyncio.sleep(options.growth_seconds)
        observed = Span(growth_s, time.time())
        await set_load(fleet, Load(0.0))
        report("no entry is published any more")

        async def all_have_arrived() -> bool:
            await asyncio.sleep(1)
            return run.deliveries().is_complete()

        with contextlib.suppress(AssertionError):  # the ledger says it better
            await until(all_have_arrived, "all entries have arrived", within_s=_LAST_ONES_S)
        deliveries = run.deliveries()
        return {
            "scale": options.scale,
            "wanted": sizes._asdict(),
            "subscriptions": sum(map(len, run.subscribers.values())),
            "settings": settings,
            "warm_up_s": round(warm_up_s),
            "cores": cores(before, between, quiet),
            "cores_while_others_are_hostile": cores(between, after, hostile),
            **figures(run, deliveries, fleet.publisher.requests(), quiet, hostile),
            **memory(run, observer, observed),
            "broken": run.broken,
        }


def cores(before: Mapping[str, float], after: Mapping[str, float], span: Span) -> dict[str, float]:
    """Return how many cores each program has used in a phase, and all together."""
    used = {name: round((used_s - before[name]) / span.seconds, 3) for name, used_s in after.items()}
    return {**used, "all": round(sum(used.values()), 3)}


def figures(
    run: Run, deliveries: Deliveries, requests: Sequence[Request], quiet: Span, hostile: Span
) -> dict[str, Any]:
    """Check the rates, the delays and the ledger; return their figures."""
    published = _lines(run.scratch / "published.jsonl", Published)
    updates_per_s = sum(quiet.contains(entry.at_s) for entry in published) / quiet.seconds
    run.claim("updates per second", holds=updates_per_s >= 0.98 * run.sizes.updates_per_s)
    told_per_s = deliveries.entries_per_s(quiet)
    run.claim("entries delivered per second", holds=told_per_s >= run.sizes.messages_per_s)
    before, during = (percentiles(deliveries.delays_s(span, run.healthy)) for span in (quiet, hostile))
    run.claim("p99 of the delay", holds=before["p99"] < MOST_DELAY_S)
    run.claim(
        "p99 of healthy publishers' delay while others are hostile",
        holds=during["p99"] < MOST_TIMES_AS_LATE * max(before["p99"], NOT_LATE_S),
    )
    ledger = deliveries.audit()
    for kind in ("lost", "repeated", "out of order", "unknown"):
        run.claim(f"ledger: {kind}", holds=not ledger[kind])
    return {
        **run.check_requests(requests, quiet),
        "updates_per_s": round(updates_per_s, 1),
        "entries_delivered_per_s": round(told_per_s, 1),
        "stanzas_per_s": round(sum(map(quiet.contains, deliveries.messages)) / quiet.seconds, 1),
        "delay_s": before,
        "delay_of_healthy_while_others_are_hostile_s": during,
        "hostile_sites": len(run.hostile_hosts),
        "requests_to_hostile": sum(hostile.contains(each.at_s) and each.host in run.hostile_hosts for each in requests),
        "ledger": {**ledger, "resent_under_the_same_id": deliveries.resent},
    }


def memory(run: Run, observer: Observer, span: Span) -> dict[str, Any]:
    """Check the workers' memory; return its figures."""
    most, growth = observer.most_mb(), observer.growth(span)
    run.claim("memory per worker", holds=max(most.values()) <= MOST_MB_PER_WORKER)
    run.claim("growth of memory", holds=max(growth.values()) < MOST_GROWTH)
    return {"most_mb_per_worker": most, "growth": growth, "growth_observed_s": round(span.seconds)}


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.load", description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the channels, the users and the load")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each of the first two phases")
    parser.add_argument("--growth-seconds", type=float, default=600.0, help="how long memory is observed")
    parser.add_argument("--seed", type=int, default=1)
    found = asyncio.run(measure(parser.parse_args()))
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return bool(found["broken"])


if __name__ == "__main__":
    sys.exit(main())
