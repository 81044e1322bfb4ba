"""One asking process of :mod:`tests.live.matrices`: ``python -m tests.live.query_process PLAN``.

It sends queries like a bot or a console, and does nothing else: queries for one pair, at a rate that rises linearly,
stays and falls at once, and a few queries for other pairs. A query succeeds if its answer arrives within a second of
its due time and has names. Prints an empty line when it is ready, waits for a line with the time at which to begin,
and prints a JSON array at the end.
"""

import asyncio
import random
import sys
import time

import msgspec

from service.discovery.search_candidates import require_all
from service.errors import CellsUnavailable, StoreUnavailable
from service.settings import Settings
from service.store import open_store

TICK_S = 0.05
IN_TIME_S = 1.0
LIMIT = 10


class AskingPlan(msgspec.Struct):
    """What to ask: queries per second for ``pair``, and the rate of queries for the other pairs, each drawn evenly.

    Times are seconds since the beginning. The rate is ``low_s`` until ``rise_s``, rises to ``high_s`` until ``top_s``,
    stays until ``drop_s`` and is ``low_s`` again until ``end_s``.
    """

    redis_url: str
    pair: str
    others: list[str]
    others_s: float
    low_s: float
    high_s: float
    rise_s: float
    top_s: float
    drop_s: float
    end_s: float

    def rate_s(self, at_s: float) -> float:
        """Return the queries per second for the pair at a time."""
        if at_s < self.rise_s or at_s >= self.drop_s:
            return self.low_s
        risen = min(1.0, (at_s - self.rise_s) / (self.top_s - self.rise_s))
        return self.low_s + (self.high_s - self.low_s) * risen


class Asked(msgspec.Struct, array_like=True):
    """One query for the pair: when it was due (since the beginning), its duration, and whether it has succeeded."""

    due_s: float
    took_s: float
    succeeded: bool


async def run(plan: AskingPlan) -> list[Asked]:
    """Send the queries; return those for the pair."""
    store = open_store(Settings(redis_url=plan.redis_url))
    directory, asked = store.entry_directory, list[Asked]()
    tasks, drawn = set[asyncio.Task[None]](), random.Random(4)  # noqa: S311 - a workload

    async def ask(pair: str, due_s: float) -> None:
        try:
            names = (await directory.find(require_all([pair]), (), LIMIT)).names
        except (StoreUnavailable, CellsUnavailable):
            names = ()
        took_s = time.monotonic() - begin_s - due_s
        if pair == plan.pair:
            asked.append(Asked(due_s, took_s, bool(names) and took_s <= IN_TIME_S))

    def begin(pair: str, due_s: float) -> None:
        task = asyncio.create_task(ask(pair, due_s))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await asyncio.gather(*(directory.find(require_all([pair]), (), LIMIT) for pair in [plan.pair, *plan.others]))
    sys.stdout.write("\n")
    sys.stdout.flush()
    begin_s = float(await asyncio.to_thread(sys.stdin.readline))
    owed = owed_others = due_s = 0.0
    while due_s < plan.end_s:
        await asyncio.sleep(begin_s + due_s - time.monotonic())
        owed, owed_others = owed + plan.rate_s(due_s) * TICK_S, owed_others + plan.others_s * TICK_S
        for _ in range(int(owed)):
            begin(plan.pair, due_s)
        for _ in range(int(owed_others)):
            begin(drawn.choice(plan.others), due_s)
        owed, owed_others = owed % 1, owed_others % 1
        due_s += TICK_S
    await asyncio.gather(*tasks)
    await store.close()
    return asked


if __name__ == "__main__":
    result = asyncio.run(run(msgspec.json.decode(sys.argv[1], type=AskingPlan)))
    sys.stdout.buffer.write(msgspec.json.encode(result))
