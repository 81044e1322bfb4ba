"""Handlers of the requests that dialogues make for one person: the real one and the one of a dry run.

:class:`ReadRequests` has the requests that only read the store. :class:`RequestHandler` adds those that write.
:class:`DryRun` has the same methods as :class:`RequestHandler`, but only records the effects they would have. It
inherits no writing method, so a new request fails in a dry run until its effect is described there. Policy, like
limits, is decided by the dialogues.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from bots.access import Access
from bots.delivery.outbox_consumer import OutboxConsumer
from bots.dialogue.opml_import import OpmlImporter, follow
from bots.dialogue.request_types import Limits, MessageReferences
from bots.i18n.translator import supported_language
from bots.pubsub.atom_items import node_uri
from bots.replies.base import SubscribedChannel
from bots.xmpp.file_upload import FileUploader
from service.clock import Clock
from service.corona.poll_explanation import PollExplanation
from service.discovery.query_parser import Query, SearchHit
from service.discovery.saved_searches import SavedSearch, SearchCondition
from service.errors import LimitReached, NotSubscribed, NoWorker
from service.feeds.opml import OpmlDocument, OpmlSubscription
from service.feeds.sandbox.opml_reader import OpmlReader
from service.feeds.urls import host_of
from service.location.content_cache import MAX_LATEST_ENTRIES
from service.model import Channel, ChannelId, Entry, Subscription
from service.search import Searcher
from service.store import Store
from service.store.client.keys import user_id
from service.store.coordination.requests import ProbeReply
from service.store.delivery.outbox import Batch, MessageId, SentMessage
from service.store.people.erasure import RESTRICTIONS_KEPT_DAYS
from service.store.people.users import UserState
from service.store.subscriptions.subscriptions import ResumeResult
from service.users.preferences import FOR_ALL, NO_PREFERENCES, Preferences, PreferencesByNumber
from service.users.quiet_hours import UserSettings

_HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class BotServices:
    """What the requests of all people share; ``pubsub_service`` is where public channels are published, or ""."""

    store: Store
    delivery: OutboxConsumer
    clock: Clock
    limits: Limits
    door: Access
    importing: OpmlImporter
    uploads: FileUploader
    lists: OpmlReader
    pubsub_service: str

    async def greet(self, known: UserState, tag: str) -> UserState:
        """Return what was known of a person, who is welcomed by now; their client speaks the language of this tag."""
        jid = known.jid
        if not await self.door.has_access(jid):
            return msgspec.structs.replace(known, welcomed=True)  # nothing is kept of strangers
        if not known.welcomed:
            await self.store.users.update(jid, welcomed=True)
            await self.store.inbound_log.keep_home_address(jid)
        if known.unreachable:
            mine = await self.store.subscriptions.of_user(jid)
            await self.store.pauses.resume_reachable(jid, [held.channel for held in mine])
        client_language = supported_language(tag)
        if client_language in ("", known.user_settings.client_language):
            return known
        await self.store.users.set_client_language(jid, client_language)
        self.delivery.on_settings_changed(jid)
        user_settings = msgspec.structs.replace(known.user_settings, client_language=client_language)
        return msgspec.structs.replace(known, user_settings=user_settings)


class ReadRequests:
    """Requests of the person with this bare JID that change nothing; each may raise a CoronetError."""

    def __init__(
        self,
        house: BotServices,
        jid: str,
        most_subscriptions: int | None = None,
        at_work: Callable[[], None] | None = None,
    ) -> None:
        """Serve a person with a limit of their own, or None; ``at_work`` is called before what takes long."""
        self.limits = house.limits.of(most_subscriptions)
        self._house = house
        self._store = house.store
        self._jid = jid
        self._uid = user_id(jid)
        self._at_work = at_work or (lambda: None)

    def now_s(self) -> float:
        """Return the time (Unix s)."""
        return self._house.clock.wall_s()

    async def is_admitted(self) -> bool:
        """Return whether the person may use the bot."""
        return await self._house.door.has_access(self._jid)

    async def channel(self, cid: ChannelId) -> Channel | None:
        """Return the channel if there is one, or the one that took over from it."""
        return await self._store.channels.resolve(cid)

    async def subscriptions(self) -> tuple[SubscribedChannel, ...]:
        """Return the person's subscriptions, by number."""
        subscriptions, preferences = await asyncio.gather(
            self._store.subscriptions.of_user(self._jid), self.preferences()
        )
        channels = await self._store.channels.get_many([subscription.channel for subscription in subscriptions])
        pairs = zip(subscriptions, channels, strict=True)
        return tuple(followed(subscription, channel, preferences) for subscription, channel in pairs if channel)

    async def why(self, cid: ChannelId) -> PollExplanation:
        """Return why a channel is polled as it is."""
        channel = await self._store.channels.get(cid)
        await self._store.blocked_hosts.check(host_of(channel.url) if channel else "")
        return await self._store.worker_requests.explain(cid)

    async def pubsub_uri(self, cid: ChannelId) -> str:
        """Return the xmpp: URI of the pubsub node on which a channel is published; "" if there is none."""
        service = self._house.pubsub_service
        position = (await self._store.pubsub_nodes.positions(service, [cid])).get(cid) if service else None
        return node_uri(service, cid) if position is not None and position.version else ""

    async def health(self, cids: tuple[ChannelId, ...]) -> tuple[int, dict[ChannelId, tuple[str, float]]]:
        """Return how many workers there are, and which of these channels fail: outcome, since when (Unix s)."""
        workers, states = await asyncio.gather(self._store.ring.nodes(), self._store.channels.states(cids))
        failing = {}
        for state in states:
            if state is not None and state.failing_since_s is not None:
                last = await self._store.channels.polls(state.channel.id, 1)
                failing[state.channel.id] = (last[0].outcome if last else "", state.failing_since_s)
        return len(workers), failing

    async def user_settings(self) -> UserSettings:
        """Return when the person wants to hear from us."""
        return (await self._store.users.user_settings([self._uid]))[0]

    async def preferences(self) -> PreferencesByNumber:
        """Return what the person wants of their subscriptions."""
        return (await self._store.preferences.of_users([self._uid]))[0]

    async def search(self, query: Query) -> tuple[SearchHit, ...]:
        """Return what is found: of the person's own, and of what is public."""
        search = Searcher(self._store, self.limits.public_from_subscribers)
        own, public = await asyncio.gather(search.find_own(self._jid, query), search.find(query))
        return (*own, *public)[: query.limit]

    async def watches(self) -> tuple[SavedSearch, ...]:
        """Return what the person watches for, by number."""
        return tuple(await self._store.saved_searches.of_user(self._jid))

    async def read_list(self, url: str) -> OpmlDocument:
        """Return what the list of feeds at a canonical URL says; a worker fetches it, unless our server has it."""
        self._at_work()
        if self._house.uploads.files.is_own(url):
            return await self._house.lists.read(lambda: self._house.uploads.files.read(url))
        return await self._store.worker_requests.outline(url)

    async def read_list_text(self, text: str) -> OpmlDocument:
        """Return what this text, a list of feeds, says."""
        self._at_work()
        return await self._house.lists.read(lambda: _encoded(text))

    async def message_references(self, message_id: MessageId) -> MessageReferences | None:
        """Return what a message of ours told the person; None if it told nothing, or we forgot."""
        (told,), flying = await asyncio.gather(
            self._store.outbox.sent_messages([self._uid]), self._store.outbox.in_flight([self._uid])
        )
        messages: list[SentMessage | Batch] = [*told, *flying[self._uid]]
        items = [item for one in messages if one.message_id == message_id for item in one.items]
        if not items:
            return None
        watches = {watch.number for item in items for watch in item.matches or ()}
        return MessageReferences(tuple(dict.fromkeys(item.channel for item in items)), tuple(sorted(watches)))


class RequestHandler(ReadRequests):
    """Requests of one person, executed: what a method changes is durable, and counts, when it returns."""

    async def use_new_url_allowance(self) -> bool:
        """Return whether the person may have one more new URL looked at this hour."""
        return await self._store.users.count_use(self._jid, "url", self.limits.new_urls_per_hour, _HOUR_S)

    async def probe(self, url: str, *, as_page: bool) -> ProbeReply:
        """Have a worker look at this canonical URL and make the channel; ``as_page``: of the page itself."""
        self._at_work()
        return await self._store.worker_requests.probe(url, as_page=as_page)

    async def latest(self, cid: ChannelId, count: int) -> tuple[Entry, ...]:
        """Return a channel's latest entries from the nearest copy, newest first; many only the log has."""
        if count <= MAX_LATEST_ENTRIES:
            with contextlib.suppress(NoWorker, NotSubscribed):
                return (await self._store.worker_requests.content(cid)).latest[:count]
        return await self._store.channels.latest(cid, count)

    async def subscribe(self, cid: ChannelId) -> tuple[int, bool]:
        """Return the subscription's number, and whether it is new."""
        await self._store.inbound_log.keep_home_address(self._jid)
        subscription, new = await follow(self._store, self._jid, cid, self._house.limits.subscriptions)
        return subscription.number, new

    async def unsubscribe(self, cid: ChannelId) -> bool:
        """Return whether there was such a subscription; nothing of the channel is sent any more."""
        async with self._house.delivery.pause_user(self._jid):
            return await self._store.subscriptions.unsubscribe(self._jid, cid)

    async def pause(self, cids: tuple[ChannelId, ...], *, watches: bool) -> list[ChannelId]:
        """Return which of these channels were not paused yet; ``watches``: pause what is watched for, too."""
        async with self._house.delivery.pause_user(self._jid):
            return await self._store.pauses.pause(self._jid, cids, saved_searches=watches)

    async def resume(self, cids: tuple[ChannelId, ...], *, watches: bool) -> ResumeResult:
        """Return which of these channels were paused, and what came meanwhile."""
        return await self._store.pauses.resume(self._jid, cids, saved_searches=watches)

    async def set_user_settings(self, user_settings: UserSettings) -> None:
        """Change when the person wants to hear from us."""
        await self._store.users.set_user_settings(self._jid, user_settings)
        self._house.delivery.on_settings_changed(self._jid)
        if user_settings.heeds_presence:
            self._house.delivery.request_presence(self._jid)

    async def set_preferences(self, number: int, preferences: Preferences) -> None:
        """Change what the person wants of the subscription of this number, or of all (``FOR_ALL``)."""
        async with self._house.delivery.pause_user(self._jid):
            await self._store.preferences.put(self._jid, number, preferences)
            self._house.delivery.on_settings_changed(self._jid)

    async def watch(self, standing: SearchCondition) -> SavedSearch:
        """Watch for what this describes."""
        return await self._store.saved_searches.add(self._jid, standing, self.limits.watches)

    async def unwatch(self, number: int) -> SavedSearch | None:
        """Return what was watched for under this number, which has ended; None if nothing was."""
        return await self._store.saved_searches.remove(self._jid, number)

    async def share(self, name: str, body: bytes, media_type: str) -> str | None:
        """Return the URL of the file, which lies on the XMPP server then; None if that takes none. UploadRefused."""
        self._at_work()
        return await self._house.uploads.share(name, body, media_type)

    async def import_feeds(self, feeds: tuple[OpmlSubscription, ...]) -> None:
        """Begin to subscribe the person to these, one after the other; they are told of the end."""
        await self._house.importing.add(self._jid, feeds)

    async def accept_invitation(self, code: str) -> bool:
        """Return whether the person may use the bot with this code."""
        return await self._house.door.redeem_code(self._jid, code)

    async def forget_everything(self) -> int:
        """Delete all about the person; return for how many days what admins restrict is kept, 0 if nothing is."""
        await self._house.importing.stop(self._jid)
        async with self._house.delivery.pause_user(self._jid):
            await self._house.delivery.remove_contact(self._jid)
            is_restricted = await self._store.erasure.erase(self._jid)
            self._house.delivery.forget_user(self._jid)
        return RESTRICTIONS_KEPT_DAYS if is_restricted else 0


class DryRun(ReadRequests):
    """Requests of one person, answered without an effect; ``effects`` is what would be done, a sentence each."""

    def __init__(self, house: BotServices, jid: str, most_subscriptions: int | None) -> None:
        """Answer for a person with a limit of their own, or None."""
        super().__init__(house, jid, most_subscriptions)
        self.effects: list[str] = []
        self._probed: dict[ChannelId, Channel] = {}

    async def use_new_url_allowance(self) -> bool:
        """Return True: nothing is counted."""
        return True

    async def probe(self, url: str, *, as_page: bool) -> ProbeReply:
        """Have a worker look at this canonical URL, and nothing else."""
        probed = await self._store.worker_requests.probe(url, as_page=as_page, keep=False)
        if probed.channel is not None:
            self._probed[probed.channel.id] = probed.channel
            if await self._store.channels.get(probed.channel.id) is None:
                self.effects.append(f"Make {probed.channel.url} a channel.")
        return probed

    async def latest(self, cid: ChannelId, count: int) -> tuple[Entry, ...]:
        """Return a channel's latest entries from the log, newest first."""
        return await self._store.channels.latest(cid, count)

    async def subscribe(self, cid: ChannelId) -> tuple[int, bool]:
        """Return the number that the subscription has or would have, and whether it would be new."""
        channel = await self._known(cid)
        await self._store.blocked_hosts.check(host_of(channel.url) if channel else "")
        for held in await self._store.subscriptions.of_user(self._jid):
            if held.channel == cid:
                return held.number, False
        self.effects.append(f"Subscribe them to {_name(channel)}.")
        return await self._store.users.next_number(self._jid, "numbers"), True

    async def unsubscribe(self, cid: ChannelId) -> bool:
        """Return whether there is such a subscription."""
        held = any(each.channel == cid for each in await self._store.subscriptions.of_user(self._jid))
        if held:
            self.effects.append(f"End the subscription to {_name(await self._known(cid))}.")
        return held

    async def pause(self, cids: tuple[ChannelId, ...], *, watches: bool) -> list[ChannelId]:
        """Return which of these channels are not paused."""
        mine = await self._store.subscriptions.of_user(self._jid)
        awake = [each.channel for each in mine if each.channel in cids and each.paused_version is None]
        self.effects.append(f"Pause {len(awake):,} subscriptions{_AND_WATCHES if watches else ''}.")
        return awake

    async def resume(self, cids: tuple[ChannelId, ...], *, watches: bool) -> ResumeResult:
        """Return which of these channels are paused, and how many versions came meanwhile."""
        mine = [each for each in await self._store.subscriptions.of_user(self._jid) if each.channel in cids]
        paused = {each.channel: each.paused_version for each in mine if each.paused_version is not None}
        channels = await self._store.channels.get_many(list(paused))
        withheld = {each.id: max(0, each.version - paused[each.id]) for each in channels if each is not None}
        self.effects.append(f"Resume {len(paused):,} subscriptions{_AND_WATCHES if watches else ''}.")
        return ResumeResult(withheld)

    async def set_user_settings(self, _user_settings: UserSettings) -> None:
        """Note the change."""
        self.effects.append("Keep when they want to hear from us.")

    async def set_preferences(self, number: int, _preferences: Preferences) -> None:
        """Note the change."""
        self.effects.append(f"Keep what they prefer of {f'#{number}' if number else 'everything'}.")

    async def watch(self, standing: SearchCondition) -> SavedSearch:
        """Return the watch that there is or would be."""
        mine = await self.watches()
        for held in mine:
            if held.condition == standing:
                return held
        if len(mine) >= self.limits.watches:
            raise LimitReached(
                "You already have {most} saved searches, the maximum. `unwatch #n` makes room.",
                most=self.limits.watches,
            )
        self.effects.append("Watch for that from now on.")
        return SavedSearch("", standing, await self._store.users.next_number(self._jid, "watches"))

    async def unwatch(self, number: int) -> SavedSearch | None:
        """Return the watch of this number."""
        watch = next((each for each in await self.watches() if each.number == number), None)
        if watch is not None:
            self.effects.append(f"End what is watched for as #{number}.")
        return watch

    async def share(self, _name: str, _body: bytes, _media_type: str) -> None:
        """Return None, as where the server takes no file."""
        self.effects.append("Send the list as a file if their server takes one, and as messages otherwise.")

    async def import_feeds(self, feeds: tuple[OpmlSubscription, ...]) -> None:
        """Note the import."""
        self.effects.append(f"Subscribe them to {len(feeds):,} feeds of a list, one after the other.")

    async def accept_invitation(self, code: str) -> bool:
        """Return whether the person may use the bot, or could with this code."""
        self.effects.append("Use the invitation up, if it is good.")
        return await self.is_admitted() or await self._store.invitations.is_valid(code)

    async def forget_everything(self) -> int:
        """Return 0."""
        self.effects.append("Forget everything about them but what admins have set.")
        return 0

    async def _known(self, cid: ChannelId) -> Channel | None:
        return self._probed.get(cid) or await self._store.channels.get(cid)


Requests = RequestHandler | DryRun
"""What dialogues may ask: mypy checks that both have every method."""

_AND_WATCHES = ", and what they watch for"


async def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _name(channel: Channel | None) -> str:
    return (channel.title or channel.url) if channel else "a channel that is gone"


def followed(subscription: Subscription, channel: Channel, preferences: PreferencesByNumber) -> SubscribedChannel:
    """Return a subscription as its person sees it."""
    own = preferences.get(subscription.number, NO_PREFERENCES)
    channel = msgspec.structs.replace(channel, title=own.title or channel.title)
    muted = own.muted or preferences.get(FOR_ALL, NO_PREFERENCES).muted
    return SubscribedChannel(subscription.number, channel, paused=subscription.paused_version is not None, muted=muted)
