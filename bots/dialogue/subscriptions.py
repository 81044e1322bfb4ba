"""Dialogues about subscriptions: how they begin and end, what is in them, and lists of them in and out (OPML).

A list goes out as a file if it is too long for one message and the XMPP server takes files, else as messages.
"""

from collections.abc import Sequence

import msgspec

from bots.commands.parser import SubscriptionTarget
from bots.dialogue.request_handler import Requests
from bots.dialogue.settings_parser import apply_settings
from bots.replies.base import MAX_MESSAGE_BYTES, Reply, SubscribedChannel
from bots.replies.help import MissingArgument
from bots.replies.subscriptions import (
    ChooseFeed,
    ExportFileReply,
    ExportReply,
    ImportStarted,
    InitialSettings,
    LatestEntries,
    NoSuchSubscription,
    OfferPageMonitoring,
    PollExplanationReply,
    StatusReport,
    SubscribeReply,
    SubscriptionList,
    TooManyNewUrls,
    TooManySubscriptions,
    UnsubscribeReply,
)
from service.errors import BadUrl, ListOfFeeds, UploadRefused
from service.feeds import opml
from service.feeds.opml import OpmlDocument
from service.feeds.urls import canonical_url, channel_id, page_url
from service.model import Channel, Entry
from service.users.preferences import DEFAULT_PROOF, FOR_ALL, NO_PREFERENCES, Preferences


async def subscribe(requests: Requests, url: str, settings: InitialSettings, *, as_page: bool = False) -> Reply:
    """Subscribe to what is at a canonical URL; ``as_page``: to that page itself, or the part its selector names."""
    wanted = apply_settings(NO_PREFERENCES, settings)
    if not isinstance(wanted, Preferences):
        return wanted
    mine = await requests.subscriptions()
    channel = await requests.channel(channel_id(url))
    url, moved = (channel.url, channel.url != url) if channel is not None else (url, False)
    limits = requests.limits
    if len(mine) >= limits.subscriptions and not any(followed.channel.id == channel_id(url) for followed in mine):
        return TooManySubscriptions(limits.subscriptions)
    if channel is not None and not channel.dormant:
        return await _begin(requests, channel, None, settings, moved=moved)
    if not await requests.use_new_url_allowance():
        return TooManyNewUrls(limits.new_urls_per_hour)
    as_page = as_page or (channel is not None and channel.kind == "page")
    return await probe(requests, url, settings, as_page=as_page, moved=moved)


async def probe(
    requests: Requests, url: str, settings: InitialSettings, *, as_page: bool, moved: bool = False
) -> Reply:
    """Have a worker look, and subscribe to what it finds: to one feed, or all of a list."""
    try:
        found = await requests.probe(url, as_page=as_page)
    except ListOfFeeds:
        return await _import(requests, await requests.read_list(url))
    if found.channel is None:
        return OfferPageMonitoring(url, settings) if found.page else ChooseFeed(found.choices, settings)
    return await _begin(requests, found.channel, found.latest, settings, discovered=found.discovered, moved=moved)


async def _begin(
    requests: Requests,
    channel: Channel,
    latest: tuple[Entry, ...] | None,
    settings: InitialSettings,
    *,
    discovered: bool = False,
    moved: bool = False,
) -> Reply:
    """Subscribe to a channel as it is wished; ``latest`` is None if nobody has looked at it just now."""
    preferences = await requests.preferences()
    proof = _apply_valid_settings(Preferences(proof=preferences.get(FOR_ALL, NO_PREFERENCES).proof), settings).proof
    proof = DEFAULT_PROOF if proof is None else proof
    if latest is None and proof:
        latest = await requests.latest(channel.id, proof)
    number, new = await requests.subscribe(channel.id)
    own = NO_PREFERENCES
    if settings:
        own = msgspec.structs.replace(
            _apply_valid_settings(preferences.get(number, NO_PREFERENCES), settings), proof=None
        )
        await requests.set_preferences(number, own)
        channel = msgspec.structs.replace(channel, title=own.title or channel.title)
    shown = latest[:proof] if latest is not None and proof else None
    return SubscribeReply(
        SubscribedChannel(number, channel), new, shown, discovered=discovered, moved=moved, preferences=own
    )


def _apply_valid_settings(before: Preferences, settings: InitialSettings) -> Preferences:
    """Return what is wanted after wishes with which nothing is wrong."""
    after = apply_settings(before, settings)
    return after if isinstance(after, Preferences) else before


async def find_targets(requests: Requests, target: SubscriptionTarget) -> tuple[SubscribedChannel, ...]:
    """Return the person's subscriptions that are meant; none if there is no such one.

    A page's URL also means the feed that was found through it.
    """
    mine = await requests.subscriptions()
    if target.everything:
        return mine
    if target.number:
        return tuple(followed for followed in mine if followed.number == target.number)
    try:
        url = page_url(target.url, target.selector)
    except BadUrl:
        return ()
    return tuple(followed for followed in mine if url in (followed.channel.url, followed.channel.link))[:1]


async def _target(requests: Requests, verb: str, target: SubscriptionTarget) -> SubscribedChannel | Reply:
    """Return the subscription that is meant, or that none is."""
    if target == SubscriptionTarget():
        return MissingArgument(verb)
    found = await find_targets(requests, target)
    return found[0] if found else NoSuchSubscription()


async def unsubscribe(requests: Requests, target: SubscriptionTarget) -> Reply:
    """End one subscription."""
    one = await _target(requests, "unsubscribe", target)
    if isinstance(one, Reply):
        return one
    return UnsubscribeReply((one,)) if await requests.unsubscribe(one.channel.id) else NoSuchSubscription()


async def unsubscribe_all(requests: Requests) -> Reply:
    """End every subscription."""
    mine = await requests.subscriptions()
    for followed in mine:
        await requests.unsubscribe(followed.channel.id)
    return UnsubscribeReply(mine)


async def list_all(requests: Requests, wanted: str) -> Reply:
    """Name the subscriptions in whose title or URL this stands."""
    mine = await requests.subscriptions()
    needle = wanted.casefold()
    found = tuple(f for f in mine if needle in f.channel.title.casefold() or needle in f.channel.url.casefold())
    return SubscriptionList(found, len(mine), wanted)


async def show(requests: Requests, target: SubscriptionTarget, count: int) -> Reply:
    """Show the latest entries of one subscription."""
    one = await _target(requests, "show", target)
    return one if isinstance(one, Reply) else LatestEntries(one, await requests.latest(one.channel.id, count))


async def why(requests: Requests, target: SubscriptionTarget) -> Reply:
    """Tell why one subscription is polled as often as it is."""
    one = await _target(requests, "why", target)
    if isinstance(one, Reply):
        return one
    reason = await requests.why(one.channel.id)
    return PollExplanationReply(one, reason, requests.now_s(), await requests.pubsub_uri(one.channel.id))


async def status(requests: Requests) -> Reply:
    """Tell whether all subscriptions can be reached."""
    mine = await requests.subscriptions()
    workers, trouble = await requests.health(tuple(followed.channel.id for followed in mine))
    failing = tuple((f, *trouble[f.channel.id]) for f in mine if f.channel.id in trouble)
    return StatusReport(len(mine), workers, failing, requests.now_s())


async def export(requests: Requests) -> Reply:
    """Write down what a person follows."""
    mine = await requests.subscriptions()
    feeds = [
        opml.OpmlSubscription(each.channel.url, each.channel.title[:100], page=each.channel.kind == "page")
        for each in mine
    ]
    parts, refused = tuple(documents(feeds, MAX_MESSAGE_BYTES)), None
    if len(parts) > 1:
        try:
            url = await requests.share("subscriptions.opml", _document(feeds), "text/x-opml")
        except UploadRefused as error:
            refused = error
        else:
            if url is not None:
                return ExportFileReply(url, len(mine))
    return ExportReply(parts, len(mine), refused)


async def import_list(requests: Requests, words: str) -> Reply:
    """Have a list's feeds subscribed to, one after the other; its URL counts as a new one. Raises CoronetError."""
    words = words.strip()
    if not words:
        return MissingArgument("import")
    if words.startswith("<") and not words[1:].startswith(("http://", "https://")):
        return await _import(requests, await requests.read_list_text(words))
    url = canonical_url(words.split(maxsplit=1)[0].strip("<>"))
    if not await requests.use_new_url_allowance():
        return TooManyNewUrls(requests.limits.new_urls_per_hour)
    return await _import(requests, await requests.read_list(url))


async def _import(requests: Requests, outline: OpmlDocument) -> Reply:
    if outline.feeds:
        await requests.import_feeds(outline.feeds)
    return ImportStarted(len(outline.feeds), outline.problems)


def documents(feeds: Sequence[opml.OpmlSubscription], most_bytes: int) -> list[str]:
    """Return the feeds as OPML documents of at most so many bytes each, in order, each of which can be imported alone.

    What does not fit even alone, for its address is too long, is left out.
    """
    empty_bytes = len(_document([]).strip())
    parts: list[list[opml.OpmlSubscription]] = [[]]
    size_bytes = empty_bytes
    for feed in feeds:
        grows_bytes = len(_document([feed]).strip()) - empty_bytes
        if empty_bytes + grows_bytes > most_bytes:
            continue
        if size_bytes + grows_bytes > most_bytes:
            parts.append([])
            size_bytes = empty_bytes
        parts[-1].append(feed)
        size_bytes += grows_bytes
    return [_document(part).decode().strip() for part in parts if part]


def _document(feeds: Sequence[opml.OpmlSubscription]) -> bytes:
    return opml.write("Coronet", feeds)
