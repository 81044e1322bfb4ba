"""Costs of a worker that the simulation does not measure: Redis commands and memory.

Each :class:`RedisCost` is the cost of running a task once, measured on a real Redis. A test compares these costs with
the commands that a worker actually sends. The memory of Python objects is computed by adding up the sizes of all
objects.
"""

import gc
from collections.abc import Iterable
from sys import getsizeof
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import NamedTuple

import msgspec


class RedisCost(NamedTuple):
    """The Redis cost of running a task once.

    - ``commands`` is the number of Redis commands, including those executed by scripts.
    - ``bytes`` is the total size of requests and replies.
    """

    commands: float
    bytes: float


HEARTBEAT = RedisCost(9, 300)
"""Cost of a heartbeat, by which a node renews its lease at each tick of its timer."""
RING_CHANGE = RedisCost(1, 165)
"""Cost of a ring change for each worker process: it reads which node has joined or left."""
MAINTENANCE = RedisCost(8, 800)
"""Cost of a node's maintenance, once per maintenance interval. The node reads the policy, changes of the registry of
channels, and changes of the names in its lookup directories."""
PAIRS_READ = RedisCost(10, 2_200)
"""Cost of reading attribute-value pairs again, once per maintenance interval. A node reads those of five names in each
of the two lookup directories that always exist."""
MATRIX_UPKEEP = RedisCost(8, 400)
"""Cost of a node's maintenance of load-balancing matrices, about every ``MATRIX_UPKEEP_S`` seconds. The node reads the
sizes and the reported loads of the matrices of both discovery directories."""
MATRIX_UPKEEP_S = 3.0
KEYSPACE = RedisCost(1.1, 60)
"""Cost of measuring the load of one keyspace, a CLASH server, once per maintenance interval."""
KEYSPACES = 256
INBOX_READ = RedisCost(1, 145)
"""Cost of one read of a node's inbox, which waits up to ``INBOX_WAIT_S`` for messages."""
INBOX_WAIT_S = 10.0
INBOX_MESSAGE = RedisCost(4, 550)
"""Cost of one message through an inbox, not counting the message's own bytes: the message is appended to the inbox, the
inbox's expiry is extended, the message is read, and the inbox is trimmed."""
INBOX_COPIES = 2
"""The number of times that a message in an inbox is transferred: from the sender to Redis, and from Redis to the
receiver."""
INBOX_HEAD_BYTES = 210
"""The number of bytes that are sent in addition to those of a message, if it goes through an inbox."""
PEER_REQUEST_BYTES = 650
"""The size of the headers of a request from worker to worker and of its response together, in bytes."""
PEER_MESSAGE_BYTES = 92
"""The number of bytes that are sent in addition to those of each message in a request from worker to worker."""
OWNERSHIP = RedisCost(5, 890)
"""Cost of taking the ownership of a channel: the new owner loads the channel's state."""
VERSION = RedisCost(14, 3_700)
"""Cost of storing a new version of a channel with one entry. Delivery to subscribers and the search index are not
included, because they are not part of the control plane."""
LISTED_CHANNEL = RedisCost(3, 400)
"""Cost per channel of the full listing, every half hour, in which nodes read the channels that they own."""
FULL_LISTING_INTERVAL_S = 1_800.0
REFRESHED_NAME = RedisCost(71, 2_300)
"""Cost of refreshing a public channel's name in the discovery directory, every four hours. It was counted for a name
with 21 attribute-value pairs."""
REFRESH_INTERVAL_S = 14_400.0

PROCESS_BYTES = 79.6e6
"""The memory of a worker process without nodes and channels. The processes that parse feeds are not included, because
they are a cost of polls."""
NODE_BYTES = 0.3e6
"""The memory of a node without channels, in addition to the state of the protocol between nodes."""
SCHEDULED_CHANNEL_BYTES = 1_600
"""The memory that a worker uses for each channel it polls, in addition to the state of the protocol between nodes."""


_ALIGNMENT_BYTES = 16
_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def total_bytes(root: object, *, without: tuple[type, ...] = ()) -> int:
    """Return the size in bytes of ``root`` and of all objects that can be reached from it, each counted once.

    Classes, modules, functions and objects of the types in ``without`` are not counted, and references that they
    contain are not followed.
    """
    # Sizes are rounded up to the multiples of 16 bytes that CPython allocates.
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
