"""Costs of a worker besides the messages that the simulation counts: commands to Redis, and memory.

Each figure is of one run of a task, counted on a real Redis; a test compares the figures with a worker's commands.
"""

from typing import NamedTuple


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
