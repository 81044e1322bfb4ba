"""What every process counts and measures, defined once; served by :mod:`service.net.health`.

Labels hold only words from our own code (an outcome, never a URL or a name), so that no publisher
and no user can grow the number of series.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram, Info

_SECONDS_TO_A_DAY: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)

POLLS: Final = Counter(
    "coronet_polls_total", "Polls by how they ended: new, unchanged or an error's code.", ["outcome"]
)

DETECTION: Final = Histogram(
    "coronet_detection_seconds",
    "From an entry's publication (as its publisher dates it) to its detection.",
    buckets=_SECONDS_TO_A_DAY,
)

DELIVERY: Final = Histogram(
    "coronet_delivery_seconds",
    "From a delta's detection until the XMPP server has the message.",
    buckets=_SECONDS_TO_A_DAY,
)

RECEIPT: Final = Histogram(
    "coronet_receipt_seconds",
    "From handing a message to the XMPP server until its receipt, of clients that send receipts.",
    buckets=_SECONDS_TO_A_DAY,
)

POLL_LAG: Final = Histogram(
    "coronet_poll_lag_seconds",
    "From when a poll was planned until this worker got round to it: how far it is behind.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)

BUDGET: Final = Gauge(
    "coronet_budget_polls_per_minute", "What the whole fleet may poll at most, as this worker knows it; 0 for no cap."
)

OWNED: Final = Gauge(
    "coronet_owned_channels",
    "Channels that this worker owns, by how many nodes poll each, at most: 1, 2, 4, 8, …",
    ["nodes"],
)

OUTBOX_USERS: Final = Gauge("coronet_outbox_users", "Users with something waiting in their outbox.")

UNPOLLED: Final = Gauge(
    "coronet_unpolled_channels",
    "Channels that nobody has polled for three times their interval though they may be; known to the console.",
)

PARSE_KILLS: Final = Counter("coronet_parse_kills_total", "Parser processes killed for using too much time or memory.")

PARSER_WITHOUT_SECCOMP: Final = Gauge(
    "coronet_parser_without_seccomp",
    "1 if only resource limits keep parser processes from files and network, for lack of a seccomp filter.",
)

HANDED_OVER: Final = Counter(
    "coronet_parse_handed_over_total",
    "Documents that took too long for the prompt parser and were read again by the slow one.",
)

LOOP_LAG: Final = Histogram(
    "coronet_loop_lag_seconds",
    "How late this process's event loop is: from when a timer was due until it ran.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)

MESSAGES: Final = Counter("coronet_messages_total", "Messages handed to the XMPP server.")

GROUP_MOVES: Final = Counter(
    "coronet_key_group_moves_total", "Splits and merges of key groups that were carried through.", ["kind"]
)

MATRIX_CELLS: Final = Gauge(
    "coronet_matrix_cells",
    "Cells of all matrices of the directory that have several, by what they are about: channel or entry.",
    ["about"],
)

CONTENTS: Final = Counter(
    "coronet_contents_total",
    "Contents of channels that were looked for, by where they were found: cache, hop1, hop2, hop3, …, owner, store, "
    "publisher.",
    ["source"],
)

CONTENT_BYTES: Final = Counter("coronet_content_bytes_total", "Bytes of those contents.", ["source"])

PUBLISHER_BYTES_SAVED: Final = Counter(
    "coronet_publisher_bytes_saved_total",
    "Bytes that publishers did not have to send because what a poll compares with was found elsewhere.",
)

LOCAL_FAILURES: Final = Counter(
    "coronet_location_failures_total",
    "Lookups that found nothing near: no filter matched (none), or one matched that was wrong (false-positive).",
    ["why"],
)

PEER_REFUSALS: Final = Counter(
    "coronet_peer_refusals_total", "What other workers sent and was not taken, by reason.", ["reason"]
)

HTTP_CONNECTIONS_ENDED: Final = Counter(
    "coronet_http_connections_ended_total",
    "Connections of HTTP clients that this process ended or turned away, by reason: no complete headers in time "
    "(headers), no body in time (body), nothing of the answer read in time (answer), no request (idle), too many "
    "requests at once (pipelining), too many connections from one address (address) or in all (full).",
    ["reason"],
)

NEIGHBOURS: Final = Gauge("coronet_neighbours", "Neighbours of this worker, by kind: near or far.", ["kind"])

CACHE_BYTES: Final = Gauge("coronet_content_cache_bytes", "What the cache of contents takes.")

CACHE_ENTRIES: Final = Gauge("coronet_content_cache_entries", "How many contents are in it.")

FILTER_BITS: Final = Gauge("coronet_filter_bits", "Width of the filters that say who has which content.")

VERSIONS: Final = Info("coronet_versions", "What this process runs.")
