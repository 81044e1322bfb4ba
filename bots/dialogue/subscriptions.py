"""Dialogues about subscriptions: subscribe, unsubscribe, list, show, status, and export and import as OPML.

A list that is too long for one message is exported as a file if the XMPP server accepts uploads, and otherwise as
several messages.
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
from service.corona.optimizer.poll_explanation import BindingConstraint
from service.errors import BadUrl, ListOfFeeds, UploadRefused
from service.feeds import opml
from service.feeds.opml import OpmlDocument
from service.feeds.urls import canonical_url, channel_id, page_url
from service.model import Channel, Entry
from service.users.preferences import DEFAULT_PROOF, FOR_ALL, NO_PREFERENCES, Preferences


async def subscribe(requests: Requests, url: str, settings: InitialSettings, *, as_page: bool = False) -> Reply:
    """Subscribe to the feed at a canonical URL, or to the page itself or a part of it if ``as_page``; return the reply.

    ``settings`` are names and values of the settings of the new subscription.
    """
    preferences = apply_settings(NO_PREFERENCES, settings)
    if not isinstance(preferences, Preferences):
        return preferences
    subscribed = await requests.subscriptions()
    channel = await requests.channel(channel_id(url))
    url, moved = (channel.url, channel.url != url) if channel is not None else (url, False)
    limits = requests.limits
    is_subscribed = any(each.channel.id == channel_id(url) for each in subscribed)
    if len(subscribed) >= limits.subscriptions and not is_subscribed:
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
    """Let a worker fetch a URL, subscribe to the feed or import the OPML list at this URL, and return the reply.

    If ``as_page`` is True, the user is subscribed to the page itself. ``moved`` states whether ``url`` has replaced the
    URL that the user entered.
    """
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
    """Subscribe to a channel with settings, and return the reply.

    ``latest`` are the channel's entries if a worker has just read them, otherwise None. ``discovered`` states whether
    the feed was found through the page at the URL, and ``moved`` whether the channel has moved to another URL.
    """
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
    """Return the preferences ``before`` changed by these settings, which must have been validated."""
    after = apply_settings(before, settings)
    return after if isinstance(after, Preferences) else before


async def find_targets(requests: Requests, target: SubscriptionTarget) -> tuple[SubscribedChannel, ...]:
    """Return the user's subscriptions that match the target; empty if none matches.

    The URL of a page also matches the feed that was found through that page.
    """
    subscribed = await requests.subscriptions()
    if target.everything:
        return subscribed
    if target.number:
        return tuple(subscription for subscription in subscribed if subscription.number == target.number)
    try:
        url = page_url(target.url, target.selector)
    except BadUrl:
        return ()
    return tuple(
        subscription for subscription in subscribed if url in (subscription.channel.url, subscription.channel.link)
    )[:1]


async def _find_target(requests: Requests, verb: str, target: SubscriptionTarget) -> SubscribedChannel | Reply:
    """Return the subscription that matches the target; if none matches, return the reply to the user."""
    if target == SubscriptionTarget():
        return MissingArgument(verb)
    targets = await find_targets(requests, target)
    return targets[0] if targets else NoSuchSubscription()


async def unsubscribe(requests: Requests, target: SubscriptionTarget) -> Reply:
    """End the subscription that ``target`` names."""
    subscription = await _find_target(requests, "unsubscribe", target)
    if isinstance(subscription, Reply):
        return subscription
    return (
        UnsubscribeReply((subscription,))
        if await requests.unsubscribe(subscription.channel.id)
        else NoSuchSubscription()
    )


async def unsubscribe_all(requests: Requests) -> Reply:
    """End every subscription of the user."""
    subscribed = await requests.subscriptions()
    for subscription in subscribed:
        await requests.unsubscribe(subscription.channel.id)
    return UnsubscribeReply(subscribed)


async def list_all(requests: Requests, text: str) -> Reply:
    """List the user's subscriptions whose title or URL contains ``text``; "" lists all of them."""
    subscribed = await requests.subscriptions()
    needle = text.casefold()
    matches = tuple(
        each for each in subscribed if needle in each.channel.title.casefold() or needle in each.channel.url.casefold()
    )
    return SubscriptionList(matches, len(subscribed), text)


async def show(requests: Requests, target: SubscriptionTarget, count: int) -> Reply:
    """Show up to ``count`` latest entries of the subscription that ``target`` names."""
    subscription = await _find_target(requests, "show", target)
    return (
        subscription
        if isinstance(subscription, Reply)
        else LatestEntries(subscription, await requests.latest(subscription.channel.id, count))
    )


async def why(requests: Requests, target: SubscriptionTarget) -> Reply:
    """Explain how often a channel is polled; ``target`` names the user's subscription to the channel."""
    subscription = await _find_target(requests, "why", target)
    if isinstance(subscription, Reply):
        return subscription
    cid = subscription.channel.id
    explanation = await requests.explain_polling(cid)
    failures = (await requests.health((cid,)))[1] if explanation.bound is BindingConstraint.FAILURE else {}
    _, failing_since_s = failures.get(cid, ("", None))
    return PollExplanationReply(
        subscription, explanation, requests.now_s(), await requests.pubsub_uri(cid), failing_since_s
    )


async def status(requests: Requests) -> Reply:
    """Report the user's channels that cannot be polled at present."""
    subscribed = await requests.subscriptions()
    workers, failures = await requests.health(tuple(subscription.channel.id for subscription in subscribed))
    failing = tuple((each, *failures[each.channel.id]) for each in subscribed if each.channel.id in failures)
    return StatusReport(len(subscribed), workers, failing, requests.now_s())


async def export(requests: Requests) -> Reply:
    """Export the user's subscriptions as OPML: as a file if the XMPP server accepts one, otherwise as messages."""
    subscribed = await requests.subscriptions()
    feeds = [
        opml.OpmlSubscription(each.channel.url, each.channel.title[:100], page=each.channel.kind == "page")
        for each in subscribed
    ]
    parts, refused = tuple(split_into_documents(feeds, MAX_MESSAGE_BYTES)), None
    if len(parts) > 1:
        try:
            url = await requests.share("subscriptions.opml", _document(feeds), "text/x-opml")
        except UploadRefused as error:
            refused = error
        else:
            if url is not None:
                return ExportFileReply(url, len(subscribed))
    return ExportReply(parts, len(subscribed), refused)


async def import_list(requests: Requests, words: str) -> Reply:
    """Import the OPML list at the URL in ``words``, or the OPML document that ``words`` contain. Raises CoronetError.

    A URL counts towards the user's hourly limit on new URLs.
    """
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


def split_into_documents(feeds: Sequence[opml.OpmlSubscription], max_bytes: int) -> list[str]:
    """Return complete OPML documents, each of at most ``max_bytes``, which contain the feeds in order.

    A feed is left out if its URL is too long to fit into a document.
    """
    empty_bytes = len(_document([]).strip())
    parts: list[list[opml.OpmlSubscription]] = [[]]
    size_bytes = empty_bytes
    for feed in feeds:
        grows_bytes = len(_document([feed]).strip()) - empty_bytes
        if empty_bytes + grows_bytes > max_bytes:
            continue
        if size_bytes + grows_bytes > max_bytes:
            parts.append([])
            size_bytes = empty_bytes
        parts[-1].append(feed)
        size_bytes += grows_bytes
    return [_document(part).decode().strip() for part in parts if part]


def _document(feeds: Sequence[opml.OpmlSubscription]) -> bytes:
    return opml.write("Coronet", feeds)
