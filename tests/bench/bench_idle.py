"""CPU time and memory for 1,000 channels without updates, all programs together.

Run it alone on the machine: ``python -m tests.bench.bench_idle``. Prints one JSON object: for each program the share of
one core, the memory (proportional set size, children included), and the publisher's polls per second in the same time.
With ``--small``, the worker, the bot and the console are one process, which is shown as the console.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from service.embedded import ports
from service.feeds.canonical_urls import channel_id
from service.model import Channel, Validators
from service.store import Store
from service.store.channels.channel_records import Snapshot
from tests.support.product_process import Product, running
from tests.support.waiting import until

CHANNELS = 1_000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def process_tree(pid: int) -> list[int]:
    """Return a process and its descendants, which any of its threads can have started."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    children = [child for thread in threads for child in (thread / "children").read_text(encoding="ascii").split()]
    return [pid, *(one for child in children for one in process_tree(int(child)))]


def cpu_s(pid: int) -> float:
    """Return the processor time a process has used, and its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS_PER_S


def memory_mb(pid: int, kind: str = "Pss") -> float:
    """Return a process's proportional set size, or its resident set size for the kind "Rss"; 0 if it has just ended."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{kind}:")), 0) / 1024


async def add_channels(store: Store, origin: str) -> None:
    """Add the channels, listed by an admin: polled although nobody is subscribed."""
    for number in range(1, CHANNELS + 1):
        url = f"{origin}/feeds/{number}.xml"
        channel = Channel(channel_id(url), url, created_s=time.time(), private=True, listed=True)
        await store.channels.create(channel, Snapshot(Validators(), b"", url, origin), (), time.time())


async def measure(product: Product, requests: Path, for_s: float) -> dict[str, object]:
    """Return the CPU time and memory of all programs during the measurement."""
    owners = {pid: kind for kind in product.ready["processes"] for pid in product.pids(kind)}
    parts: dict[str, list[int]] = {}
    for pid, kind in owners.items():
        others = {one for other in owners.keys() - {pid} if other in process_tree(pid) for one in process_tree(other)}
        parts[kind] = [*parts.get(kind, []), *(one for one in process_tree(pid) if one not in others)]
    before = {kind: sum(map(cpu_s, pids)) for kind, pids in parts.items()}
    asked, began_s = requests.read_bytes().count(b"\n"), time.monotonic()
    await asyncio.sleep(for_s)
    took_s = time.monotonic() - began_s
    cores = {kind: round((sum(map(cpu_s, pids)) - before[kind]) / took_s, 4) for kind, pids in parts.items()}
    everything = [pid for pids in parts.values() for pid in pids]
    return {
        "polls_per_s": round((requests.read_bytes().count(b"\n") - asked) / took_s, 2),
        "share_of_a_core": cores,
        "share_of_a_core_in_all": round(sum(cores.values()), 4),
        "rss_mb": round(sum(memory_mb(pid, "Rss") for pid in everything), 1),
        "pss_mb": round(sum(map(memory_mb, everything)), 1),
        "mb_per_process": {kind: [round(memory_mb(pid), 1) for pid in pids] for kind, pids in parts.items()},
        "mb_per_part": {kind: round(sum(map(memory_mb, pids)), 1) for kind, pids in parts.items()},
    }


async def main(poll_interval_s: float, for_s: float, *, small: bool) -> None:
    """Run the benchmark and print its results."""
    with tempfile.TemporaryDirectory() as folder:
        port = ports.choose_ports(Path(folder) / "ports.json", {"publisher": 0})["publisher"]
        directory = Path(folder) / "publisher"
        publisher = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "service.cli", "sample-publisher", "--port", str(port), "--every", "1000000"),
            *("--directory", str(directory)),
        )
        try:
            size = ("--small",) if small else ("--workers", "3")
            options = ("--no-sample-feeds", "--poll-interval", str(poll_interval_s))
            async with running(Path(folder) / "state", *size, *options) as product, product.store() as store:
                await add_channels(store, f"http://127.0.0.1:{port}")
                requests = directory / "requests.jsonl"

                async def all_polled() -> bool:
                    return requests.read_bytes().count(b'"status":200') >= CHANNELS

                await until(all_polled, "every channel polled once", within_s=2 * poll_interval_s + 120)
                await asyncio.sleep(15)  # what the first polls set off has settled
                found = await measure(product, requests, for_s)
                print(json.dumps({"poll_interval_s": poll_interval_s, **found}, indent=1))  # noqa: T201 - the result
        finally:
            publisher.terminate()
            await publisher.wait()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--poll-interval", type=float, default=900.0)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--small", action="store_true")
    given = arguments.parse_args()
    asyncio.run(main(given.poll_interval, given.seconds, small=given.small))
