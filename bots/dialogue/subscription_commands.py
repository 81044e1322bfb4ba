"""Dialogues about subscriptions: subscribe, unsubscribe, pause, resume, list, show, and the status of channels."""

from collections.abc import Sequence
from functools import partial

import msgspec

from bots.commands.parser import (
    InitialSettings,
    SubscribeCommand,
    SubscriptionTarget,
    VerbCommand,
    parse_entry_count,
)
from bots.dialogue.opml_commands import start_import
from bots.dialogue.reply import Option, Reply, failure, missing_argument
from bots.dialogue.request_handler import Requests
from bots.dialogue.settings_parser import apply_settings
from bots.dialogue.subscription_limits import refuse_further_subscription, refuse_new_url
from bots.i18n.translator import Translator
from bots.replies import subscription_texts as texts
from bots.replies.error_texts import error_text
from bots.replies.formatting import SubscribedChannel
from bots.replies.settings_texts import NO_CONDITION_FOR_FEEDS
from service.corona.optimizer.poll_explanation import BindingConstraint
from service.errors import BadUrl, CoronetError, ListOfFeeds
from service.feeds.canonical_urls import channel_id, page_url
from service.feeds.parsing.html_text import one_line
from service.model import Channel, Entry, FeedLink
from service.users.preferences import DEFAULT_PROOF, FOR_ALL, NO_PREFERENCES, Preferences


async def subscribe(requests: Requests, command: SubscribeCommand) -> Reply:
    """Subscribe to the feed at a URL, or to a page or a part of a page; if the URL is an OPML list, import its feeds.

    A URL that is not polled yet is fetched by a worker, and counts towards the user's hourly limit on new URLs.
    """
    if not command.url:
        return missing_argument("subscribe", requests.translator)
    preferences = apply_settings(NO_PREFERENCES, command.settings, requests.translator)
    if isinstance(preferences, Reply):
        sentence = requests.translator.gettext("I haven't subscribed you yet.")
        return msgspec.structs.replace(preferences, text=f"{sentence} {preferences.text}")
    try:
        return await _subscribe(requests, command, page_url(command.url, command.selector))
    except CoronetError as error:
        return failure(error_text(error, one_line(command.url, 200), requests.translator))


async def _subscribe(requests: Requests, command: SubscribeCommand, url: str) -> Reply:
    """Subscribe to the feed, page or part of a page at the canonical URL ``url``, as ``command`` requests.

    The caller must have checked that the settings in the command are valid.
    """
    translator, settings = requests.translator, command.settings
    subscribed = await requests.subscriptions()
    channel = await requests.channel(channel_id(url))
    url, moved = (channel.url, channel.url != url) if channel is not None else (url, False)
    is_subscribed = any(each.channel.id == channel_id(url) for each in subscribed)
    if not is_subscribed and (refusal := refuse_further_subscription(requests, len(subscribed))) is not None:
        return refusal
    if channel is not None and not channel.dormant:
        return await _begin(requests, channel, None, settings, moved=moved)
    # A page that was offered has been counted.
    if not command.as_page and (refusal := await refuse_new_url(requests)) is not None:
        return refusal
    as_page = command.as_page or bool(command.selector) or (channel is not None and channel.kind == "page")
    try:
        found = await requests.probe(url, as_page=as_page)
    except ListOfFeeds:
        return await start_import(requests, await requests.read_list(url))
    if found.channel is not None:
        return await _begin(requests, found.channel, found.latest, settings, discovered=found.discovered, moved=moved)
    return _offer_page(url, settings, translator) if found.page else _offer_feeds(found.choices, settings, translator)


def _offer_page(url: str, settings: InitialSettings, translator: Translator) -> Reply:
    """Return the reply that asks whether to monitor the page at ``url`` itself, because it has no feed.

    ``settings`` are applied to the new subscription if the user agrees.
    """
    text = translator.gettext(
        "There's no feed at {url}. Shall I monitor the page itself and let you know when it changes? Reply `yes` or "
        "`no`.",
        url=one_line(url, 300),
    )
    command = SubscribeCommand(url, "", settings, as_page=True)
    return Reply(text, options={"yes": Option(partial(subscribe, command=command))})


def _offer_feeds(feeds: Sequence[FeedLink], settings: InitialSettings, translator: Translator) -> Reply:
    """Return the reply that asks which of a page's feeds the user wants to subscribe to.

    ``settings`` are applied to the new subscription.
    """
    untitled = translator.gettext("Feed")
    options = {
        str(number): Option(
            partial(subscribe, command=SubscribeCommand(feed.url, "", settings)),
            f"{one_line(feed.title, 80) or untitled}: {one_line(feed.url, 300)}",
        )
        for number, feed in enumerate(feeds[:10], 1)
    }
    asked = translator.gettext(
        "That page has several feeds. Which one would you like? Reply with its number, or `cancel`."
    )
    rows = [f"{number}. {option.label}" for number, option in options.items()]
    return Reply("\n".join([asked, *rows]), options=options)


async def _begin(
    requests: Requests,
    channel: Channel,
    latest: tuple[Entry, ...] | None,
    settings: InitialSettings,
    *,
    discovered: bool = False,
    moved: bool = False,
) -> Reply:
    """Subscribe the user to a channel, apply ``settings`` to the new subscription, and return the reply.

    The caller must have checked that the settings are valid. ``latest`` are the channel's latest entries if a worker
    has just read them, otherwise None. ``discovered`` states whether the user sent the URL of a page that links to the
    feed, rather than the feed's own URL. ``moved`` states whether the channel has moved to another URL.
    """
    translator, preferences = requests.translator, await requests.preferences()
    initial = apply_settings(NO_PREFERENCES, settings, translator)
    if isinstance(initial, Preferences) and initial.when is not None and channel.kind == "feed":
        return failure(translator.gettext(NO_CONDITION_FOR_FEEDS))
    proofs = [each.proof for each in (initial, preferences.get(FOR_ALL)) if isinstance(each, Preferences)]
    proof = next((proof for proof in proofs if proof is not None), DEFAULT_PROOF)
    if latest is None and proof:
        latest = await requests.latest(channel.id, proof)
    others = await requests.subscriptions()
    number, is_new = await requests.subscribe(channel.id)
    own = NO_PREFERENCES
    if settings:
        changed = apply_settings(preferences.get(number, own), settings, translator)
        own = msgspec.structs.replace(changed if isinstance(changed, Preferences) else own, proof=None)
        await requests.set_preferences(number, own)
        channel = msgspec.structs.replace(channel, title=own.title or channel.title)
    shown = latest[:proof] if latest is not None and proof else None
    subscription = SubscribedChannel(number, channel)
    text = texts.subscribed_text(
        subscription, shown, own, translator, is_new=is_new, discovered=discovered, moved=moved
    )
    if is_new and others and all(each.paused for each in others):
        sentence = translator.gettext("This one is active; everything else is still paused.")
        return Reply(f"{text}\n{sentence}")
    return Reply(text)


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


def no_such_subscription(translator: Translator) -> Reply:
    """Create the reply to a command that names a subscription which the user does not have."""
    return failure(translator.gettext("I can't find that subscription. `list` shows the ones you have."))


async def _find_target(requests: Requests, command: VerbCommand) -> SubscribedChannel | Reply:
    """Return the subscription that the command names, or the reply to the user if there is none."""
    if command.target == SubscriptionTarget():
        return missing_argument(command.name, requests.translator)
    targets = await find_targets(requests, command.target)
    return targets[0] if targets else no_such_subscription(requests.translator)


async def unsubscribe(requests: Requests, command: VerbCommand) -> Reply:
    """End the subscription that the command names. If it names all subscriptions, ask for confirmation first."""
    translator = requests.translator
    if not command.target.everything:
        subscription = await _find_target(requests, command)
        if isinstance(subscription, Reply):
            return subscription
        is_ended = await requests.unsubscribe(subscription.channel.id)
        return (
            Reply(texts.unsubscribed_text([subscription], translator)) if is_ended else no_such_subscription(translator)
        )
    count = len(await requests.subscriptions())
    if not count:
        return Reply(translator.gettext(texts.NO_SUBSCRIPTIONS))
    if count == 2:  # noqa: PLR2004 - both
        text = translator.gettext("End both of your subscriptions? Reply `yes` or `no`.")
    else:
        text = translator.ngettext(
            "End your only subscription? Reply `yes` or `no`.",
            "End all {count} of your subscriptions? Reply `yes` or `no`.",
            count,
        )
    return Reply(text, options={"yes": Option(_unsubscribe_all)})


async def _unsubscribe_all(requests: Requests) -> Reply:
    subscribed = await requests.subscriptions()
    for subscription in subscribed:
        await requests.unsubscribe(subscription.channel.id)
    return Reply(texts.unsubscribed_text(subscribed, requests.translator))


async def list_all(requests: Requests, command: VerbCommand) -> Reply:
    """List the user's subscriptions whose title or URL contains the words of the command; without words, list all."""
    subscribed = await requests.subscriptions()
    needle = command.words.casefold()
    matches = [
        each for each in subscribed if needle in each.channel.title.casefold() or needle in each.channel.url.casefold()
    ]
    return Reply(texts.subscription_list(matches, len(subscribed), command.words, requests.translator))


async def show(requests: Requests, command: VerbCommand) -> Reply:
    """Show the latest entries of a subscription; the words of the command state how many."""
    subscription = await _find_target(requests, command)
    if isinstance(subscription, Reply):
        return subscription
    entries = await requests.latest(subscription.channel.id, parse_entry_count(command.words))
    return Reply(texts.latest_entries(subscription, entries, requests.translator))


async def why(requests: Requests, command: VerbCommand) -> Reply:
    """Explain how often the channel of a subscription is polled, and why."""
    subscription = await _find_target(requests, command)
    if isinstance(subscription, Reply):
        return subscription
    cid = subscription.channel.id
    explanation = await requests.explain_polling(cid)
    failures = (await requests.health((cid,)))[1] if explanation.bound is BindingConstraint.FAILURE else {}
    _, failing_since_s = failures.get(cid, ("", None))
    return Reply(
        texts.poll_explanation_text(
            subscription,
            explanation,
            requests.translator,
            now_s=requests.now_s(),
            node_uri=await requests.pubsub_uri(cid),
            failing_since_s=failing_since_s,
        )
    )


async def status(requests: Requests, _command: VerbCommand) -> Reply:
    """Report which of the user's channels currently cannot be polled, and how far the import of a list is."""
    progress = await requests.import_progress()
    importing = f"{texts.import_progress_text(progress, requests.translator)}\n" if progress else ""
    subscribed = await requests.subscriptions()
    if not subscribed:
        return Reply(importing + requests.translator.gettext(texts.NO_SUBSCRIPTIONS))
    workers, failures = await requests.health(tuple(subscription.channel.id for subscription in subscribed))
    failing = [(each, *failures[each.channel.id]) for each in subscribed if each.channel.id in failures]
    return Reply(
        importing + texts.status_text(len(subscribed), workers, failing, requests.now_s(), requests.translator)
    )


async def pause(requests: Requests, command: VerbCommand) -> Reply:
    """Pause delivery of the subscriptions that the command names. If it names all of them, pause saved searches too."""
    everything = command.target.everything
    targets = await find_targets(requests, command.target)
    if not targets and not everything:
        return no_such_subscription(requests.translator)
    newly_paused = await requests.pause(tuple(each.channel.id for each in targets), watches=everything)
    if not targets:
        return Reply(
            requests.translator.gettext(
                "You have no subscriptions to pause. Saved searches are paused until you send `resume`."
            )
        )
    target = None if everything else targets[0]
    return Reply(texts.paused_text(target, requests.translator, is_new=bool(newly_paused)))


async def resume(requests: Requests, command: VerbCommand) -> Reply:
    """Resume delivery of the subscriptions that the command names. If it names all, resume saved searches too."""
    everything = command.target.everything
    targets = await find_targets(requests, command.target)
    if not targets and not everything:
        return no_such_subscription(requests.translator)
    result = await requests.resume(tuple(each.channel.id for each in targets), watches=everything)
    return Reply(
        texts.resumed_text(
            None if everything else targets[0],
            sum(result.withheld.values()),
            result.missed_matches,
            requests.translator,
            is_resumed=bool(result.withheld) or result.saved_searches_resumed,
        )
    )
