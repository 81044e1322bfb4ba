"""Memory of the content exchange in a worker, per channel with cached content.

``python -m tests.bench.bench_peers`` prints JSON: bytes per channel by component, measured by tracemalloc, in a
separate process for each number of channels. The content itself is counted separately. The worker is one of sixteen
with equally many cached channels each: it has six neighbours, and learns about nine more workers through these.
"""

import argparse
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from service.location.bloom_filters import FilterShape, LocalFilter, next_shape
from service.location.content_cache import Content, ContentCache, digest_of
from service.location.location_node import LocationNode
from service.location.messages import FilterUpdate, Hello
from workers.peers.neighbour_overlay import DEPTH, FALSE_POSITIVES

CHANNELS = (1_000, 5_000)
CONTENT_BYTES = 2_500
NEIGHBOURS, FURTHER = 6, 9


def channel_url(number: int) -> str:
    """Return a random id of a worker or channel."""
    return f"{number:040x}"


class Weights:
    """Bytes by part."""

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self.of: dict[str, float] = {"channels": channels}

    @contextmanager
    def weighed(self, part: str, *, besides: int = 0) -> Iterator[None]:
        """Weigh what is made meanwhile and stays, without so many bytes per channel."""
        before, _ = tracemalloc.get_traced_memory()
        yield
        after, _ = tracemalloc.get_traced_memory()
        self.of[part] = round((after - before) / self._channels - besides, 1)


def measure_memory(channels: int) -> dict[str, float]:
    """Return bytes per channel."""
    luck = Random(1)  # noqa: S311 - no secret
    shape = next_shape(FilterShape(0, 64, 1, DEPTH), channels * (1 + FURTHER / NEIGHBOURS), FALSE_POSITIVES)
    cids = [channel_url(number) for number in range(channels)]
    heard = [
        (source, LocalFilter(shape, (f"{source} {number}" for number in range(channels))).bits)
        for source in map(channel_url, range(1, NEIGHBOURS + FURTHER + 1))
    ]
    tracemalloc.start()
    weights = Weights(channels)
    weights.of["filter_bits"] = shape.width
    cache, node = ContentCache(1 << 40, 3600.0), LocationNode(channel_url(0), shape)
    with weights.weighed("cache_besides_contents", besides=CONTENT_BYTES):
        for cid in cids:
            content = Content(luck.randbytes(CONTENT_BYTES - 500), luck.randbytes(500))
            cache.put(cid, digest_of(content), content, luck.random())
    with weights.weighed("own_documents_and_filter"):
        node.change(digest.hex() for digest in cache.digests)
    with weights.weighed("filters_of_neighbours"):
        for number, (source, bits) in enumerate(heard):
            neighbour = channel_url(1 + number % NEIGHBOURS)
            if number < NEIGHBOURS:
                node.add_link(neighbour, luck.random())
                node.on_message(neighbour, Hello(shape))
            node.on_message(neighbour, FilterUpdate(shape, source, 1 if number < NEIGHBOURS else 2, bits, 0))
    parts = ("cache_besides_contents", "own_documents_and_filter", "filters_of_neighbours")
    weights.of["all"] = round(sum(weights.of[part] for part in parts), 1)
    return weights.of


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=int, help="only so many, in this process")
    given = parser.parse_args()
    if given.channels:
        print(json.dumps(measure_memory(given.channels)))  # noqa: T201 - this is its output
        return
    for channels in CHANNELS:
        command = [sys.executable, "-m", "tests.bench.bench_peers", "--channels", str(channels)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
