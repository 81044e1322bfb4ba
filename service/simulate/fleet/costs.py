"""Costs of a worker besides the messages that the simulation counts: commands to Redis, and memory.

Each figure is of one run of a task, counted on a real Redis; a test compares the figures with a worker's commands. The
memory of Python objects is counted object by object.
"""

import gc
from collections.abc import Iterable
from sys import getsizeof
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import NamedTuple

import msgspec


class RedisCost(NamedTuple):
    """The cost of one run of a task: commands, also those in scripts, and the bytes of requests and replies."""

    commands: float
    bytes: float


HEARTBEAT = RedisCost(9, 390)
"""A node renews its lease, four times per lease."""
RING_CHANGE = RedisCost(1, 165)
"""A process reads one node that has joined or left the ring."""
TICK = RedisCost(1, 130)
"""A node trims its inbox, four times per maintenance interval."""
MAINTENANCE = RedisCost(8, 800)
"""A node reads the policy, changes of the registry, and changes of the names in its lookup directories."""
MATRIX_UPKEEP = RedisCost(8, 500)
"""A node reads the sizes and the reported loads of the matrices of both directories, every ``MATRIX_UPKEEP_S``."""
MATRIX_UPKEEP_S = 3.0
KEYSPACE = RedisCost(1.1, 60)
"""The load of one keyspace is measured, once per maintenance interval."""
KEYSPACES = 256
INBOX_READ = RedisCost(1, 130)
"""A node waits for messages in its inbox for ``INBOX_WAIT_S``."""
INBOX_WAIT_S = 5.0
INBOX_MESSAGE = RedisCost(3, 420)
"""A message, without its own bytes, is appended to an inbox, the inbox's expiry extended, and the message read."""
INBOX_COPIES = 2
"""The number of times that the bytes of a message in an inbox pass between nodes and Redis."""
INBOX_HEAD_BYTES = 210
"""The bytes that are added to a message in an inbox."""
PEER_REQUEST_BYTES = 650
"""The head of a request from worker to worker, and its response."""
PEER_MESSAGE_BYTES = 46
"""The bytes that are added to each message in a request from worker to worker."""
OWNERSHIP = RedisCost(5, 890)
"""A node takes the ownership of a channel and loads its state."""
VERSION = RedisCost(14, 3_700)
"""The owner stores a version with one entry. Its fan-out and search index are not part of the control plane."""
LISTED_CHANNEL = RedisCost(3, 400)
"""The full listing, every half hour, of one channel."""
FULL_LISTING_INTERVAL_S = 1_800.0
REFRESHED_NAME = RedisCost(71, 2_300)
"""The refresh of a public channel's name in the directory, every four hours; a name with 21 pairs was counted."""
REFRESH_INTERVAL_S = 14_400.0

PROCESS_BYTES = 75e6
"""The memory of a worker process without channels; parser processes are a cost of polls, and not included."""
SCHEDULED_CHANNEL_BYTES = 1_200
"""The memory for one channel that a worker has polled, without the protocol's state."""


_ALIGNMENT_BYTES = 16
_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def total_bytes(root: object, *, without: tuple[type, ...] = ()) -> int:
    """Return the bytes of ``root`` and of all objects that can be reached from it, each counted once.

    Classes, modules, functions and objects of the types ``without`` are neither counted nor followed.
    Small objects are rounded up as CPython's allocator does.
    """
    seen, waiting, found = set[int](), [root], 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (*_CODE, *without)):
            continue
        seen.add(id(one))
        found += -(-getsizeof(one) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        waiting.extend(_referents(one))
    return found


def _referents(one: object) -> Iterable[object]:
    # gc.get_referents returns nothing for structs that the garbage collector does not track.
    if isinstance(one, msgspec.Struct):
        return [getattr(one, name) for name in one.__struct_fields__]
    return gc.get_referents(one)
