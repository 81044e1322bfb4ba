"""What the hybrid falls back on: Tapestry's mesh, and home nodes (§III.A).

Ids and GUIDs are hexadecimal, and resolved from the last digit on: each hop goes to the nearest server that agrees
with the GUID in one digit more. Where no server has the digit, the next higher one that a server has is taken, the
same for all who come that far: so each GUID has one root.
"""

from functools import cache
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from service.simulate.location_graph import Ways
from service.simulate.location_net import HEADER_BYTES, QUERY_BYTES

DIGITS = 8
"""So many resolve a thousand servers."""
POINTER_BYTES = 60


class Found(NamedTuple):
    """Where a query ended, how long that took, and what went along interdomain edges."""

    holder: int
    time_s: float
    crossed_bytes: int


@cache
def guid(document: str) -> int:
    """Return the document's GUID."""
    return int.from_bytes(blake2b(document.encode(), digest_size=8, person=b"guid").digest(), "big")


class Tapestry:
    """The mesh, and the pointers to documents that servers along it keep."""

    def __init__(self, ways: Ways, rng: np.random.Generator) -> None:
        """Draw ids for all servers."""
        self.servers = ways.servers
        self._ways = ways
        self._latency_s, self._per_byte, self._crossings = ways.lists
        ids: list[int] = rng.integers(0, 16**DIGITS, ways.servers).tolist()
        self._members: dict[tuple[int, int], list[int]] = {}
        for level in range(DIGITS + 1):
            for server, number in enumerate(ids):
                self._members.setdefault((level, number % 16**level), []).append(server)
        self._nearest: dict[tuple[int, int, int], int] = {}
        self._pointers: dict[str, dict[int, set[int]]] = {}

    def path(self, start: int, document: str) -> list[int]:
        """Return the servers on the way from one to the document's root, itself first."""
        here, suffix, wanted = start, 0, guid(document)
        found = [start]
        for level in range(DIGITS):
            if len(self._members[level, suffix]) == 1:
                break
            digit = wanted >> 4 * level & 15
            while (level + 1, suffix + (digit << 4 * level)) not in self._members:
                digit = (digit + 1) & 15
            suffix += digit << 4 * level
            key = (here, level, suffix)
            there = self._nearest.get(key)
            if there is None:
                members = self._members[level + 1, suffix]
                there = self._nearest[key] = members[int(np.argmin(self._ways.latency_s[here, members]))]
            if there != here:
                found.append(there)
                here = there
        return found

    def publish(self, holder: int, document: str) -> int:
        """Leave a pointer at each hop to the root; return what went along interdomain edges."""
        path = self.path(holder, document)
        pointers = self._pointers.setdefault(document, {})
        for server in path:
            pointers.setdefault(server, set()).add(holder)
        return self._crossed(path, POINTER_BYTES + HEADER_BYTES)

    def withdraw(self, holder: int, document: str) -> int:
        """Take these pointers away again."""
        path = self.path(holder, document)
        for server in path:
            self._pointers[document][server].discard(holder)
        return self._crossed(path, POINTER_BYTES + HEADER_BYTES)

    def locate(self, start: int, document: str) -> Found:
        """Go towards the root until there is a pointer, then to the nearest holder from there."""
        pointers = self._pointers[document]
        path = self.path(start, document)
        time_s = 0.0
        for place, server in enumerate(path):
            if place:
                time_s += self.hop_s(path[place - 1], server)
            if pointers.get(server):
                latency_s = self._latency_s[server]
                holder = min(pointers[server], key=lambda each: (latency_s[each], each))
                way = [*path[: place + 1], holder]
                return Found(holder, time_s + self.hop_s(server, holder), self._crossed(way, QUERY_BYTES))
        raise AssertionError(f"The root of {document} has no pointer to it.")

    def hop_s(self, one: int, other: int) -> float:
        """Return how long a query takes from one server to another."""
        return self._latency_s[one][other] + (QUERY_BYTES * self._per_byte[one][other] if one != other else 0.0)

    def _crossed(self, way: list[int], size: int) -> int:
        return size * sum(self._crossings[one][other] for one, other in pairwise(way))


def home_s(tapestry: Tapestry, start: int, document: str, holder: int) -> float:
    """Return how long a query takes by the document's home node, which knows the holder nearest to the client."""
    home = guid(document) % tapestry.servers
    return tapestry.hop_s(start, home) + tapestry.hop_s(home, holder)
