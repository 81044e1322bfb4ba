"""Every Redis key, with its type and meaning. Nothing else builds key names.

What stands in braces is the hash tag: keys that one script changes together share it, and so live
in one slot of a Redis Cluster.

===========================  ======  =====================================================================
key                          type    meaning
===========================  ======  =====================================================================
``cn:{r}:nodes``             hash    the ring: node id → ``EPOCH {NodeInfo as JSON}``
``cn:{r}:leases``            zset    node id → when its lease ends, in ms of Redis's clock
``cn:{r}:drained``           zset    names of workers that admins keep out of the ring → when they were last there (ms)
``cn:{r}:version``           string  grows with every join, leave and expiry
``cn:{r}:epoch``             string  grows with every join
``cn:{p}:identity``          hash    the store's identity: ``fleet`` (its id), ``counter``, ``grown_ms`` (when it grew),
                                     ``accepted_ms`` (when the operator accepted the store), ``refused`` (why a program
                                     refuses it); see ``identity``
``cn:{p}:aims``              string  what admins want of the fleet: Aims (JSON)
``cn:{p}:history``           list    its last 100 revisions (JSON), newest first
``cn:{p}:revision``          string  how many revisions there were
``cn:{p}:bounds``            hash    channel id → what admins want of its polls, and wanted before (JSON)
``cn:{p}:bounds:edition``    string  grows with each change of that
``cn:{l:NAME}:holders``      zset    processes that share parts of something → when their leases end (ms)
``cn:{l:NAME}:parts``        hash    number of a part → the process that has it
``cn:{n:NODE}:inbox``        stream  messages to a node: ``k`` kind, ``f`` from, ``m`` payload; expires
``cn:{q:ID}``                list    the one answer to a request; expires
``cn:{g:XX}:channels``       set     registry: channel ids that start with these two digits
``cn:{g:XX}:hubs``           set     those of them that have a hub subscription
``cn:{c:CID}``               hash    a channel: see ``channels.FIELDS``
``cn:{c:CID}:log``           stream  ``VERSION-0`` → ``d``: Delta (msgpack); the newest ~1,000
``cn:{c:CID}:polls``         list    the last 20 PollResults (msgpack), newest first
``cn:{c:CID}:joining``       hash    channel whose subscribers are moving here → the version they join at
``cn:{c:CID}:pause``         string  the publisher asked to be left alone, or (``admin``) admins; expires
``cn:{c:CID}:budget``        hash    token bucket of a channel's polls: ``tokens``, ``at_ms``; expires
``cn:{c:CID}:hub``           string  the subscription at a hub: HubState (msgpack)
``cn:{push}:of:CID``         list    what a channel's hub sent and no worker has read: Push (msgpack); expires
``cn:{push}:sizes``          hash    channel id → bytes of that list, and ``large``, ``all`` → bytes in all; expires
``cn:{push}:until``          zset    channel id → when its list expires (Unix ms); expires
``cn:{c:CID}:pushes``        string  how often it sent something this minute; expires
``cn:{c:CID}:pushes:excess`` string  how often that was too much, and became a poll, this minute; expires
``cn:{clash:K}``             hash    keyspace K's table of key groups: see ``service.clash.server_table``
``cn:{clash:K}:pages``       zset    where each page of its subscriptions begins, in order
``cn:{clash:K}:records``     hash    where a page begins → its subscriptions: see ``keyspaces``
``cn:{clash:K}:channels``    hash    first 8 bytes of a channel id → how many of its subscriptions are here
``cn:{clash:K}:ends``        zset    where ended subscriptions are kept, in groups that are moving here
``cn:{clash:K}:told``        hash    label of a key group → deliveries since its keeper looked
``cn:{clash:K}:load``        hash    label of a key group → deliveries per second now and lately, and when (Unix s)
``cn:{m:CELL}``              hash    a cell of a matrix: see ``scripts/cell_common.lua``
``cn:{m:CELL}:names``        hash    its names → their records; expires, as the rest of the cell
``cn:{m:CELL}:index``        string  bit-sliced signatures of its names, once there are more than a few
``cn:{m:CELL}:slots``        string  which name has which slot in the index
``cn:{mx}:ABOUT``            hash    AV-pair → Size (msgpack) of matrices of channels, or entries, with several cells
``cn:{u:UID}``               hash    a user: ``jid``, ``seq``, ``numbers``, ``welcomed``, ``receipts``, ``was:CID``,
                                     ``unheard``: what standing queries met since everything was paused,
                                     ``unreachable``: nothing reached them; 1 if we silenced those queries
``cn:{u:UID}:restrictions``  hash    what admins set: ``jid``, ``suspended``, ``most_subscriptions``; stays when the
                                     person is forgotten, and expires then
``cn:{u:UID}:subs``          hash    the user index, the truth: channel id (20 bytes) → ``number seq seen since``,
                                     and of a paused one the version it stands still at: see ``user_held.lua``
``cn:{u:UID}:intents``       hash    channel id → ``add``, ``move`` or ``del`` and SEQ: not yet in the channel index
``cn:{u:UID}:out``           stream  the outbox: ``c`` channel id, ``v`` version, ``t`` queued (Unix s),
                                     ``e`` 1 of its edits, ``m`` position and marks of each article (JSON),
                                     ``x`` positions of changes that are left out (JSON),
                                     ``w`` which standing queries have met what: MetWatch (JSON),
                                     ``a`` version after which all is told at once, up to ``v``
``cn:{u:UID}:fly``           hash    message id → batch in flight (JSON)
``cn:{u:UID}:told``          list    the last 20 messages, newest first: id, items and how they went (JSON); expires
``cn:{u:UID}:told:at``       hash    channel of which they are not told at once → when they were last (ms); expires
``cn:{u:UID}:echoes``        list    of a room: the last ids of our messages there, its own and ours (msgpack); expires
``cn:{u:UID}:revived:L``     string  what dead letter L would have told is queued again; expires
``cn:{u:UID}:articles``      hash    mark of an article → first 8 digits of the channel that told it; ~500; expires
``cn:{u:UID}:articles:old``  hash    the generation of marks before that
``cn:{u:UID}:rate:WHAT``     string  how often this window; stays when the person is forgotten; expires
``cn:{u:UID}:preferences``   hash    number of a subscription, 0 for all → Preferences (msgpack)
``cn:{u:UID}:imports``       list    what is still to be imported: Subscribed (msgpack)
``cn:{u:UID}:heard``         stream  messages nobody has answered: ``s`` MessageReceived (msgpack), ``v`` to which bot
``cn:{u:UID}:answers``       hash    place there → the answers that are on their way (JSON); expires
``cn:{u:UID}:known``         zset    names of what they said lately → when (Unix s); expires
``cn:{u:UID}:home``          string  the address they wrote to first; expires if they were not let in
``cn:{u:UID}:watches``       hash    number of a standing query → its id and itself: Watch (msgpack)
``cn:{u:UID}:hits``          set     channel id and version of what their standing queries were told; expires
``cn:{w:B}``                 hash    bucket B of standing queries: id → Standing (msgpack)
``cn:{w}:log``               stream  their changes: ``i`` id, ``s`` Standing (msgpack), nothing for an end; ~10,000
``cn:{i}:users``             zset    user ids that may have intents → when (ms)
``cn:{a}:users``             set     every user id that ever wrote to us
``cn:{i}:importing``         hash    user ids with something to import → the address of the bot that does it
``cn:{a}:leaving``           set     user ids that are being forgotten
``cn:{a}:restricted``        zset    user ids of forgotten people whose restrictions are kept → until when (Unix s)
``cn:{a}:floor``             string  the greatest ``seq`` of those who were forgotten lately; expires
``cn:{v}:invites``           hash    hash of an invitation's code → ``USES UNTIL``: how often still, until when (Unix s)
``cn:{v}:guests``            set     user ids that came with an invitation
``cn:{b:ADDRESS}:rooms``     hash    a bot's rooms: JID → Room (msgpack)
``cn:{d}:waiting``           zset    user ids with anything in outbox or flight → when (ms)
``cn:{d}:wake``              stream  ``u``: user ids just enqueued, joined by spaces; ~10,000
``cn:{d}:unread``            zset    user ids who said what nobody has answered → when (ms)
``cn:{d}:heard``             stream  ``u``: user ids who said something to a bot that does not serve them; or
                                     ``o``: what their software ordered there (msgpack), ``v`` from whom; ~10,000
``cn:{d}:listened``          hash    account → until when (Unix s) all that it was told has been taken in
``cn:{d}:say:VOICE``         stream  ``s``: what others have this bot write; expires
``cn:{ps:SERVICE}:nodes``    hash    channel id → Position (msgpack): how far it is published on a pubsub service
``cn:{d}:news``              stream  ``c``: channel that has a new version, while somebody publishes; ~10,000; expires
``cn:{d}:bots``              zset    where bots serve their metrics (URL) → when they said so (Unix s)
``cn:{d}:asked``             list    what the console asks the bot: Question (msgpack); expires
``cn:{d}:answers``           string  a bot takes such questions; expires
``cn:{d}:dead``              stream  dead letters: ``u``, ``m``, ``why``, ``items``; ~10,000
``cn:{h:SITE}``              hash    token bucket of a publisher's site or network: ``tokens``, ``at_ms``; expires
``cn:{h:SITE}:from:EGRESS``  hash    the same, of what one egress group asks of the site
``cn:{h:SITE}:rate``         string  requests per second that an admin set for the site
``cn:{hosts}:rates``         hash    all that admins set of that, by site: for those who plan; a site's own key counts
``cn:{hosts}:blocked``       hash    host, or domain, that nobody is to ask → who wants that, and why (JSON)
``cn:{console}:accounts``    hash    name → Account (msgpack)
``cn:{console}:setup``       set     hashes of setup tokens; expires; gone once there is an account
``cn:{console}:links``       hash    name → the one link (msgpack) that sets the account's password; expires
``cn:{console}:login:H``     string  H: a session token's hash → the session (msgpack); expires
``cn:{console}:logins``      zset    those hashes → when the session ends (Unix s); expires
``cn:{console}:keys``        hash    an API key's hash → ApiKey (msgpack)
``cn:{console}:keys:used``   hash    an API key's hash → when it was used last (Unix s)
``cn:{console}:begun``       hash    a note → Deed (msgpack) that was begun and has not ended
``cn:{console}:audit``       stream  ``d``: Deed (msgpack) that has ended; ~10,000
``cn:{console}:repeat:H``    string  H: hash of who asked and the key they chose → Kept (msgpack); expires
``cn:{console}:attempts:WINDOW:H`` string  H: hash of a network, account, both, or browser → logins tried in the
                                     present WINDOW (``minute`` or ``hour``); expires
``cn:{console}:browsers:H``  zset    H: hash of an account's name → hashes of known browsers' tokens → until when
                                     (Unix s); expires
===========================  ======  =====================================================================
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable

from service.clash.key_groups import Keyspace
from service.discovery.matrix import CellAddress
from service.model import ChannelId, UserId

RING_NODES = "cn:{r}:nodes"
RING_LEASES = "cn:{r}:leases"
RING_VERSION = "cn:{r}:version"
RING_EPOCH = "cn:{r}:epoch"
RING_DRAINED = "cn:{r}:drained"
STORE_IDENTITY = "cn:{p}:identity"
AIMS = "cn:{p}:aims"
AIMS_HISTORY = "cn:{p}:history"
AIMS_REVISION = "cn:{p}:revision"
BOUNDS = "cn:{p}:bounds"
BOUNDS_EDITION = "cn:{p}:bounds:edition"
INTENT_USERS = "cn:{i}:users"
USERS = "cn:{a}:users"
CONSOLE_ACCOUNTS = "cn:{console}:accounts"
CONSOLE_SETUP = "cn:{console}:setup"
CONSOLE_LINKS = "cn:{console}:links"
CONSOLE_SESSIONS = "cn:{console}:logins"
CONSOLE_KEYS = "cn:{console}:keys"
CONSOLE_KEYS_USED = "cn:{console}:keys:used"
CONSOLE_BEGUN = "cn:{console}:begun"
CONSOLE_AUDIT = "cn:{console}:audit"
IMPORTING = "cn:{i}:importing"
LEAVING = "cn:{a}:leaving"
RESTRICTED = "cn:{a}:restricted"
SEQ_FLOOR = "cn:{a}:floor"
INVITES = "cn:{v}:invites"
GUESTS = "cn:{v}:guests"
WAITING = "cn:{d}:waiting"
WAKE = "cn:{d}:wake"
NEWS = "cn:{d}:news"
BOTS = "cn:{d}:bots"
BOT_ASKED = "cn:{d}:asked"
BOT_ANSWERS = "cn:{d}:answers"
UNREAD = "cn:{d}:unread"
HEARD = "cn:{d}:heard"
LISTENED = "cn:{d}:listened"
DEAD_LETTERS = "cn:{d}:dead"
STANDING_LOG = "cn:{w}:log"
HOST_RATES = "cn:{hosts}:rates"
BLOCKED_HOSTS = "cn:{hosts}:blocked"
REGISTRY_BUCKETS = tuple(f"{i:02x}" for i in range(256))


def _key(pattern: str) -> Callable[[str | int], str]:
    """Return the function that puts an id in the place of the pattern's star."""
    before, after = pattern.split("*")
    return lambda own: f"{before}{own}{after}"


inbox = _key("cn:{n:*}:inbox")
answer = _key("cn:{q:*}")
registry = _key("cn:{g:*}:channels")
hub_registry = _key("cn:{g:*}:hubs")
channel = _key("cn:{c:*}")
log = _key("cn:{c:*}:log")
polls = _key("cn:{c:*}:polls")
joining = _key("cn:{c:*}:joining")
console_session = _key("cn:{console}:login:*")
console_repeat = _key("cn:{console}:repeat:*")
known_browsers = _key("cn:{console}:browsers:*")
pause = _key("cn:{c:*}:pause")
poll_budget = _key("cn:{c:*}:budget")
hub = _key("cn:{c:*}:hub")
push_rate = _key("cn:{c:*}:pushes")
push_excess = _key("cn:{c:*}:pushes:excess")
keyspace_told = _key("cn:{clash:*}:told")
keyspace_rates = _key("cn:{clash:*}:load")
matrices = _key("cn:{mx}:*")
user = _key("cn:{u:*}")
restrictions = _key("cn:{u:*}:restrictions")
user_index = _key("cn:{u:*}:subs")
intents = _key("cn:{u:*}:intents")
outbox = _key("cn:{u:*}:out")
in_flight = _key("cn:{u:*}:fly")
told = _key("cn:{u:*}:told")
told_at = _key("cn:{u:*}:told:at")
echoes = _key("cn:{u:*}:echoes")
articles = _key("cn:{u:*}:articles")
older_articles = _key("cn:{u:*}:articles:old")
preferences = _key("cn:{u:*}:preferences")
rooms = _key("cn:{b:*}:rooms")
nodes = _key("cn:{ps:*}:nodes")
imports = _key("cn:{u:*}:imports")
say = _key("cn:{d}:say:*")
watches = _key("cn:{u:*}:watches")
hits = _key("cn:{u:*}:hits")
standing = _key("cn:{w:*}")
host = _key("cn:{h:*}")
host_rate = _key("cn:{h:*}:rate")


def user_id(jid: str) -> UserId:
    """Return the user id of a bare JID: 96 bits of SHA-256, safe inside key names."""
    return urlsafe_b64encode(hashlib.sha256(jid.encode()).digest()[:12]).decode()


def spread(name: str) -> tuple[str, str]:
    """Who shares parts of something, and who has which."""
    return f"cn:{{l:{name}}}:holders", f"cn:{{l:{name}}}:parts"


def pushed(cid: ChannelId) -> tuple[str, str, str]:
    """What a channel's hub sent and no worker has read; the sizes of all such lists, and when they expire."""
    return f"cn:{{push}}:of:{cid}", "cn:{push}:sizes", "cn:{push}:until"


def keyspace(number: Keyspace) -> tuple[str, str, str, str, str]:
    """A keyspace: its table, where pages begin, the pages, how many subscribe to each channel, and what ended."""
    own = f"cn:{{clash:{number}}}"
    return own, f"{own}:pages", f"{own}:records", f"{own}:channels", f"{own}:ends"


def cell(place: CellAddress) -> tuple[str, str, str, str]:
    """A cell of a matrix: itself, its names, their index, and which slots they have in it."""
    own = f"cn:{{m:{place.pair.encode('latin-1').hex()}:{place.partition}:{place.replica}}}"
    return own, f"{own}:names", f"{own}:index", f"{own}:slots"


def revived(uid: UserId, letter: str) -> str:
    """That a dead letter of a user's went back to the outbox."""
    return f"cn:{{u:{uid}}}:revived:{letter}"


def said(uid: UserId) -> tuple[str, str, str, str]:
    """What a user said: what is not answered, answers on their way, names of what they said, and where they began."""
    own = f"cn:{{u:{uid}}}"
    return f"{own}:heard", f"{own}:answers", f"{own}:known", f"{own}:home"


def rate(uid: UserId, what: str) -> str:
    """How often a user did something in the present window."""
    return f"cn:{{u:{uid}}}:rate:{what}"


RATES = ("command", "form", "url", "import", "invitation", "guests", "managers")
"""What is counted per user and window; and ``command:`` with a hash of each occupant of a room, for a minute."""


def all_of_user(uid: UserId) -> tuple[str, ...]:
    """Every key of one user that `forget me` deletes: all but their rates and restrictions, which expire.

    Whoever adds a key of a user adds it here.
    """
    own = (user, user_index, intents, outbox, in_flight, told, articles, older_articles, preferences, watches, hits)
    return (*(key(uid) for key in (*own, imports, echoes, told_at)), *said(uid))


def host_egress(site: str, egress: str) -> str:
    """What one egress group may still ask of a site."""
    return f"cn:{{h:{site}}}:from:{egress}"


def login_attempts(window: str, what_hash: str) -> str:
    """How often a login was tried from a network, on an account, or both, in the present window of time."""
    return f"cn:{{console}}:attempts:{window}:{what_hash}"
