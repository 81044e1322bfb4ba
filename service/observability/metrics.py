"""The Prometheus metrics of all processes; :mod:`service.net.health_endpoints` serves them.

Label values come from a fixed set in the code, such as outcomes, never from URLs or names, so that no publisher or user
can increase the number of time series.
"""

from collections.abc import Mapping
from typing import Final

from prometheus_client import Counter, Gauge, Histogram, Info

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
    "coronet_budget_polls_per_minute", "Maximum polls per minute of the whole fleet; 0 for no maximum."
)

OWNED_CHANNELS: Final = Gauge(
    "coronet_owned_channels",
    "Channels that this worker owns, by polling level (0: all nodes poll them), rounded to a whole one.",
    ["level"],
)

CHANNELS_BY_CONSTRAINT: Final = Gauge(
    "coronet_channels_by_constraint",
    "Channels that this worker owns, by the constraint that determines how often they are polled: none, longest-wait,"
    " channel-wait, channel-interval, publisher, failure, pause, nodes, channel-budget, host-budget, fleet-budget.",
    ["constraint"],
)

OUTBOX_USERS: Final = Gauge("coronet_outbox_users", "Users with items in their outbox.")

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
    "coronet_publisher_bytes_saved_total",
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

FILTER_BITS: Final = Gauge("coronet_filter_bits", "Width in bits of the attenuated Bloom filters for content location.")

VERSIONS: Final = Info("coronet_versions", "Versions of Coronet, Python and the Redis client in this process.")


class GaugeShare:
    """One node's part of a gauge with one label; the gauge shows the sum over all nodes of the process."""

    def __init__(self, gauge: Gauge) -> None:
        """Create a share that adds nothing to ``gauge`` yet."""
        self._gauge = gauge
        self._values: Mapping[str, float] = {}

    def set(self, values: Mapping[str, float]) -> None:
        """Replace this share by ``values``, by the value of the label."""
        for label in {*self._values, *values}:
            self._gauge.labels(label).inc(values.get(label, 0.0) - self._values.get(label, 0.0))
        self._values = dict(values)
