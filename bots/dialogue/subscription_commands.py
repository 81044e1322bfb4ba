"""Dialogues about subscriptions: subscribe, unsubscribe, pause, resume, list, show, and the status of channels."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from bots.commands.parser import (
    InitialSettings,
    SubscribeCommand,
    SubscriptionTarget,
    VerbCommand,
    parse_entry_count,
)
from bots.dialogue.folders import all_folders, find_folder
from bots.dialogue.opml_commands import start_import
from bots.dialogue.reply import Option, Reply, failure, missing_argument
from bots.dialogue.request_handler import Requests
from bots.dialogue.settings_parser import apply_settings
from bots.dialogue.subscription_limits import refuse_further_subscription, refuse_new_url
from bots.i18n.translator import Translator, gettext_noop
from bots.replies import subscription_texts as texts
from bots.replies.error_texts import error_text
from bots.replies.formatting import SubscribedChannel, Target
from bots.replies.settings_texts import NO_CONDITION_FOR_FEEDS
from service.corona.optimizer.poll_explanation import BindingConstraint
from service.errors import BadStatus, BadUrl, CoronetError, ListOfFeeds
from service.feeds.canonical_urls import SHARED, channel_id, origin_of, page_url, protected_url, reader_of, shown_url
from service.feeds.credentials import Credential
from service.feeds.parsing.html_text import one_line
from service.model import Channel, Entry, FeedLink
from service.store.coordination.worker_requests import ProbeReply
from service.users.preferences import DEFAULT_PROOF, FOR_ALL, NO_PREFERENCES, Preferences

_FOLDERS_WORDS: Final = frozenset(
    ("folders", "ordner", "dossiers", "carpetas", "cartelle", "pastas", "mappen", "foldery", "katalogi")
)
RULE_TITLES: Final = (
    *(gettext_noop("All videos"), gettext_noop("Videos without Shorts"), gettext_noop("Releases")),
    gettext_noop("Commits"),
)
"""The titles in the rules for the feeds of sites, which are translated; other titles are the publishers' own."""


async def subscribe(requests: Requests, command: SubscribeCommand) -> Reply:
    """Subscribe to the feed at a URL, or to a page or a part of a page; if the URL is an OPML list, import its feeds.

    A URL that is not polled yet is fetched by a worker, and counts towards the user's hourly limit on new URLs. So does
    a URL with a credential. Its channel is the user's own; another credential replaces the present one.
    """
    if not command.url:
        return missing_argument("subscribe", requests.translator)
    if command.credential is not None and (refusal := _refuse_credential(requests, command.credential)) is not None:
        return refusal
    preferences = apply_settings(NO_PREFERENCES, command.settings, requests.translator)
    if isinstance(preferences, Reply):
        sentence = requests.translator.gettext("I haven't subscribed you yet.")
        return msgspec.structs.replace(preferences, text=f"{sentence} {preferences.text}")
    try:
        return await _subscribe(requests, command, page_url(command.url, command.selector))
    except CoronetError as error:
        if command.credential is not None and isinstance(error, BadStatus) and error.status in (401, 403):
            return failure(texts.login_refused_text(one_line(command.url, 200), error.status, requests.translator))
        return failure(error_text(error, one_line(command.url, 200), requests.translator))


def _refuse_credential(requests: Requests, credential: Credential) -> Reply | None:
    """Return the reply that refuses a credential in a room, or one that cannot be used; None if it can be used."""
    translator = requests.translator
    if requests.is_room:
        return failure(
            translator.gettext(
                "Everyone in this room can read that login, so I haven't used it. Better change it, and subscribe in a "
                "private chat with me, or ask an admin of this service to add the feed for everyone."
            )
        )
    if not credential.header:
        return failure(
            translator.gettext(
                "I can't use that login. Right after the address, write `login NAME PASSWORD`, `token TOKEN`, `cookie "
                "NAME=VALUE` or `header NAME: VALUE`."
            )
        )
    if not requests.settings.credentials_key:
        return failure(
            translator.gettext(
                "I can't keep logins, because the people who run this service haven't set up their encryption."
            )
        )
    return None


async def _subscribe(requests: Requests, command: SubscribeCommand, url: str) -> Reply:
    """Subscribe to the feed, page or part of a page at the canonical URL ``url``, as ``command`` requests.

    The caller must have checked that the settings in the command are valid.
    """
    subscribed = await requests.subscriptions()
    url, channel = await _find_channel(requests, command, url, [each.channel for each in subscribed])
    url, moved = (channel.url, channel.url != url) if channel is not None else (url, False)
    is_subscribed = any(each.channel.id == channel_id(url) for each in subscribed)
    if not is_subscribed and (refusal := refuse_further_subscription(requests, len(subscribed))) is not None:
        return refusal
    if channel is not None and not channel.dormant and command.credential is None:
        return await _begin(requests, channel, None, command.settings, moved=moved)
    # A page that was offered has been counted.
    if not command.as_page and (refusal := await refuse_new_url(requests)) is not None:
        return refusal
    as_page = command.as_page or bool(command.selector) or (channel is not None and channel.kind == "page")
    try:
        found = await requests.probe(url, as_page=as_page, credential=command.credential)
    except ListOfFeeds:
        return await start_import(requests, await requests.read_list(url))
    return await _begin_or_ask(requests, command, shown_url(url), found, moved=moved)


async def _find_channel(
    requests: Requests, command: SubscribeCommand, url: str, subscribed: Sequence[Channel]
) -> tuple[str, Channel | None]:
    """Return the URL of the channel to which the user wants to subscribe, and the channel, or None if there is none.

    With a credential, it is the user's own. Otherwise, it is a protected channel to which the user is or may subscribe,
    unless there is an active one without a credential. ``subscribed`` are the channels to which the user is subscribed.
    """
    own = requests.own_url(url)
    if command.credential is not None:
        return own, await requests.channel(channel_id(own))
    channel = await requests.channel(channel_id(url))
    if command.selector or (channel is not None and not channel.dormant):
        return url, channel
    shared = protected_url(url, SHARED)
    found = next((each for each in subscribed if each.url == own), None) or await requests.channel(channel_id(shared))
    return (found.url, found) if found is not None else (url, channel)


async def _begin_or_ask(
    requests: Requests, command: SubscribeCommand, url: str, found: ProbeReply, *, moved: bool
) -> Reply:
    """Subscribe the user to the channel that a worker has found at ``url``, or ask which one the user means."""
    translator = requests.translator
    again = SubscribeCommand(url, "", command.settings, credential=command.credential)
    if found.channel is None and found.page:
        return _offer_page(msgspec.structs.replace(again, as_page=True), translator)
    if found.channel is None:
        return _offer_feeds(found.choices, again, translator)
    reply = await _begin(
        requests, found.channel, found.latest, command.settings, discovered=found.discovered, moved=moved
    )
    if command.credential is None or not reader_of(found.channel.url):
        return reply
    sentence = translator.gettext("Your login is stored encrypted; it's best to delete your message with it now.")
    return msgspec.structs.replace(reply, text=f"{reply.text}\n{sentence}")


def _offer_page(command: SubscribeCommand, translator: Translator) -> Reply:
    """Return the reply that asks whether to monitor a page itself, because it has no feed.

    ``command`` is executed if the user agrees.
    """
    text = translator.gettext(
        "There's no feed at {url}. Shall I monitor the page itself and let you know when it changes? Reply `yes` or "
        "`no`.",
        url=one_line(command.url, 300),
    )
    return Reply(text, options={"yes": Option(partial(subscribe, command=command))})


def _offer_feeds(feeds: Sequence[FeedLink], command: SubscribeCommand, translator: Translator) -> Reply:
    """Return the reply that asks which of a page's feeds the user wants to subscribe to.

    ``command`` is the command to subscribe to the page. Its settings also apply to the feed, and its credential if the
    feed has the same origin.
    """

    def of_feed(url: str) -> SubscribeCommand:
        credential = command.credential if origin_of(url) == origin_of(command.url) else None
        return SubscribeCommand(url, "", command.settings, credential=credential)

    untitled = translator.gettext("Feed")
    titles = {title: translator.gettext(title) for title in RULE_TITLES}
    options = {
        str(number): Option(
            partial(subscribe, command=of_feed(feed.url)),
            f"{titles.get(feed.title) or one_line(feed.title, 80) or untitled}: {one_line(feed.url, 300)}",
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


async def _find_targets_or_folder(
    requests: Requests, command: VerbCommand
) -> tuple[tuple[SubscribedChannel, ...], Target]:
    """Return the subscriptions that a command names, and what its reply names; ((), None) if there are none."""
    folder = await find_folder(requests, command.target.folder)
    if folder is not None:
        return folder.subscriptions, folder
    targets = await find_targets(requests, command.target)
    return targets, targets[0] if targets and not command.target.everything else None


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
    return tuple(each for each in subscribed if url in (shown_url(each.channel.url), each.channel.link))[:1]


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
    """List the user's subscriptions, or those that the words of the command name; or the folders, after `folders`.

    The words are the name of a folder, or a part of titles or URLs.
    """
    subscribed = await requests.subscriptions()
    folder = await find_folder(requests, command.words)
    if folder is not None:
        return Reply(texts.folder_text(folder, len(subscribed), requests.translator))
    if command.words.casefold() in _FOLDERS_WORDS:
        return Reply(texts.folder_list(await all_folders(requests), requests.translator))
    needle = command.words.casefold()
    matches = [
        each
        for each in subscribed
        if needle in each.channel.title.casefold() or needle in shown_url(each.channel.url).casefold()
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
    targets, target = await _find_targets_or_folder(requests, command)
    if not targets and not everything:
        return no_such_subscription(requests.translator)
    newly_paused = await requests.pause(tuple(each.channel.id for each in targets), watches=everything)
    if not targets:
        return Reply(
            requests.translator.gettext(
                "You have no subscriptions to pause. Saved searches are paused until you send `resume`."
            )
        )
    return Reply(texts.paused_text(target, requests.translator, is_new=bool(newly_paused)))


async def resume(requests: Requests, command: VerbCommand) -> Reply:
    """Resume delivery of the subscriptions that the command names. If it names all, resume saved searches too."""
    everything = command.target.everything
    targets, target = await _find_targets_or_folder(requests, command)
    if not targets and not everything:
        return no_such_subscription(requests.translator)
    result = await requests.resume(tuple(each.channel.id for each in targets), watches=everything)
    return Reply(
        texts.resumed_text(
            target,
            sum(result.withheld.values()),
            result.missed_matches,
            requests.translator,
            is_resumed=bool(result.withheld) or result.saved_searches_resumed,
        )
    )
