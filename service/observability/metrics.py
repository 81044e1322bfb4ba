"""The Prometheus metrics of all processes; :mod:`service.net.health_endpoints` serves them.

Label values come from a fixed set in the code, such as outcomes, and never from URLs or names. Therefore no publisher
or user can increase the number of time series. Metric names follow the conventions of Prometheus: base units as
suffixes, and ``_total`` for counters. docs/operators.md lists all metrics.
"""

from collections.abc import Mapping
from typing import Final

from prometheus_client import Counter, Gauge, Histogram, Info, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call] # a series beside each counter, which nothing reads

_SECONDS_TO_A_DAY: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)

POLLS: Final = Counter("coronet_polls_total", "Polls, by outcome: new, unchanged or an error code.", ["outcome"])

DETECTION_DELAY: Final = Histogram(
    "coronet_detection_seconds",
    "Time from the publication date of an entry, as stated by its publisher, to its detection.",
    buckets=_SECONDS_TO_A_DAY,
)

DELIVERY_DELAY: Final = Histogram(
    "coronet_delivery_seconds",
    "Time from the detection of a change until the XMPP server has the message.",
    buckets=_SECONDS_TO_A_DAY,
)

RECEIPT_DELAY: Final = Histogram(
    "coronet_receipt_seconds",
    "Time from sending a message to the XMPP server until its delivery receipt, for clients that send receipts.",
    buckets=_SECONDS_TO_A_DAY,
)

POLL_LAG: Final = Histogram(
    "coronet_poll_lag_seconds",
    "Time from when a poll was due until this worker started it.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)

POLL_BUDGET: Final = Gauge(
    "coronet_poll_budget_per_second", "Maximum polls per second of the whole fleet; 0 for no maximum."
)

FETCH_TIME: Final = Histogram(
    "coronet_fetch_seconds",
    "Duration of a request to a publisher or hub, with its redirects, whether it succeeded or not.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)

NODES: Final = Gauge(
    "coronet_nodes",
    "Nodes of this worker that are in the ring, by network: up, or down if all publishers began to fail at once.",
    ["network"],
)

OWNED_CHANNELS: Final = Gauge(
    "coronet_owned_channels",
    "Channels that this worker owns, by polling level (0: all nodes poll them), rounded to a whole one.",
    ["level"],
)

PLANNED_CHANNELS: Final = Gauge(
    "coronet_planned_channels",
    "Channels that this worker owns, by the constraint that determines how often they are polled: none, longest-wait,"
    " channel-wait, channel-interval, publisher, failure, pause, nodes, channel-budget, host-budget, fleet-budget.",
    ["constraint"],
)

OUTBOX_USERS: Final = Gauge(
    "coronet_outbox_users", "Users with undelivered items. Every bot measures it for the whole fleet."
)

OUTBOX_OLDEST: Final = Gauge(
    "coronet_outbox_oldest_seconds",
    "Age of the oldest queued item of the fleet. It may wait for quiet hours, a digest or a user who is offline.",
)

DELIVERY_OVERDUE: Final = Gauge(
    "coronet_delivery_overdue_seconds",
    "Time since which the message that this bot should have sent first has been due; 0 if it sends in time. Waits for"
    " quiet hours, digests and offline users do not count.",
)

DEAD_LETTERS: Final = Gauge(
    "coronet_dead_letters", "Messages that were given up and that nobody has deleted; only the console measures it."
)

XMPP_SESSIONS: Final = Gauge(
    "coronet_xmpp_sessions",
    "XMPP addresses that this bot serves, by whether it has a session: connected or disconnected. A bot that stands by"
    " serves none.",
    ["state"],
)

LEASES_LOST: Final = Counter(
    "coronet_leases_lost_total",
    "Leases that other processes took over because this process did not renew them in time, by role: worker or bot.",
    ["role"],
)

CHANNELS: Final = Gauge(
    "coronet_channels",
    "Channels by state: active, failing (the last poll failed), paused (by an admin) or blocked (the host); only the"
    " console measures it.",
    ["state"],
)

SUBSCRIPTIONS: Final = Gauge("coronet_subscriptions", "Subscriptions of all users; only the console measures it.")

USERS: Final = Gauge("coronet_users", "Users who have written to a bot; only the console measures it.")


UNPOLLED_CHANNELS: Final = Gauge(
    "coronet_unpolled_channels",
    "Channels whose poll is overdue by three times their poll interval; only the console measures it.",
)

PARSE_KILLS: Final = Counter(
    "coronet_parse_kills_total", "Parser processes killed because they exceeded the CPU time or memory limit."
)

PARSER_WITHOUT_SECCOMP: Final = Gauge(
    "coronet_parser_without_seccomp",
    "1 if parser processes are confined by resource limits only, because the kernel supports no seccomp filter.",
)

FAST_PARSER_TIMEOUTS: Final = Counter(
    "coronet_parse_handed_over_total",
    "Documents that took too long in the queue for fast documents and were parsed again in the queue for slow ones.",
)

LOOP_LAG: Final = Histogram(
    "coronet_loop_lag_seconds",
    "Delay of timers in this process's event loop.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)

REDIS_ERRORS: Final = Counter(
    "coronet_redis_errors_total",
    "Failed calls to Redis, by kind: unreachable (no reply) or refused (out of memory, read-only, loading, no disk).",
    ["kind"],
)
for _kind in ("unreachable", "refused"):  # a rate needs the series before its first error
    REDIS_ERRORS.labels(_kind)

STORE_REFUSED: Final = Gauge(
    "coronet_store_refused", "1 if this process refuses the store because it lost data or belongs to another fleet."
)

REDIS_MEMORY: Final = Gauge(
    "coronet_redis_memory_bytes", "Memory that Redis uses, summed over all primaries; only the console measures it."
)

REDIS_MEMORY_SHARE: Final = Gauge(
    "coronet_redis_memory_ratio",
    "Greatest share of its maxmemory that a primary of Redis uses; 0 without maxmemory. Only the console measures it.",
)

REDIS_PERSISTENCE_FAILURES: Final = Gauge(
    "coronet_redis_persistence_failing",
    "Primaries of Redis that do not write the append-only file, or failed to write it last; only the console measures"
    " it.",
)

CONSOLE_REQUESTS: Final = Histogram(
    "coronet_console_request_seconds",
    "Duration of a request to the console, by class of route: page, api, static, health, feed (Atom), hook (pushes"
    " of hubs) or other (no route). Streams of live updates do not count.",
    ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)

MESSAGES: Final = Counter("coronet_messages_total", "Messages sent to the XMPP server.")

GROUP_MOVES: Final = Counter(
    "coronet_key_group_moves_total", "Completed splits and merges of key groups, by kind.", ["kind"]
)

MATRIX_CELLS: Final = Gauge(
    "coronet_matrix_cells",
    "Cells of all discovery matrices with more than one cell, by directory: channel or entry.",
    ["about"],
)

CONTENT_LOOKUPS: Final = Counter(
    "coronet_contents_total",
    "Lookups of channel content, by the source that had it: cache, hop1, hop2, hop3, …, owner, store, publisher.",
    ["source"],
)

CONTENT_BYTES: Final = Counter(
    "coronet_content_bytes_total", "Bytes of channel content from lookups, by source.", ["source"]
)

PUBLISHER_BYTES_SAVED: Final = Counter(
    "coronet_publisher_saved_bytes_total",
    "Bytes that publishers did not have to send because a poll found the previous content elsewhere.",
)

LOOKUP_FAILURES: Final = Counter(
    "coronet_location_failures_total",
    "Lookups that did not find content at a nearby worker: no filter matched (none), or a filter matched wrongly "
    "(false-positive).",
    ["why"],
)

DIRECTORY_LOOKUPS: Final = Counter(
    "coronet_directory_lookups_total",
    "Lookups in workers' directories, by outcome: answered, too few names (insufficient), or no answer in time "
    "(unanswered).",
    ["outcome"],
)

NODE_MESSAGES: Final = Counter(
    "coronet_node_messages_total",
    "Messages of the polling protocol to nodes, by way: within the process, to another worker (peer), or through Redis "
    "(inbox).",
    ["way"],
)

PEER_REFUSALS: Final = Counter(
    "coronet_peer_refusals_total", "Rejected messages of other workers, by reason.", ["reason"]
)

HTTP_CONNECTIONS_ENDED: Final = Counter(
    "coronet_http_connections_ended_total",
    "HTTP client connections that this process closed or refused, by reason: headers incomplete in time (headers), "
    "body incomplete in time (body), response not read in time (answer), no request (idle), too many requests at once "
    "(pipelining), too many connections from one address (address) or in total (full).",
    ["reason"],
)

NEIGHBOURS: Final = Gauge(
    "coronet_neighbours", "Neighbours of this worker in the content overlay, by kind: near or far.", ["kind"]
)

CACHE_BYTES: Final = Gauge("coronet_content_cache_bytes", "Bytes of channel content in this worker's cache.")

CACHE_ENTRIES: Final = Gauge("coronet_content_cache_entries", "Channel versions in this worker's content cache.")

FILTER_WIDTH: Final = Gauge("coronet_filter_width_bytes", "Width of the attenuated Bloom filters for content location.")

VERSIONS: Final = Info("coronet_versions", "Versions of Coronet, Python and the Redis client in this process.")


class GaugeShare:
    """The part of a Prometheus gauge that one node contributes.

    A worker process can run several nodes. Each node sets an amount for each value of the gauge's label. For each
    label value, the gauge shows the sum over all nodes of the process. The gauge must have exactly one label.
    """

    def __init__(self, gauge: Gauge) -> None:
        """Create a share that initially adds nothing to ``gauge``."""
        self._gauge = gauge
        self._values: Mapping[str, float] = {}

    def set(self, values: Mapping[str, float]) -> None:
        """Replace this node's share with ``values``, which maps label values to amounts."""
        if values == self._values:
            return
        for label in {*self._values, *values}:
            self._gauge.labels(label).inc(values.get(label, 0.0) - self._values.get(label, 0.0))
        self._values = dict(values)
