"""A house of plain values, in which dialogues can be played without XMPP, Redis or a worker."""

from dataclasses import dataclass, field
from typing import Any

from bots.asking import (
    AcceptInvitation,
    AddSubscription,
    AddWatch,
    AskWhy,
    CheckHealth,
    EndSubscription,
    EndWatch,
    Followed,
    ForgetEverything,
    Health,
    ImportThese,
    LatestEntries,
    Limits,
    LookUp,
    MyHabits,
    MyPreferences,
    MySubscriptions,
    MyWatches,
    NodeOf,
    PausePlease,
    Probe,
    PutPreferences,
    ReadList,
    ReadListText,
    Request,
    ResumePlease,
    Search,
    SetHabits,
    Share,
    TakeNewUrl,
)
from bots.commands import parse
from bots.dialogue import converse
from bots.exchange import Question, Reply
from bots.house import followed
from bots.replies import text
from service.corona.reasons import Reason
from service.discovery.grammar import Finding
from service.discovery.standing import Watch
from service.errors import CoronetError, LimitReached, NotAFeed, NotSettled, UploadRefused
from service.feeds import opml_parser
from service.feeds.opml import Outline, Subscribed
from service.feeds.urls import channel_id
from service.habits import NONE, Habits
from service.model import Channel, ChannelId, Entry, Subscription
from service.preferences import FOR_ALL, Preferences
from service.store.pauses import Resumed
from service.store.requests import Probed

NOW_S = 1_700_000_000.0


def feed(url: str, title: str) -> Channel:
    """A channel at its first version."""
    return Channel(channel_id(url), url, title=title, version=1)


def page(url: str, title: str) -> Channel:
    """A page, or a part of one."""
    return Channel(channel_id(url), url, title=title, version=1, kind="page")


@dataclass
class Person:
    """One person, what they follow, and what a worker would find on the web."""

    web: dict[str, Probed | CoronetError] = field(default_factory=dict)
    """By canonical URL; what is found when a page itself is to be watched, by "page URL"."""
    polled: dict[ChannelId, Channel] = field(default_factory=dict)
    entries: dict[ChannelId, tuple[Entry, ...]] = field(default_factory=dict)
    follows: dict[int, Channel] = field(default_factory=dict)
    failing: dict[ChannelId, tuple[str, float]] = field(default_factory=dict)
    reasons: dict[ChannelId, Reason] = field(default_factory=dict)
    limits: Limits = field(default_factory=lambda: Limits(3, 4, 20, 2, 3))
    nodes: dict[ChannelId, str] = field(default_factory=dict)
    """By channel, the URI of the node on which it is published."""
    directory: tuple[Finding, ...] = ()
    """What a search for tag=python finds."""
    watches: dict[int, Watch] = field(default_factory=dict)
    new_urls: int = 0
    workers: int = 2
    probes: int = 0
    asked: Question | None = None
    habits: Habits = NONE
    paused: dict[ChannelId, int] = field(default_factory=dict)
    """By channel, how many versions were withheld."""
    unheard: int = 0
    lists: dict[str, Outline] = field(default_factory=dict)
    """By URL, lists of feeds."""
    importing: tuple[Subscribed, ...] = ()
    shared: list[bytes] = field(default_factory=list)
    files: str | UploadRefused | None = None
    """Where the server puts files; why it takes none now; None: it never takes any."""
    preferences: dict[int, Preferences] = field(default_factory=dict)

    def hear(self, line: str) -> Reply:
        """Return the reply to a line, having remembered what it asks."""
        dialogue = converse(parse(line), self.asked, self.limits)
        try:
            request = next(dialogue)
            while True:
                try:
                    result = self._serve(request)
                except CoronetError as error:
                    request = dialogue.throw(error)
                else:
                    request = dialogue.send(result)
        except StopIteration as end:
            reply: Reply = end.value
        self.asked = reply if isinstance(reply, Question) else None
        return reply

    def say(self, line: str) -> str:
        """Return the text of the reply to a line."""
        language = self.habits.speaks
        return text(self.hear(line), NOW_S, language)

    def _serve(self, request: Request) -> Any:  # noqa: C901, PLR0911, PLR0912 - one arm per request
        match request:
            case LookUp(cid):
                return self.polled.get(cid)
            case TakeNewUrl():
                self.new_urls += 1
                return self.new_urls <= self.limits.new_urls_per_hour
            case Probe(url, as_page):
                return self._probe(f"page {url}" if as_page else url)
            case MySubscriptions():
                return tuple(self._followed(number, channel) for number, channel in self.follows.items())
            case AddSubscription(cid):
                return self._follow(cid)
            case EndSubscription(cid):
                before = len(self.follows)
                self.follows = {number: channel for number, channel in self.follows.items() if channel.id != cid}
                self.preferences = {n: own for n, own in self.preferences.items() if n in (FOR_ALL, *self.follows)}
                return len(self.follows) < before
            case LatestEntries(cid, count):
                return self.entries.get(cid, ())[:count]
            case AskWhy(cid):
                if cid not in self.reasons:
                    raise NotSettled("It is not settled yet.")
                return self.reasons[cid]
            case NodeOf(cid):
                return self.nodes.get(cid, "")
            case MyHabits():
                return self.habits
            case SetHabits(habits):
                self.habits = habits
                return None
            case Search(query):
                return self.directory[: query.limit] if "tag=python" in query.pairs else ()
            case MyWatches():
                return tuple(self.watches.values())
            case AddWatch(standing):
                if len(self.watches) >= self.limits.watches:
                    raise LimitReached(
                        "You watch for {most} things already, the most one person can. `unwatch #n` makes room.",
                        most=self.limits.watches,
                    )
                number = max(self.watches, default=0) + 1
                self.watches[number] = Watch(f"me/{number}", standing, number)
                return self.watches[number]
            case EndWatch(number):
                return self.watches.pop(number, None)
            case AcceptInvitation(code):
                return code == "good"
            case ReadList(url):
                return self.lists[url]
            case ReadListText(text):
                return opml_parser.read(text.encode())
            case Share(body=body):
                if isinstance(self.files, UploadRefused):
                    raise self.files
                self.shared.append(body)
                return self.files
            case ImportThese(feeds):
                self.importing += feeds
                return None
            case ForgetEverything():
                self.follows, self.watches, self.preferences, self.habits = {}, {}, {}, NONE
                return 0
            case PausePlease(cids):
                fresh = [cid for cid in cids if cid not in self.paused]
                self.paused.update(dict.fromkeys(fresh, 0))
                return fresh
            case ResumePlease(cids, watches):
                withheld = {cid: self.paused.pop(cid) for cid in cids if cid in self.paused}
                return Resumed(withheld, self.unheard if watches else 0)
            case MyPreferences():
                return self.preferences
            case PutPreferences(number, preferences):
                self.preferences[number] = preferences
                return None
            case CheckHealth():
                return Health(self.workers, self.failing)

    def _followed(self, number: int, channel: Channel) -> Followed:
        paused = 1 if channel.id in self.paused else None
        return followed(Subscription(channel.id, number, 1, 1, NOW_S, paused), channel, self.preferences)

    def _probe(self, url: str) -> Probed:
        self.probes += 1
        found = self.web.get(url, NotAFeed("No feed there."))
        if isinstance(found, CoronetError):
            raise found
        if found.channel is not None:
            self.polled[found.channel.id] = found.channel
            self.entries[found.channel.id] = found.latest
        return found

    def _follow(self, cid: ChannelId) -> tuple[int, bool]:
        held = [number for number, channel in self.follows.items() if channel.id == cid]
        if held:
            return held[0], False
        number = max(self.follows, default=0) + 1
        self.follows[number] = next(channel for channel in self.polled.values() if channel.id == cid)
        return number, True
