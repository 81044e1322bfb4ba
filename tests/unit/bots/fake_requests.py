"""Requests answered from plain values, to test dialogues without XMPP, Redis or workers."""

from collections import defaultdict
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

import msgspec
from pydantic import SecretStr

from bots.dialogue.dispatcher import answer
from bots.dialogue.read_requests import MessageReferences, subscribed_channel
from bots.dialogue.reply import Reply
from bots.dialogue.request_handler import Requests
from bots.i18n.translator import get_translator
from bots.replies.formatting import SubscribedChannel
from service.corona.optimizer.poll_explanation import PollExplanation
from service.discovery.discover_listings import (
    DiscoverAnswer,
    DiscoverCandidate,
    DiscoverOrder,
    arrange_listing,
    discover_pairs,
)
from service.discovery.queries.query import (
    Condition,
    Correction,
    PairCondition,
    PhraseCondition,
    Query,
    SearchAnswer,
    SearchHit,
    WordCondition,
)
from service.discovery.queries.saved_searches import SavedSearch, SearchCondition
from service.discovery.word_analysis import words
from service.errors import AssignmentPending, BadStatus, CoronetError, LimitReached, NotAFeed, UploadRefused
from service.feeds import opml_parser
from service.feeds.canonical_urls import channel_id, protected_url, shown_url
from service.feeds.credentials import Credential
from service.feeds.opml_import import ImportProgress
from service.feeds.opml_writer import OpmlDocument, OpmlSubscription
from service.model import Channel, ChannelId, Entry, Subscription
from service.settings import Settings
from service.store.coordination.worker_requests import ProbeReply
from service.store.delivery.webhooks import Webhook
from service.store.subscriptions.subscription_pauses import ResumeResult
from service.users.preferences import FOR_ALL, Preferences
from service.users.user_settings import DEFAULT_USER_SETTINGS, UserSettings

NOW_S = 1_700_000_000.0
T = TypeVar("T")
TOPICS: dict[ChannelId, tuple[str, ...]] = defaultdict(tuple)
"""The tags of channels."""


def feed(url: str, title: str) -> Channel:
    """A channel at its first version."""
    return Channel(channel_id(url), url, title=title, version=1)


def page(url: str, title: str) -> Channel:
    """A page, or a part of one."""
    return Channel(channel_id(url), url, title=title, version=1, kind="page")


def _share_matched(query: Query, hit: SearchHit, new: dict[str, str]) -> float:
    """Return the share of the words of a query that a channel or entry has, with some words replaced.

    It is 0 if the channel or entry does not satisfy other conditions.
    """
    own = set(words(f"{hit.channel.title if hit.entry is None else hit.entry.title} {hit.snippet}"))

    def has(condition: Condition) -> bool:
        match condition:
            case WordCondition(word):
                return new.get(word, word) in own
            case PhraseCondition(found):
                return own.issuperset(found)
            case PairCondition(pair):
                return pair in {f"lang={hit.channel.language}", *(f"tag={tag}" for tag in TOPICS[hit.channel.id])}

    satisfied = {group: any(map(has, group)) for group in query.all_of}
    others = [held for group, held in satisfied.items() if not all(isinstance(each, WordCondition) for each in group)]
    if any(map(has, query.none_of)) or not all(others):
        return 0.0
    return sum(satisfied.values()) / len(satisfied)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of what never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("It waits.")


@dataclass
class Person:
    """One person, what they follow, and what a worker would find on the web."""

    web: dict[str, ProbeReply | CoronetError] = field(default_factory=dict)
    """By canonical URL; what is found when a page itself is to be watched, by "page URL"."""
    polled: dict[ChannelId, Channel] = field(default_factory=dict)
    entries: dict[ChannelId, tuple[Entry, ...]] = field(default_factory=dict)
    follows: dict[int, Channel] = field(default_factory=dict)
    failing: dict[ChannelId, tuple[str, float]] = field(default_factory=dict)
    reasons: dict[ChannelId, PollExplanation] = field(default_factory=dict)
    settings: Settings = field(
        default_factory=lambda: Settings(
            max_subscriptions_per_user=3,
            max_new_urls_per_hour=4,
            max_watches_per_user=2,
            credentials_key=SecretStr("k" * 32),
            console_public_url="https://coronet.example",
        )
    )
    nodes: dict[ChannelId, str] = field(default_factory=dict)
    """By channel, the URI of the node on which it is published."""
    directory: tuple[SearchHit, ...] = ()
    """Public channels, and entries of them."""
    corrections: tuple[Correction, ...] = ()
    """Words that nothing has, and those that are found instead."""
    watches: dict[int, SavedSearch] = field(default_factory=dict)
    new_urls: int = 0
    workers: int = 2
    probes: int = 0
    asked: Reply | None = None
    user_settings: UserSettings = DEFAULT_USER_SETTINGS
    paused: dict[ChannelId, int] = field(default_factory=dict)
    """By channel, how many versions were withheld."""
    unheard: int = 0
    searches_paused: bool = False
    lists: dict[str, OpmlDocument] = field(default_factory=dict)
    """By URL, lists of feeds."""
    importing: tuple[OpmlSubscription, ...] = ()
    shared: list[bytes] = field(default_factory=list)
    files: str | UploadRefused | None = None
    """Where the server puts files; why it takes none now; None: it never takes any."""
    preferences: dict[int, Preferences] = field(default_factory=dict)
    is_admitted: bool = True
    room_nick: str = ""
    """The bot's nick, if this is a room."""
    told: dict[str, MessageReferences] = field(default_factory=dict)
    """By the id of a message of ours, what it told."""
    guarded: dict[str, tuple[Credential, ProbeReply]] = field(default_factory=dict)
    """By canonical URL, what is found with a credential; as a page, by "page URL"."""
    feeds: int = 0
    """How often the addresses of the feeds were revoked."""
    public: set[ChannelId] = field(default_factory=set)
    """Channels whose feeds are for everybody."""
    hook: Webhook | None = None
    requested: list[str] = field(default_factory=list)
    """The names of all requests."""

    def hear(self, line: str, **pointing: Any) -> Reply:
        """Return the reply to a line, having remembered what it asks."""
        reply = at_once(
            answer(cast("Requests", FakeRequests(self)), line, self.asked, is_admitted=self.is_admitted, **pointing)
        )
        self.asked = reply if reply.options else None
        return reply

    def say(self, line: str) -> str:
        """Return the text of the reply to a line."""
        return self.hear(line).text


class FakeRequests:
    """The requests of a person, as :class:`bots.dialogue.request_handler.RequestHandler` answers them."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.settings = person.settings
        self.room_nick = person.room_nick
        self.is_room = bool(person.room_nick)
        self.max_subscriptions = person.settings.max_subscriptions_per_user
        self.translator = get_translator(person.user_settings.effective_language)

    def __getattribute__(self, name: str) -> Any:
        if name not in (
            "person",
            "settings",
            "room_nick",
            "is_room",
            "max_subscriptions",
            "translator",
        ) and not name.startswith("_"):
            self.person.requested.append(name)
        return super().__getattribute__(name)

    def now_s(self) -> float:
        return NOW_S

    async def channel(self, cid: ChannelId) -> Channel | None:
        return self.person.polled.get(cid)

    async def use_new_url_allowance(self) -> bool:
        self.person.new_urls += 1
        return self.person.new_urls <= self.settings.max_new_urls_per_hour

    def own_url(self, url: str) -> str:
        return protected_url(url, "own")

    async def probe(self, url: str, *, as_page: bool, credential: Credential | None) -> ProbeReply:
        self.person.probes += 1
        found = self.person.web.get(f"page {url}" if as_page else url, NotAFeed("No feed there."))
        if guard := self.person.guarded.get(f"page {shown_url(url)}" if as_page else shown_url(url)):
            found = guard[1] if credential == guard[0] else BadStatus("", status=401)
        if isinstance(found, CoronetError):
            raise found
        if found.channel is not None:
            self.person.polled[found.channel.id] = found.channel
            self.person.entries[found.channel.id] = found.latest
        return found

    async def subscriptions(self) -> tuple[SubscribedChannel, ...]:
        return tuple(self._subscribed_channel(number, channel) for number, channel in self.person.follows.items())

    async def subscribe(self, cid: ChannelId) -> tuple[int, bool]:
        held = [number for number, channel in self.person.follows.items() if channel.id == cid]
        if held:
            return held[0], False
        number = max(self.person.follows, default=0) + 1
        self.person.follows[number] = next(each for each in self.person.polled.values() if each.id == cid)
        return number, True

    async def unsubscribe(self, cid: ChannelId) -> bool:
        person, before = self.person, len(self.person.follows)
        person.follows = {number: channel for number, channel in person.follows.items() if channel.id != cid}
        person.preferences = {n: own for n, own in person.preferences.items() if n in (FOR_ALL, *person.follows)}
        return len(person.follows) < before

    async def latest(self, cid: ChannelId, count: int) -> tuple[Entry, ...]:
        return self.person.entries.get(cid, ())[:count]

    async def explain_polling(self, cid: ChannelId) -> PollExplanation:
        if cid not in self.person.reasons:
            raise AssignmentPending("It is not settled yet.")
        return self.person.reasons[cid]

    async def pubsub_uri(self, cid: ChannelId) -> str:
        return self.person.nodes.get(cid, "")

    async def user_settings(self) -> UserSettings:
        return self.person.user_settings

    async def set_user_settings(self, user_settings: UserSettings) -> None:
        self.person.user_settings = user_settings

    async def search(self, query: Query) -> SearchAnswer:
        replaced = tuple(each for each in self.person.corrections if f'"{each.word}"' in repr(query).replace("'", '"'))
        new = {each.word: each.replacement for each in replaced}
        matched = [
            (_share_matched(query, hit, new), hit)
            for hit in self.person.directory
            if (hit.entry is not None) == (query.about == "entry")
        ]
        found = [hit for share, hit in matched if share == 1]
        found += [msgspec.structs.replace(hit, lacks_words=True) for share, hit in matched if 0 < share < 1]
        return SearchAnswer(tuple(found[: query.limit]), replaced if found else (), len(found) > query.limit)

    async def discover(self, order: DiscoverOrder, language: str, topic: str, limit: int) -> DiscoverAnswer:
        channels = [hit for hit in self.person.directory if hit.entry is None]
        candidates = [
            DiscoverCandidate(
                hit.channel,
                hit.subscribers,
                frozenset(
                    ("status=ok", f"lang={hit.channel.language}", *(f"tag={tag}" for tag in TOPICS[hit.channel.id]))
                    + (("age=new",) if hit.channel.created_s else ())
                ),
            )
            for hit in channels
        ]
        return arrange_listing(order, discover_pairs(order, language, topic), candidates, limit)

    async def watches(self) -> tuple[SavedSearch, ...]:
        return tuple(self.person.watches.values())

    async def watch(self, condition: SearchCondition, text: str) -> SavedSearch:
        watches = self.person.watches
        if len(watches) >= self.settings.max_watches_per_user:
            raise LimitReached(
                "You already have {most} saved searches, and that's the maximum. To make room, delete one with "
                "`unwatch #n`.",
                most=self.settings.max_watches_per_user,
            )
        number = max(watches, default=0) + 1
        watches[number] = SavedSearch(f"me/{number}", condition, number, text)
        return watches[number]

    async def unwatch(self, number: int) -> SavedSearch | None:
        return self.person.watches.pop(number, None)

    async def accept_invitation(self, code: str) -> bool:
        return code == "good"

    async def read_list(self, url: str) -> OpmlDocument:
        return self.person.lists[url]

    async def read_list_text(self, text: str) -> OpmlDocument:
        return opml_parser.parse(text.encode())

    async def share(self, _name: str, body: bytes, _media_type: str) -> str | None:
        if isinstance(self.person.files, UploadRefused):
            raise self.person.files
        self.person.shared.append(body)
        return self.person.files

    async def import_feeds(self, document: OpmlDocument) -> None:
        self.person.importing += document.feeds

    async def import_progress(self) -> ImportProgress | None:
        if not self.person.importing:
            return None
        return ImportProgress("1", new=1, existing=0, failed=2, pending=len(self.person.importing), started_s=NOW_S)

    async def stop_import(self) -> bool:
        was_running, self.person.importing = bool(self.person.importing), ()
        return was_running

    async def forget_everything(self) -> int:
        person = self.person
        person.follows, person.watches, person.preferences, person.user_settings = {}, {}, {}, DEFAULT_USER_SETTINGS
        return 0

    async def pause(self, cids: tuple[ChannelId, ...], *, watches: bool) -> list[ChannelId]:
        fresh = [cid for cid in cids if cid not in self.person.paused]
        self.person.searches_paused |= watches
        self.person.paused.update(dict.fromkeys(fresh, 0))
        return fresh

    async def resume(self, cids: tuple[ChannelId, ...], *, watches: bool) -> ResumeResult:
        withheld = {cid: self.person.paused.pop(cid) for cid in cids if cid in self.person.paused}
        was_paused, self.person.searches_paused = (
            self.person.searches_paused,
            self.person.searches_paused and not watches,
        )
        return ResumeResult(withheld, self.person.unheard if watches else 0, was_paused and watches)

    async def preferences(self) -> dict[int, Preferences]:
        return self.person.preferences

    async def set_preferences(self, number: int, preferences: Preferences) -> None:
        self.person.preferences[number] = preferences

    async def health(self, _cids: tuple[ChannelId, ...]) -> tuple[int, dict[ChannelId, tuple[str, float]]]:
        return self.person.workers, self.person.failing

    async def feed_url(self, chosen: Mapping[str, str]) -> str:
        return f"https://coronet.example/feeds/token{self.person.feeds}.atom{f'?{urlencode(chosen)}' if chosen else ''}"

    async def revoke_feeds(self) -> None:
        self.person.feeds += 1

    async def public_feed_url(self, cid: ChannelId) -> str:
        return f"https://coronet.example/channels/{cid}.atom" if cid in self.person.public else ""

    async def webhook(self) -> tuple[Webhook | None, int]:
        return self.person.hook, 2

    async def set_webhook(self, url: str) -> str:
        self.person.hook = Webhook(url, "whsec_c2VjcmV0") if url else None
        return self.person.hook.secret if self.person.hook else ""

    async def message_references(self, message_id: str) -> MessageReferences | None:
        return self.person.told.get(message_id)

    def _subscribed_channel(self, number: int, channel: Channel) -> SubscribedChannel:
        paused = 1 if channel.id in self.person.paused else None
        subscription = Subscription(channel.id, number, 1, 1, NOW_S, paused)
        return subscribed_channel(subscription, channel, self.person.preferences)
