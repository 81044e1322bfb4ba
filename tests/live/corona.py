"""Corona seen from outside: ``python -m tests.live.corona [--json] [--seed N]``.

Takes six minutes, and fails if a claim does not hold. Eight worker processes and one Redis poll 200 channels of Zipf
popularity, whose publishers have public addresses in a network namespace, so that budgets, limits and sites count as in
production. τ is 40 s. All figures come from the publishers' journal of requests and from the console's API:

1. ``levels``: polling sets with continuous sizes and with base 2, the switch between them, and the request budget.
2. ``hourly``: the ten most popular feeds ask to be polled once an hour, and the others get the budget that this leaves.
3. ``refused``: 50 channels of one site get 429 with ``Retry-After``.
4. ``dead``: a popular site stops answering, and answers again.
5. ``killed``: one worker is killed (SIGKILL).

Entries are published all the time; in the end, each has been told once to a subscriber of all channels.
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
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from service.embedded.private_redis import PrivateRedis
from tests.support.polling_audit import (
    SKIPPED,
    Details,
    IrregularGap,
    Phase,
    irregular_gaps,
    planned_gaps_s,
    polls_by_url,
    wedge,
)
from tests.support.processes import children_of, resident_bytes
from tests.support.public_fleet import Feed, PublicFleet, public_fleet
from tests.support.public_publisher import HOURLY, Request
from tests.support.waiting import until, until_so

WORKERS = 8
CHANNELS = 200
HOURLY_CHANNELS = 10
DEAD_CHANNELS = 3
CROWD_CHANNELS = 50
MOST_SUBSCRIBERS = 400

POLL_INTERVAL_S = 40.0
MAINTENANCE_S = 4.0
LEASE_S = 6.0
BUDGET_PER_MINUTE = 600.0
SETTINGS = {
    "CORONET_POLL_INTERVAL_S": POLL_INTERVAL_S,
    "CORONET_MAINTENANCE_INTERVAL_S": MAINTENANCE_S,
    "CORONET_LEASE_TTL_S": LEASE_S,
    "CORONET_MAX_POLLS_PER_HOUR": WORKERS * 3600 / POLL_INTERVAL_S,
    "CORONET_POLLS_PER_HOUR_FOR_ONE_SUBSCRIBER": WORKERS * 3600 / POLL_INTERVAL_S,
    "CORONET_WEEKLY_RHYTHM": "false",
}
"""Limits grow with τ: a channel gets at most one poll per worker and τ. Gaps are even, because rhythms are not used."""
AIMS: Mapping[str, object] = {"goal": "lite", "demand_factor": 10, "budget_polls_per_minute": BUDGET_PER_MINUTE}
"""The budget is scarce: demand would cause many more polls."""

CROWD, DEAD = "crowd.example", "dead.example"
RETRY_AFTER_S = 30
MOST_REFUSED = 2
DEAD_FOR_S = 75.0
PUBLISHED_EVERY_S = 0.5
BUDGET_TOLERANCE = 0.05


def zipf_feeds(chance: random.Random) -> list[Feed]:
    """Return the feeds with their subscribers: the hourly ones are the most popular, then those that die."""
    kinds = ["crowd"] * CROWD_CHANNELS + ["plain"] * (CHANNELS - HOURLY_CHANNELS - DEAD_CHANNELS - CROWD_CHANNELS)
    chance.shuffle(kinds)
    kinds = ["hourly"] * HOURLY_CHANNELS + ["dead"] * DEAD_CHANNELS + kinds
    urls = {
        "hourly": lambda number: f"http://hourly{number}.example{HOURLY}",
        "dead": lambda number: f"http://{DEAD}/feed{number}",
        "crowd": lambda number: f"http://blog{number}.{CROWD}/feed",
        "plain": lambda number: f"http://site{number}.example/feed",
    }
    return [
        Feed(urls[kind](number), max(2, round(MOST_SUBSCRIBERS / (number + 1)))) for number, kind in enumerate(kinds)
    ]


class Claim(NamedTuple):
    """What has to hold, whether it does, and the figures that show it."""

    text: str
    holds: bool
    figures: Mapping[str, Any]


class Run:
    """One run: the fleet, its feeds, and what was found so far."""

    def __init__(self, fleet: PublicFleet, feeds: Sequence[Feed], chance: random.Random) -> None:
        self.fleet = fleet
        self.feeds = feeds
        self.claims: list[Claim] = []
        self.published: dict[str, str] = {}
        """The URL of the feed of each entry, by title."""
        self._chance = chance
        self._numbers = count()
        self._by_url = {feed.url: feed for feed in feeds}
        self.plain = [feed.url for feed in feeds if urlsplit(feed.url).netloc.startswith("site")]
        self.hourly = [feed for feed in feeds if feed.url.endswith(HOURLY)]
        self.dead = [feed for feed in feeds if f"//{DEAD}/" in feed.url]
        self.crowd = [feed for feed in feeds if f".{CROWD}/" in feed.url]

    def claim(self, text: str, *, holds: bool, **figures: Any) -> None:
        """Note one claim, and print it to standard error."""
        self.claims.append(Claim(text, holds, figures))
        _report(f"{'holds' if holds else 'BROKEN'}: {text} {json.dumps(figures)}")

    def polls(self) -> dict[str, list[Request]]:
        """Return all requests so far, by URL."""
        return polls_by_url(self.fleet.publisher.requests())

    async def publish(self) -> None:
        """Publish entries, for ever."""
        while True:
            await self.publish_one(self._chance.choice(self.plain))
            await asyncio.sleep(PUBLISHED_EVERY_S)

    async def publish_one(self, url: str) -> str:
        """Publish an entry; return its title."""
        title = f"News {next(self._numbers)}"
        await self.fleet.publisher.publish(url, title)
        self.published[title] = url
        return title

    async def settled(self, within_s: float = 60.0) -> dict[str, dict[str, Any]]:
        """Wait until the plans stay the same; return what the API says about all channels, by URL."""
        return await self.fleet.settled(self.feeds, every_s=MAINTENANCE_S, within_s=within_s)

    async def phase(self, seconds: float, **aims: object) -> tuple[Phase, dict[str, dict[str, Any]]]:
        """Set a policy, wait until it is followed, and let some time pass; return the phase and what the API says."""
        begin_s = await self.fleet.set_policy(**AIMS, **aims)
        await asyncio.sleep(MAINTENANCE_S)  # workers read the policy once in this time
        details = await self.settled()
        settled_s = time.time()
        await asyncio.sleep(seconds)
        gaps_s = planned_gaps_s(details)
        return Phase(begin_s, settled_s, time.time(), gaps_s), details


def check_budget(run: Run, phase: Phase, name: str) -> None:
    """Claim that the budget was used and kept in a phase."""
    requests = [request for request in run.fleet.publisher.requests() if phase.settled_s <= request.at_s < phase.end_s]
    minutes = (phase.end_s - phase.settled_s) / 60
    per_minute = len(requests) / minutes
    planned = sum(60 / gap_s for gap_s in phase.gaps_s.values() if gap_s > 0)
    run.claim(
        f"the budget is held within 5 % ({name})",
        holds=abs(per_minute / BUDGET_PER_MINUTE - 1) <= BUDGET_TOLERANCE,
        budget_per_minute=BUDGET_PER_MINUTE,
        requests_per_minute=round(per_minute, 1),
        planned_per_minute=round(planned, 1),
        seconds=round(minutes * 60),
    )


async def check_wedges(run: Run, phase: Phase, details: Details) -> None:
    """Claim that each polling set is a wedge of 1, 2, 4 or 8 nodes, by the API and by the journal."""
    names = await run.fleet.node_names()
    ids, wrong, sizes = list(names), [], Counter[int]()
    for feed in run.feeds:
        members = {node["id"] for node in details[feed.url]["polling_set"]}
        sizes[len(members)] += 1
        shown = details[feed.url]["polling"]
        is_wedge = members == wedge(ids, feed.id, len(members))
        if not is_wedge or not shown or shown["level"] != math.log2(WORKERS / shown["nodes"]):
            wrong.append(feed.url)
    run.claim(
        "with base 2, each polling set has 1, 2, 4 or 8 members and is the wedge (API)",
        holds=not wrong and set(sizes) <= {1, 2, 4, 8},
        channels_by_members=dict(sorted(sizes.items())),
        no_wedge=wrong[:5],
        wrong=len(wrong),
    )
    strangers, idle = [], []
    polls = run.polls()
    for url in run.plain:
        members = {names[node["id"]] for node in details[url]["polling_set"]}
        window = [poll for poll in polls.get(url, ()) if phase.settled_s <= poll.at_s < phase.end_s]
        polled_by = {poll.worker for poll in window}
        strangers += [url] if polled_by - members else []
        full_turn = (phase.end_s - phase.settled_s) > SKIPPED * phase.gaps_s[url] * len(members)
        idle += [url] if full_turn and members - polled_by else []
    run.claim(
        "with base 2, exactly the members of the polling set poll (journal)",
        holds=not strangers and not idle,
        polled_by_others=strangers[:5],
        members_that_did_not_poll=idle[:5],
        channels=len(run.plain),
    )


def check_gaps(run: Run, phases: Sequence[Phase], name: str) -> None:
    """Claim that no poll was skipped or made twice."""
    skipped, doubled = irregular_gaps(run.polls(), phases, run.plain)
    run.claim(
        f"no poll is skipped or doubled ({name})",
        holds=not skipped and not doubled,
        skipped=len(skipped),
        doubled=len(doubled),
        examples=[_rounded(gap) for gap in [*skipped[:3], *doubled[:3]]],
        channels=len(run.plain),
        polls=sum(len(run.polls().get(url, ())) for url in run.plain),
    )


def check_hourly(run: Run, phase: Phase, details: Details, since_s: float) -> None:
    """Claim that feeds that say hourly are planned hourly, for that reason, and polled at most twice."""
    found = [details[feed.url] for feed in run.hourly]
    polls = run.polls()
    requests = [sum(poll.at_s >= since_s for poll in polls.get(feed.url, ())) for feed in run.hourly]
    gaps_s = [phase.gaps_s[feed.url] for feed in run.hourly]
    bounds = Counter(str((detail["why"] or {}).get("bound")) for detail in found)
    run.claim(
        "feeds that say hourly are planned hourly, and the API says why",
        holds=all(abs(gap_s / 3600 - 1) < 0.05 for gap_s in gaps_s) and set(bounds) == {"publisher"},
        planned_gap_s=round(median(gaps_s), 1),
        bounds=dict(bounds),
        polling=found[0].get("polling"),
    )
    run.claim("feeds that say hourly are not polled meanwhile", holds=max(requests) <= 1, most_requests=max(requests))


async def check_refused(run: Run, begin_s: float) -> None:
    """Claim that a site's 429 pauses all its channels, and that they come back gently."""

    def crowd() -> list[Request]:
        requests = run.fleet.publisher.requests()
        return [request for request in requests if request.host.endswith(CROWD) and request.at_s >= begin_s]

    await until_so(lambda: any(request.status == 429 for request in crowd()), "a poll is refused", within_s=60)
    first_s = next(request.at_s for request in crowd() if request.status == 429)
    await asyncio.sleep(2)
    for feed in run.crowd:
        await run.fleet.publisher.answer(urlsplit(feed.url).netloc, 200)
    until_s = first_s + RETRY_AFTER_S
    await asyncio.sleep(until_s + 25 - time.time())
    meanwhile = [request for request in crowd() if first_s <= request.at_s < until_s]
    after = [request.at_s - until_s for request in crowd() if request.at_s >= until_s]
    run.claim(
        f"{CROWD_CHANNELS} channels of a site that answers 429 send at most {MOST_REFUSED} requests until Retry-After",
        holds=len(meanwhile) <= MOST_REFUSED,
        requests=len(meanwhile),
        by=sorted({request.worker for request in meanwhile}),
        retry_after_s=RETRY_AFTER_S,
    )
    in_10_s = sum(wait_s <= after[0] + 10 for wait_s in after) if after else 0
    run.claim(
        "the site is polled again, within its request budget",
        holds=0 < in_10_s <= 11,
        first_after_s=round(after[0], 1) if after else None,
        requests_in_10_s=in_10_s,
    )


def are_ever_rarer(times_s: Sequence[float]) -> bool:
    """Return whether the last gap between these times is at least twice the first."""
    gaps_s = [after_s - before_s for before_s, after_s in pairwise(times_s)]
    return len(gaps_s) > 1 and gaps_s[-1] >= 2 * gaps_s[0]


async def check_dead(run: Run, full_gaps_s: Mapping[str, float]) -> None:
    """Claim that a site that does not answer is polled ever more rarely, and at its full rate once it answers."""
    begin_s = await run.fleet.publisher.answer(DEAD, 0)
    await asyncio.sleep(DEAD_FOR_S)
    states = [detail["channel"]["state"] for detail in (await run.fleet.channels(run.dead)).values()]
    end_s = await run.fleet.publisher.answer(DEAD, 200)
    titles = {feed.url: await run.publish_one(feed.url) for feed in run.dead}
    attempts = {
        feed.url: [poll.at_s - begin_s for poll in run.polls()[feed.url] if begin_s <= poll.at_s < end_s]
        for feed in run.dead
    }
    full = {feed.url: DEAD_FOR_S / full_gaps_s[feed.url] for feed in run.dead}
    run.claim(
        "a dead site is polled ever more rarely",
        holds=all(len(times) <= 0.6 * full[url] and are_ever_rarer(times) for url, times in attempts.items()),
        attempts_after_s={url: [round(at_s, 1) for at_s in times] for url, times in attempts.items()},
        attempts_at_full_rate={url: round(number, 1) for url, number in full.items()},
        states=states,
    )
    url = run.dead[0].url
    good: list[float] = []

    def answered() -> bool:
        good[:] = [poll.at_s for poll in run.polls()[url] if poll.at_s >= end_s and poll.status == 200]
        return bool(good)

    await until_so(answered, "the site that was dead is polled", within_s=2 * DEAD_FOR_S + 20)
    gap_s = full_gaps_s[url]
    await asyncio.sleep(max(0.0, good[0] + 2 * gap_s + 2 * MAINTENANCE_S - time.time()))
    polls_s = [poll.at_s - good[0] for poll in run.polls()[url] if poll.at_s > good[0]]
    told = Counter(await run.fleet.told(run.feeds))
    run.claim(
        "its first good answer is told, and it is polled at full rate at once",
        holds=told[titles[url]] == 1 and bool(polls_s) and polls_s[0] <= 2 * gap_s + 1,
        first_answer_after_s=round(good[0] - end_s, 1),
        next_polls_after_s=[round(wait_s, 1) for wait_s in polls_s[:4]],
        full_gap_s=round(gap_s, 1),
    )


async def check_killed(run: Run) -> None:
    """Claim that the others take over a killed worker's polls."""
    before = await run.settled(20)
    names = await run.fleet.node_names()
    victim = "w3"
    (victim_id,) = [node for node, name in names.items() if name == victim]
    polled = [url for url in run.plain if victim_id in {node["id"] for node in before[url]["polling_set"]}]
    owned = {url for url in run.plain if before[url]["owner"]["id"] == victim_id}
    killed_s = await run.fleet.kill(victim)
    before_s = planned_gaps_s(before)
    await asyncio.sleep(LEASE_S + MAINTENANCE_S)
    after = await run.settled(30)
    settled_s = time.time()
    await asyncio.sleep(POLL_INTERVAL_S)
    end_s = time.time()
    alive = set(await run.fleet.node_names())
    broken = [
        feed.url
        for feed in run.feeds
        if not (detail := after[feed.url])["why"]
        or not {turn["node"] for turn in detail["why"]["turns"]} <= alive
        or len(detail["polling_set"]) < min(len(alive), math.ceil(detail["why"]["size"] - 0.02))
    ]
    run.claim("after a kill, polling sets are whole again", holds=not broken, broken=broken[:5], nodes=len(alive))
    phases = [
        Phase(killed_s - POLL_INTERVAL_S, killed_s - POLL_INTERVAL_S, killed_s, before_s),
        Phase(killed_s, settled_s, end_s, planned_gaps_s(after)),
    ]
    skipped, doubled = irregular_gaps(run.polls(), phases, run.plain)
    taken_over_s = LEASE_S + 2 * MAINTENANCE_S
    too_long = [gap for gap in skipped if gap.gap_s > 2 * gap.longest_s + taken_over_s]
    late = [gap for gap in skipped if gap.at_s > settled_s]
    others = [gap for gap in doubled if gap.url not in owned]
    run.claim(
        "after a kill, polls resume, and only channels of the killed owner get an irregular gap",
        holds=not too_long and not late and not others,
        polled_by_the_killed=len(polled),
        owned_by_the_killed=len(owned),
        skipped=len(skipped),
        skipped_after_settling=len(late),
        longest_gap_s=round(max((gap.gap_s for gap in skipped), default=0.0), 1),
        doubled=len(doubled),
        doubled_of_others=[_rounded(gap) for gap in others[:5]],
    )


async def check_told(run: Run) -> None:
    """Claim that each entry was told once."""

    async def all_are_told() -> bool:
        return run.published.keys() <= set(await run.fleet.told(run.feeds))

    with contextlib.suppress(AssertionError):  # the claim says it better
        await until(all_are_told, "all entries are told", within_s=2 * POLL_INTERVAL_S)
    told = Counter(await run.fleet.told(run.feeds))
    missing = [(title, url) for title, url in run.published.items() if title not in told]
    repeated = [title for title in run.published if told[title] > 1]
    run.claim(
        "each entry is told once",
        holds=not missing and not repeated,
        published=len(run.published),
        missing=len(missing),
        repeated=len(repeated),
        examples=[*missing[:3], *repeated[:3]],
    )


async def measured(seed: int) -> dict[str, Any]:
    """Do it all; return the report."""
    chance = random.Random(seed)  # noqa: S311 - a workload
    feeds = zipf_feeds(chance)
    async with contextlib.AsyncExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="corona-")))
        redis = await running.enter_async_context(PrivateRedis(scratch / "redis"))
        fleet = await running.enter_async_context(public_fleet(scratch, redis.url, feeds, workers=WORKERS, **SETTINGS))
        run = Run(fleet, feeds, chance)
        _report("workers have joined")
        await fleet.set_policy(**AIMS)
        await fleet.add(feeds)
        added_s = time.time()
        _report(f"{sum(feed.subscribers for feed in feeds)} subscriptions to {len(feeds)} channels")
        publishing = asyncio.create_task(run.publish())
        running.callback(publishing.cancel)
        await run.settled()
        continuous, details = await run.phase(1.5 * POLL_INTERVAL_S)
        check_budget(run, continuous, "continuous")
        check_hourly(run, continuous, details, continuous.settled_s)
        leveled, details = await run.phase(1.5 * POLL_INTERVAL_S, levels="2")
        await check_wedges(run, leveled, details)
        check_budget(run, leveled, "base 2")
        refused_s = time.time()
        again, details = await run.phase(POLL_INTERVAL_S)
        check_gaps(run, [continuous, leveled, again], "continuous, base 2, continuous")
        for feed in run.crowd:
            refused_s = await fleet.publisher.answer(urlsplit(feed.url).netloc, 429, RETRY_AFTER_S)
        await asyncio.gather(check_refused(run, refused_s), check_dead(run, again.gaps_s))
        memory = [resident_bytes(worker.pid) for worker in fleet.workers.values()]
        children = [sum(map(resident_bytes, children_of(worker.pid))) for worker in fleet.workers.values()]
        await check_killed(run)
        publishing.cancel()
        await check_told(run)
        return {
            "seed": seed,
            "workers": WORKERS,
            "channels": len(feeds),
            "subscriptions": sum(feed.subscribers for feed in feeds),
            "poll_interval_s": POLL_INTERVAL_S,
            "worker_mib": round(max(memory) / 2**20),
            "worker_children_mib": round(max(children) / 2**20),
            "seconds": round(time.time() - added_s),
            "claims": [{"claim": text, "holds": holds, **figures} for text, holds, figures in run.claims],
            "broken": [text for text, holds, _ in run.claims if not holds],
        }


def _rounded(gap: IrregularGap) -> dict[str, Any]:
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in gap._asdict().items()}


def _report(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.corona", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    figures = asyncio.run(measured(options.seed))
    if options.json:
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(figures["broken"] or ["All claims hold."]) + "\n")
    return bool(figures["broken"])


if __name__ == "__main__":
    sys.exit(main())
