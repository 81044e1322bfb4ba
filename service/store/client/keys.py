"""All Redis keys of Coronet: their names, types and contents.

No other module builds key names. The tables below list the name, the Redis type and the contents of each key. For each
key, the code below the tables defines a constant, or a function that returns the key's name.

Conventions:

- The part of a name in braces is its hash tag in Redis Cluster. Keys with the same hash tag are in the same slot. Keys
  that one script changes together therefore share a hash tag (docs/architecture/store.md).
- ``CID`` is a channel id (40 hexadecimal digits), ``UID`` a user id (:func:`user_id`), ``NODE`` a worker's node id.
- "KEY → VALUE" describes the fields of a hash, or the members of a sorted set (zset) and their scores.
- Values are text unless another format is named. For msgpack and JSON, the name of the struct is given.
- Unix times are in seconds unless the table says ms.
- "expires" means that the key can expire.
- "~" before a number marks an approximate maximum length, because Redis trims streams in whole blocks.

Fleet: ring, leases, policy, messages between processes
=======================================================

===========================  ======  =====================================================================
key                          type    contents
===========================  ======  =====================================================================
``cn:{r}:nodes``             hash    the ring: node id → ``EPOCH [name, joined_s, metrics_url, process]``: a decimal,
                                     a space, JSON
``cn:{r}:leases``            zset    node id → end of its lease (ms, Redis's clock)
``cn:{r}:changes``           stream  last 1,000 changes of the ring: entry id ``VERSION-0`` (time in µs), ``n`` ids of
                                     the nodes that joined, left or expired
``cn:{r}:drained``           zset    name of a worker that admins keep out of the ring → when it last reported (ms)
``cn:{p}:identity``          hash    identity of the store: ``fleet`` (id), ``counter``, ``grown_ms`` (last increment),
                                     ``accepted_ms`` (last acceptance by the operator), ``refused`` (reason why a
                                     process refuses this store), ``schema`` (format version of the data), ``needs``
                                     (lowest format version that a process must support); see
                                     :mod:`service.store.client.data_loss_guard`
``cn:{p}:restored``          hash    while a backup is restored: channel id → last version whose fan-out was complete
                                     when the backup began
``cn:{p}:aims``              string  the fleet policy that admins set: FleetObjective (JSON)
``cn:{p}:history``           list    the last 100 revisions of the policy (JSON), newest first
``cn:{p}:revision``          string  number of the policy's last revision
``cn:{p}:bounds``            hash    channel id → its poll bounds, and the ones that they replaced (JSON)
``cn:{p}:bounds:edition``    string  counter of changes of any channel's bounds
``cn:{l:NAME}:holders``      zset    process that shares the partitions of NAME → end of its lease (ms)
``cn:{l:NAME}:parts``        hash    number of a partition → the process that holds it
``cn:{n:NODE}:inbox``        stream  messages to a node: ``k`` kind, ``f`` sender, ``m`` payload; ~10,000; expires
``cn:{q:ID}``                list    replies to the request of this id (msgpack); expires
===========================  ======  =====================================================================

Channels
========

===========================  ======  =====================================================================
key                          type    contents
===========================  ======  =====================================================================
``cn:{g:XX}:channels``       set     registry: ids of channels that begin with these two digits
``cn:{g}:changes``           zset    channels that have changed, or whose subscribers have → number of the last change
``cn:{g}:numbers``           hash    ``last``: number of the last of these changes; ``removed``: number of the last one
                                     that was removed from ``changes``
``cn:{g}:protected``         set     ids of channels that have or had a credential
``cn:{g:XX}:hubs``           set     ids of channels in the registry XX that have a WebSub subscription
``cn:{c:CID}``               hash    a channel with the log of its versions: see
                                     :mod:`service.store.channels.channel_records`
``cn:{c:CID}:polls``         list    its last 10 PollResults, newest first: see
                                     :func:`service.store.channels.channel_records.pack_result`
``cn:{c:CID}:joining``       hash    id of a channel whose subscribers are moving here → version at which they join
``cn:{c:CID}:units``         hash    fan-out of the next version, if it is divided by key groups: ``version``;
                                     ``queued``, users so far; label of a key group that is not finished → ``UNTIL
                                     TOKEN CURSOR``: end of its claim (ms), token of the claim, position; expires
``cn:{c:CID}:pause``         string  no polls until the key expires: ``1`` at the publisher's request, ``admin``
                                     at an admin's
``cn:{c:CID}:budget``        hash    token bucket of the channel's polls: ``tokens``, ``at_ms``; expires
``cn:{c:CID}:hub``           string  its WebSub subscription: HubState (msgpack)
``cn:{c:CID}:pushes``        string  pushes of its hub in the present minute; expires
``cn:{c:CID}:pushes:excess`` string  pushes above the limit that became a poll in the present minute; expires
``cn:{push}:of:CID``         list    documents that its hub pushed and no worker has taken: Push (msgpack); expires
``cn:{push}:sizes``          hash    channel id → bytes of that list; ``large`` → bytes of all lists above the size
                                     limit for small ones, ``all`` → bytes of all lists; expires
``cn:{push}:until``          zset    channel id → when its list expires (ms); expires
``cn:{ps:SERVICE}:nodes``    hash    channel id → PublishedPosition (msgpack) on this pubsub service
===========================  ======  =====================================================================

Channel index (CLASH)
=====================

===========================  ======  =====================================================================
key                          type    contents
===========================  ======  =====================================================================
``cn:{clash:K}``             hash    server table of keyspace K: see :mod:`service.clash.server_table`
``cn:{clash:K}:pages``       zset    first position of each page of subscriptions; all scores are 0
``cn:{clash:K}:records``     hash    first position of a page → its records of 28 bytes: see
                                     :mod:`service.store.subscriptions.keyspace_store`
``cn:{clash:K}:channels``    hash    first 8 bytes of a channel id → number of its subscriptions in the keyspace
``cn:{clash:K}:ends``        zset    positions of tombstones (records of ended subscriptions) in key groups that
                                     are moving here
``cn:{clash:K}:told``        hash    label of a key group → deliveries since the last measurement
``cn:{clash:K}:load``        hash    label of a key group → ``NOW LATELY AT``: deliveries per second at present and
                                     lately, when they were measured; expires
===========================  ======  =====================================================================

Directory and saved searches
============================

===========================  ======  =====================================================================
key                          type    contents
===========================  ======  =====================================================================
``cn:{m:B}``                 hash    bucket B of all cells of matrices: id of a cell → its postings, or a header: see
                                     ``scripts/cell_common.lua``; expires
``cn:{m:B}:ID``              hash    a cell with more than a few postings, whose id is ID: see
                                     ``scripts/cell_common.lua``; expires
``cn:{nm:B}:ABOUT``          hash    bucket B of all content names: key of the name (8 bytes) → expiry (Unix time in
                                     s, 4 bytes), name; expires
``cn:{mx}:ABOUT:sizes``      hash    AV-pair → MatrixSize (msgpack) of each matrix with several cells; ABOUT is
                                     ``channel`` or ``entry``
``cn:{ld}:announced``        zset    announcements of directories in the workers' memory: DirectoryAnnouncement
                                     (msgpack) → its end (Unix s, Redis's clock)
``cn:{mx}:ABOUT:load``       hash    ``PARTITION ROW AV-PAIR`` of each busy cell → its load: see
                                     ``scripts/matrix_count_load.lua``; expires
``cn:{words:ABOUT:S}``       hash    shard S of the words with which public channels or entries are registered, with
                                     their stems unless equal (``WORD STEM``) → time of the last registration (Unix h)
``cn:{words:ABOUT}:HOUR``    list    words that were new in an hour, the latest first; expires
``cn:{ws:B}``                hash    bucket B of all saved searches: id → SearchCondition (msgpack)
``cn:{ws}:log``              stream  changes of the buckets: ``i`` id, ``s`` SearchCondition (msgpack) or empty for
                                     a removal; ~10,000
===========================  ======  =====================================================================

Users
=====

===========================  ======  =====================================================================
key                          type    contents
===========================  ======  =====================================================================
``cn:{a}:users``             set     ids of all users who ever wrote to a bot
``cn:{u:UID}``               hash    a user: ``jid``; ``seq`` and ``numbers``, counters of changes and of subscriptions;
                                     ``watches``, counter of saved searches; ``welcomed``, ``receipts`` (0 or 1);
                                     ``habits`` UserSettings (JSON), ``client_language``;
                                     ``was:CID``, ids of channels that moved to this one while subscribed;
                                     ``unheard``, matches of saved searches since they were paused;
                                     ``unreachable``, set while suspended for bounces: 1 if that also paused
                                     the saved searches
``cn:{u:UID}:restrictions``  hash    set by admins: ``jid``, ``suspended``, ``most_subscriptions``; survives erasure
                                     of the user, and expires then
``cn:{u:UID}:subs``          hash    user index, the authoritative list of subscriptions: channel id (20 bytes) →
                                     ``NUMBER SEQ SEEN SINCE``, and the version before the pause if it is
                                     paused: see ``scripts/user_index.lua``
``cn:{u:UID}:intents``       hash    channel id → ``add SEQ``, ``move SEQ`` or ``del SEQ``: a change of the user index
                                     that the channel index may lack
``cn:{u:UID}:preferences``   hash    number of a subscription, 0 for all, or < 0 for a folder → Preferences (msgpack)
``cn:{u:UID}:feed``          string  token in the addresses of the user's Atom feeds
``cn:{u:UID}:imports``       list    feeds of OPML lists that are still to be subscribed: QueuedFeed (msgpack)
``cn:{u:UID}:import``        hash    the user's import: ``id``, ``started_s``, ``new``, ``existing``, and ``shown`` if
                                     the user was sent a message about the progress
``cn:{u:UID}:import:failed`` list    its feeds that could not be subscribed: FailedFeed (msgpack)
``cn:{u:UID}:searches``      hash    number of a saved search → SavedSearch (msgpack)
``cn:{u:UID}:hits``          set     ``CID VERSION`` that a saved search has matched; expires
``cn:{u:UID}:rate:WHAT``     string  uses of WHAT in the present window; survives erasure; expires
``cn:{i}:users``             zset    ids of users who may have intents → when they were announced (ms)
``cn:{i}:importing``         hash    id of a user with an import → address of the bot that carries it out
``cn:{a}:domains``           hash    domain whose users admins have blocked → HostBlock (JSON)
``cn:{a}:leaving``           set     ids of users whose erasure has begun
``cn:{a}:feeds``             hash    token in the addresses of a user's Atom feeds → id of the user
``cn:{a}:restricted``        zset    ids of erased users whose restrictions are kept → when those expire
``cn:{a}:erased``            zset    ids of users who were erased in the last 400 days → when (Unix s)
``cn:{a}:floor``             string  greatest ``seq`` of recently erased users; expires
``cn:{v}:invites``           hash    SHA-256 of an invitation code → ``USES UNTIL``: remaining uses, end of validity
``cn:{v}:guests``            set     ids of users who came with an invitation
===========================  ======  =====================================================================

Deliveries to users
===================

===========================  ======  =====================================================================
key                          type    contents
===========================  ======  =====================================================================
``cn:{u:UID}:out``           stream  outbox: ``c`` channel id, ``v`` version, ``t`` when queued, ``e`` 1 for edits,
                                     ``m`` position and marks of each article (JSON), ``x`` positions of changes
                                     to omit (JSON), ``w`` saved searches that matched: MatchedSearch (JSON),
                                     ``a`` version after which all versions up to ``v`` are delivered together;
                                     of an announcement ``e`` is ``a`` and ``v`` its number
``cn:{u:UID}:fly``           hash    message id → Batch (JSON) that was claimed and is not complete
``cn:{u:UID}:told``          list    the last 20 messages: SentMessage (JSON), newest first; expires
``cn:{u:UID}:told:at``       hash    id of a channel with a delivery interval → when it was delivered last (ms); expires
``cn:{u:UID}:articles``      hash    mark (hash) of an article → first 8 digits of the channel that delivered it;
                                     ~500; expires
``cn:{u:UID}:articles:old``  hash    the previous generation of marks of articles; expires
``cn:{u:UID}:revived:L``     string  dead letter L was put back into the outbox; expires
``cn:{u:UID}:echoes``        list    of a group chat: ids of the bot's last 50 messages there, the room's id and the
                                     bot's id of each (msgpack); expires
``cn:{u:UID}:announced``     set     numbers of the announcements that were queued for the user; expires
``cn:{u:UID}:webhook``       hash    the user's webhook: ``url``, ``secret``, and after a failure ``state``,
                                     WebhookState (JSON)
``cn:{u:UID}:webhook:out``   stream  items for the webhook, like those in the outbox but without ``m``; ~1,000
``cn:{an}:all``              hash    number → Announcement (JSON), the last 100
``cn:{an}:last``             string  greatest number of an announcement
``cn:{an}:running``          set     numbers of the announcements that are being queued
``cn:{an}:N:to``             zset    ids of users for whom announcement N is still to be queued → 0; expires
``cn:{d}:waiting``           zset    ids of users with items in the outbox or batches in flight → when (ms)
``cn:{d}:wake``              stream  ``u``: ids of users with new items, separated by spaces; ~10,000
``cn:{d}:dead``              stream  dead letters: ``u`` user id, ``m`` message id, ``why``, ``items`` Batch (JSON);
                                     ``w`` 1 for those of a webhook; ~10,000
``cn:{d}:webhooks``          set     ids of users who have a webhook
``cn:{d}:news``              stream  ``c``: id of a channel with a new version, for pubsub publishers; ~10,000; expires
===========================  ======  =====================================================================

Messages to bots
================

===========================  ======  =====================================================================
key                          type    contents
===========================  ======  =====================================================================
``cn:{u:UID}:heard``         stream  inbound log: messages of the user that are not answered, ``s`` the message
                                     (msgpack), ``v`` address of the bot; at most 100
``cn:{u:UID}:answers``       hash    id of an entry of the inbound log → stanzas of the reply that is being sent
                                     (JSON); expires
``cn:{u:UID}:known``         zset    tokens of recently stored messages → when they were stored; expires
``cn:{u:UID}:home``          string  address of the bot that the user wrote to first; expires unless admitted
``cn:{d}:unread``            zset    ids of users who may have unanswered messages → when (ms)
``cn:{d}:heard``             stream  notices between bots: ``u`` user id, ``o`` ad-hoc command (msgpack) or empty for a
                                     stored message, ``v`` session that received the command; ~10,000
``cn:{d}:listened``          hash    account → time up to which its archived messages are stored
``cn:{d}:say:SESSION``       stream  ``s``: stanzas that the bot of this session has to send; ~10,000; expires
``cn:{b:ADDRESS}:rooms``     hash    group chats of a bot: JID → Room (msgpack)
``cn:{d}:bots``              zset    URL of a bot's metrics → when the bot announced it
``cn:{d}:asked``             list    requests of the console to any bot: BotRequest (msgpack); expires
``cn:{d}:answers``           string  present while a bot takes requests of the console; expires
===========================  ======  =====================================================================

Publishers
==========

===========================  ======  =====================================================================
key                          type    contents
===========================  ======  =====================================================================
``cn:{h:SITE}``              hash    token bucket of a site or network: ``tokens``, ``at_ms``; expires
``cn:{h:SITE}:from:EGRESS``  hash    token bucket of requests to SITE from workers behind one public address; expires
``cn:{h:SITE}:rate``         string  requests per second that an admin set for the site
``cn:{h:SITE}:pause``        string  length of the site's last pause (ms); expires an hour after the end of the pause
``cn:{hosts}:rates``         hash    site → rate that an admin set for it, of all sites: a copy for planning
``cn:{hosts}:blocked``       hash    blocked host or domain → HostBlock (JSON)
===========================  ======  =====================================================================

Console
=======

===================================  ======  =============================================================
key                                  type    contents
===================================  ======  =============================================================
``cn:{console}:accounts``            hash    name → Account (msgpack)
``cn:{console}:setup``               set     SHA-256 of each setup token; expires; deleted with the first account
``cn:{console}:links``               hash    name of an account → its password link (msgpack); expires
``cn:{console}:logins``              zset    SHA-256 of each session token → end of the session; expires
``cn:{console}:login:H``             string  session whose token has the SHA-256 H (msgpack); expires
``cn:{console}:attempts:WINDOW:H``   string  login attempts in the present ``minute`` or ``hour``; H is the SHA-256 of
                                             a network, an account, both, or a known browser; expires
``cn:{console}:browsers:H``          zset    known browsers of the account whose name has the SHA-256 H: hash →
                                             until when it is known; expires
``cn:{console}:keys``                hash    SHA-256 of an API key → ApiKey (msgpack)
``cn:{console}:keys:used``           hash    SHA-256 of an API key → when it was used last
``cn:{console}:begun``               hash    note → AuditedAction (msgpack) that has begun and not ended
``cn:{console}:audit``               stream  audit log: ``d`` AuditedAction (msgpack) that has ended; ~10,000,
                                             and none older than a year
``cn:{console}:repeat:H``            string  response to the request whose account and idempotency key have the
                                             SHA-256 H: StoredResponse (msgpack); expires
``cn:{im}:all``                      zset    ids of the imports that admins have started → when (Unix s)
``cn:{im:N}``                        hash    import N: ``id``, ``started_s``, ``ended_s``, ``new``, ``existing``;
                                             expires
``cn:{im:N}:feeds``                  list    its feeds that are still to be added: QueuedFeed (msgpack)
``cn:{im:N}:failed``                 list    its feeds that could not be added: FailedFeed (msgpack); expires
``cn:{im:N}:lease``                  string  the console that carries it out; expires
===================================  ======  =============================================================
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from service.clash.key_groups import Keyspace
from service.discovery.matrix import CellAddress
from service.model import ChannelId, UserId

RING_NODES = "cn:{r}:nodes"
RING_LEASES = "cn:{r}:leases"
RING_CHANGES = "cn:{r}:changes"
RING_DRAINED = "cn:{r}:drained"
STORE_IDENTITY = "cn:{p}:identity"
RESTORED_FANOUT = "cn:{p}:restored"
FLEET_POLICY = "cn:{p}:aims"
FLEET_POLICY_HISTORY = "cn:{p}:history"
FLEET_POLICY_REVISION = "cn:{p}:revision"
POLL_BOUNDS = "cn:{p}:bounds"
POLL_BOUNDS_EDITION = "cn:{p}:bounds:edition"
REGISTRY_CHANGES = "cn:{g}:changes"
REGISTRY_CHANGE_NUMBERS = "cn:{g}:numbers"
PROTECTED_CHANNELS = "cn:{g}:protected"
USERS_WITH_INTENTS = "cn:{i}:users"
USERS = "cn:{a}:users"
DIRECTORY_ANNOUNCEMENTS = "cn:{ld}:announced"
CONSOLE_ACCOUNTS = "cn:{console}:accounts"
CONSOLE_SETUP_TOKENS = "cn:{console}:setup"
CONSOLE_PASSWORD_LINKS = "cn:{console}:links"  # noqa: S105 - a key name
CONSOLE_SESSIONS = "cn:{console}:logins"
API_KEYS = "cn:{console}:keys"
API_KEYS_LAST_USE = "cn:{console}:keys:used"
AUDIT_PENDING = "cn:{console}:begun"
AUDIT_LOG = "cn:{console}:audit"
USERS_WITH_IMPORTS = "cn:{i}:importing"
CONSOLE_IMPORTS = "cn:{im}:all"
USERS_BEING_ERASED = "cn:{a}:leaving"
ERASED_USERS_WITH_RESTRICTIONS = "cn:{a}:restricted"
ERASED_USERS = "cn:{a}:erased"
SEQ_FLOOR = "cn:{a}:floor"
FEED_OWNERS = "cn:{a}:feeds"
INVITATION_CODES = "cn:{v}:invites"
GUESTS = "cn:{v}:guests"
USERS_WITH_DELIVERIES = "cn:{d}:waiting"
DELIVERY_WAKEUPS = "cn:{d}:wake"
CHANGED_CHANNELS = "cn:{d}:news"
ANNOUNCEMENTS = "cn:{an}:all"
LAST_ANNOUNCEMENT = "cn:{an}:last"
RUNNING_ANNOUNCEMENTS = "cn:{an}:running"
BOT_METRICS_URLS = "cn:{d}:bots"
BOT_REQUESTS = "cn:{d}:asked"
BOT_AVAILABLE = "cn:{d}:answers"
USERS_WITH_INBOUND = "cn:{d}:unread"
BOT_NOTICES = "cn:{d}:heard"
CAUGHT_UP_UNTIL = "cn:{d}:listened"
DEAD_LETTERS = "cn:{d}:dead"
WEBHOOK_USERS = "cn:{d}:webhooks"
SAVED_SEARCH_LOG = "cn:{ws}:log"
SITE_RATES = "cn:{hosts}:rates"
BLOCKED_HOSTS = "cn:{hosts}:blocked"
BLOCKED_USER_DOMAINS = "cn:{a}:domains"
REGISTRY_BUCKETS = tuple(f"{i:02x}" for i in range(256))


def _key(pattern: str) -> Callable[[str | int], str]:
    """Return a function that replaces the star in ``pattern`` with its argument, and returns the result."""
    before, after = pattern.split("*")
    return lambda ident: f"{before}{ident}{after}"


inbox = _key("cn:{n:*}:inbox")
reply = _key("cn:{q:*}")
channel_registry = _key("cn:{g:*}:channels")
hub_registry = _key("cn:{g:*}:hubs")
channel = _key("cn:{c:*}")
poll_results = _key("cn:{c:*}:polls")
incoming_moves = _key("cn:{c:*}:joining")
fanout_units = _key("cn:{c:*}:units")
console_session = _key("cn:{console}:login:*")
console_repeat = _key("cn:{console}:repeat:*")
known_browsers = _key("cn:{console}:browsers:*")
poll_pause = _key("cn:{c:*}:pause")
poll_budget = _key("cn:{c:*}:budget")
hub_subscription = _key("cn:{c:*}:hub")
push_count = _key("cn:{c:*}:pushes")
excess_push_count = _key("cn:{c:*}:pushes:excess")
keyspace_deliveries = _key("cn:{clash:*}:told")
keyspace_rates = _key("cn:{clash:*}:load")
matrix_sizes = _key("cn:{mx}:*:sizes")
matrix_loads = _key("cn:{mx}:*:load")
user = _key("cn:{u:*}")
restrictions = _key("cn:{u:*}:restrictions")
user_index = _key("cn:{u:*}:subs")
intents = _key("cn:{u:*}:intents")
outbox = _key("cn:{u:*}:out")
in_flight = _key("cn:{u:*}:fly")
sent_messages = _key("cn:{u:*}:told")
last_sent_times = _key("cn:{u:*}:told:at")
received_announcements = _key("cn:{u:*}:announced")
announcement_recipients = _key("cn:{an}:*:to")
room_message_ids = _key("cn:{u:*}:echoes")
article_marks = _key("cn:{u:*}:articles")
older_article_marks = _key("cn:{u:*}:articles:old")
inbound_messages = _key("cn:{u:*}:heard")
inbound_replies = _key("cn:{u:*}:answers")
inbound_tokens = _key("cn:{u:*}:known")
home_address = _key("cn:{u:*}:home")
preferences = _key("cn:{u:*}:preferences")
feed_token = _key("cn:{u:*}:feed")
webhook = _key("cn:{u:*}:webhook")
webhook_queue = _key("cn:{u:*}:webhook:out")
bot_rooms = _key("cn:{b:*}:rooms")
pubsub_nodes = _key("cn:{ps:*}:nodes")
pending_imports = _key("cn:{u:*}:imports")
import_counts = _key("cn:{u:*}:import")
failed_imports = _key("cn:{u:*}:import:failed")
console_import_lease = _key("cn:{im:*}:lease")
queued_stanzas = _key("cn:{d}:say:*")
saved_searches = _key("cn:{u:*}:searches")
saved_search_hits = _key("cn:{u:*}:hits")
saved_search_bucket = _key("cn:{ws:*}")
site_budget = _key("cn:{h:*}")
site_rate = _key("cn:{h:*}:rate")
site_pause = _key("cn:{h:*}:pause")


def user_id(jid: str) -> UserId:
    """Return the user id for a bare JID.

    It consists of the first 96 bits of the JID's SHA-256, as 16 characters of URL-safe base64.
    """
    return urlsafe_b64encode(hashlib.sha256(jid.encode()).digest()[:12]).decode()


def partition_leases(name: str) -> tuple[str, str]:
    """Return the two Redis keys for a set of partitions, which are numbered parts of work that processes share.

    ``name`` identifies the set. The first key maps each process to the end of its lease, that is, of the time for
    which it may hold partitions. The second key maps each partition to the process that holds it.
    """
    return f"cn:{{l:{name}}}:holders", f"cn:{{l:{name}}}:parts"


def push_queue(cid: ChannelId) -> tuple[str, str, str]:
    """Return the three keys for documents that hubs have pushed.

    The keys contain, in this order: the channel's queue of documents, the sizes of all channels' queues, and the expiry
    times of all channels' queues.
    """
    return f"cn:{{push}}:of:{cid}", "cn:{push}:sizes", "cn:{push}:until"


def console_import(ident: str) -> tuple[str, str, str]:
    """Return the keys of an import that an admin has started: its queued feeds, its counts, and its failed feeds."""
    counts = f"cn:{{im:{ident}}}"
    return f"{counts}:feeds", counts, f"{counts}:failed"


def keyspace(number: Keyspace) -> tuple[str, str, str, str, str]:
    """Return the five keys of the keyspace ``number``. A keyspace is one part of the index of all subscriptions.

    They contain, in this order:

    - the server table, which lists the groups of subscriptions in the keyspace
    - the first position of each page of subscription records
    - the pages of subscription records
    - the number of subscriptions to each channel
    - the positions of tombstones, which are the records of ended subscriptions
    """
    table = f"cn:{{clash:{number}}}"
    return table, f"{table}:pages", f"{table}:records", f"{table}:channels", f"{table}:ends"


CELL_BUCKETS = 1 << 14
"""Number of buckets among which matrix cells are distributed. Each bucket is one hash.

Fewer buckets would mean fewer keys, but larger and slower hashes.
"""
_CACHED_CELLS = 1_000


def cell_id(address: CellAddress) -> bytes:
    """Return the 8-byte id of a cell of the search directory.

    A cell stores a part of the channels or entries with one attribute-value pair. The id is a digest of the pair,
    the partition and the replica in ``address``. For partition 0 and replica 0, it is the digest of the pair alone.
    The paper on load-balancing matrices calls it the rendezvous point H(pair, partition, replica).
    """
    pair = address.pair.encode("latin-1")
    if address.partition == address.replica == 0:
        return pair
    return hashlib.blake2b(pair + b"%d:%d" % (address.partition, address.replica), digest_size=8).digest()


@lru_cache(_CACHED_CELLS)
def cell(address: CellAddress) -> tuple[str, str]:
    """Return the keys of the two Redis hashes that can contain a cell, which is a part of a search directory.

    The first hash is shared by all cells of a bucket. It contains the small cells, and only a header for each large
    one. The second hash is used if the cell is large. It contains only this cell.
    """
    ident = cell_id(address)
    bucket = f"cn:{{m:{int.from_bytes(ident) % CELL_BUCKETS:04x}}}"
    return bucket, f"{bucket}:{urlsafe_b64encode(ident)[:-1].decode()}"


def names_bucket(about: str, bucket: int) -> str:
    """Return the key for a bucket of content names in one of the two search directories.

    A content name is the set of all attribute-value pairs of a channel or entry. Searches use it. ``about`` selects
    the search directory: that of channels ("channel") or that of entries ("entry"). ``bucket`` is the number of the
    bucket.
    """
    return f"cn:{{nm:{bucket:04x}}}:{about}"


def vocabulary(about: str, shard: int) -> str:
    """Return the key for a shard of the vocabulary, which consists of the words in one search directory.

    ``about`` selects the search directory: that of channels ("channel") or that of entries ("entry"). ``shard`` is
    the number of the shard.
    """
    return f"cn:{{words:{about}:{shard:x}}}"


def latest_words(about: str, hour: int) -> str:
    """Return the key for the words that first occurred in a search directory during ``hour``.

    ``about`` selects the search directory: that of channels ("channel") or that of entries ("entry"). ``hour`` is
    the number of hours since the Unix epoch.
    """
    return f"cn:{{words:{about}}}:{hour}"


def requeued_dead_letter(uid: UserId, letter: str) -> str:
    """Return the key whose existence shows that the user's dead letter ``letter`` was put back into the outbox."""
    return f"cn:{{u:{uid}}}:revived:{letter}"


def usage_count(uid: UserId, what: str) -> str:
    """Return the key that counts how often a user did ``what`` in the present time window; see ``USAGE_KINDS``."""
    return f"cn:{{u:{uid}}}:rate:{what}"


USAGE_KINDS = ("command", "form", "url", "import", "invitation", "guests", "managers")
"""Possible values of ``what`` in :func:`usage_count`.

For group chats, there are also values ``command:H``, where H is a hash that identifies an occupant of the chat.
"""


def erasable_user_keys(uid: UserId) -> tuple[str, ...]:
    """Return all keys that are deleted when the user ``uid`` is erased. Every new key of a user has to be added here.

    These are the user's keys except restrictions, usage counts, and notes on requeued dead letters. The excepted keys
    expire on their own.
    """
    return (
        *(user(uid), user_index(uid), intents(uid), preferences(uid)),
        *(pending_imports(uid), import_counts(uid), failed_imports(uid)),
        *(saved_searches(uid), saved_search_hits(uid)),
        *(outbox(uid), in_flight(uid), sent_messages(uid), last_sent_times(uid)),
        *(received_announcements(uid), webhook(uid), webhook_queue(uid), feed_token(uid)),
        *(article_marks(uid), older_article_marks(uid), room_message_ids(uid)),
        *(inbound_messages(uid), inbound_replies(uid), inbound_tokens(uid), home_address(uid)),
    )


DURABLE_KEYS: Final = (
    *(RING_DRAINED, FLEET_POLICY, FLEET_POLICY_HISTORY, FLEET_POLICY_REVISION, POLL_BOUNDS, POLL_BOUNDS_EDITION),
    PROTECTED_CHANNELS,
    *(BLOCKED_USER_DOMAINS, INVITATION_CODES, GUESTS, ERASED_USERS_WITH_RESTRICTIONS, USERS_BEING_ERASED, ERASED_USERS),
    *(RUNNING_ANNOUNCEMENTS, ANNOUNCEMENTS, LAST_ANNOUNCEMENT),
    *(DEAD_LETTERS, FEED_OWNERS, WEBHOOK_USERS, CAUGHT_UP_UNTIL, SITE_RATES, BLOCKED_HOSTS),
    *(CONSOLE_ACCOUNTS, API_KEYS, API_KEYS_LAST_USE, AUDIT_PENDING, AUDIT_LOG),
)
"""Keys that a backup contains in addition to those of users and channels and those in :data:`DURABLE_PATTERNS`.

All other keys are soft state: they expire, are written again by running processes, or are derived from keys that a
backup contains. Every new key that must survive the loss of Redis has to be added here, to :func:`durable_user_keys` or
to :func:`durable_channel_keys`.
"""

ALL_KEYS: Final = "cn:{*"
"""Glob pattern that matches all of Coronet's keys."""
DURABLE_PATTERNS: Final = (bot_rooms("*"), pubsub_nodes("*"), announcement_recipients("*"))
"""Glob patterns that match further keys that a backup contains."""


def durable_user_keys(uid: UserId) -> tuple[str, ...]:
    """Return all keys of a user that a backup contains."""
    return (*erasable_user_keys(uid), restrictions(uid))


def durable_channel_keys(cid: ChannelId) -> tuple[str, ...]:
    """Return all keys of a channel that a backup contains."""
    return (channel(cid), poll_results(cid), incoming_moves(cid), hub_subscription(cid), poll_pause(cid))


def egress_budget(site: str, egress: str) -> str:
    """Return the key of the token bucket for requests to ``site`` from one public IP address.

    ``egress`` is the name of this address. All workers that use the address share the bucket.
    """
    return f"cn:{{h:{site}}}:from:{egress}"


def login_attempts(window: str, what_hash: str) -> str:
    """Return the key that counts login attempts in the present ``window``, which is "minute" or "hour".

    ``what_hash`` is the SHA-256 of the thing for which attempts are counted: a network, an account, an account in a
    network, or a known browser.
    """
    return f"cn:{{console}}:attempts:{window}:{what_hash}"
