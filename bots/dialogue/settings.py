"""Dialogues about pauses, preferences and filters of subscriptions, delivery times, and the language."""

from collections.abc import Callable

import msgspec

from bots.commands.parser import SubscriptionTarget
from bots.dialogue import settings_parser
from bots.dialogue.request_handler import Requests
from bots.dialogue.subscriptions import find_targets
from bots.i18n.translator import SOURCE_LANGUAGE, find_language, supported_language
from bots.replies.announcements import AnnouncementsReply
from bots.replies.base import Reply, SubscribedChannel
from bots.replies.help import MissingArgument
from bots.replies.settings import (
    FilterList,
    InvalidSetting,
    LanguageReply,
    PauseReply,
    PreferencesReply,
    ResumeReply,
    UnknownLanguage,
    UserSettingsReply,
)
from bots.replies.subscriptions import NoSuchSubscription
from service.errors import CoronetError
from service.users.preferences import FOR_ALL, NO_PREFERENCES, Preferences
from service.users.quiet_hours import UserSettings

_AUTOMATIC = frozenset(("auto", "automatic", "automatisch", "automatique", "automático", "automatico"))


async def pause(requests: Requests, target: SubscriptionTarget) -> Reply:
    """Pause the delivery of the subscriptions that ``target`` names. If it names all, saved searches are paused too."""
    targets = await find_targets(requests, target)
    if not targets and not target.everything:
        return NoSuchSubscription()
    paused_ids = await requests.pause(tuple(each.channel.id for each in targets), watches=target.everything)
    newly_paused = tuple(each for each in targets if each.channel.id in paused_ids)
    return PauseReply(newly_paused, targets, everything=target.everything)


async def resume(requests: Requests, target: SubscriptionTarget) -> Reply:
    """Resume the delivery of the subscriptions that ``target`` names.

    If it names all, saved searches are resumed too.
    """
    targets = await find_targets(requests, target)
    if not targets and not target.everything:
        return NoSuchSubscription()
    result = await requests.resume(tuple(each.channel.id for each in targets), watches=target.everything)
    resumed = tuple(each for each in targets if each.channel.id in result.withheld)
    return ResumeReply(
        resumed,
        sum(result.withheld.values()),
        result.missed_matches,
        everything=target.everything,
        saved_searches_resumed=result.saved_searches_resumed,
    )


async def change_preferences(requests: Requests, target: SubscriptionTarget, words: str) -> Reply:
    """Change a setting of one or of all subscriptions, or show their settings.

    ``words`` are the name of the setting and its new value; without words, the reply shows the settings.
    """
    key, value = (*words.split(maxsplit=1), "", "")[:2]
    found = await _find_preferences(requests, target)
    if isinstance(found, Reply):
        return found
    number, subscription, before = found
    if not key:
        return PreferencesReply(subscription, before)
    if (
        settings_parser.SETTING_OF_NAME.get(key.lower()) == "proof" and number != FOR_ALL
    ):  # counts only when subscribing
        return InvalidSetting("proof", "")
    changed = settings_parser.change_setting(before, key, value, for_all=number == FOR_ALL)
    if isinstance(changed, InvalidSetting) and subscription is not None:
        return msgspec.structs.replace(changed, number=subscription.number)
    if not isinstance(changed, Preferences):
        return changed
    await requests.set_preferences(number, changed)
    if subscription is not None and changed.title:
        channel = msgspec.structs.replace(subscription.channel, title=changed.title)
        subscription = msgspec.structs.replace(subscription, channel=channel)
    is_interval_changed = subscription is not None and changed.interval_s != before.interval_s
    poll_interval_s = (
        await _poll_interval_s(requests, subscription) if subscription is not None and is_interval_changed else None
    )
    return PreferencesReply(subscription, changed, changed=True, poll_interval_s=poll_interval_s)


async def _poll_interval_s(requests: Requests, subscription: SubscribedChannel) -> float | None:
    """Return the average interval between polls of a subscription's channel; None if it is not known at present."""
    try:
        return (await requests.explain_polling(subscription.channel.id)).gap_s
    except CoronetError:
        return None


async def edit_filters(requests: Requests, target: SubscriptionTarget, words: str) -> Reply:
    """Add or remove a filter of one or of all subscriptions; without ``words``, list the filters."""
    found = await _find_preferences(requests, target)
    if isinstance(found, Reply):
        return found
    number, subscription, before = found
    word, rest = (*words.split(maxsplit=1), "", "")[:2]
    preferences = await requests.preferences()
    other_filters = any(other.rules for each, other in preferences.items() if (each == FOR_ALL) != (number == FOR_ALL))
    if not word:
        return FilterList(subscription, before.rules, other_filters=other_filters)
    rules = settings_parser.change_filters(before.rules, word.lower(), rest.strip())
    if isinstance(rules, Reply):
        return rules
    await requests.set_preferences(number, msgspec.structs.replace(before, rules=rules))
    return FilterList(subscription, rules, changed=rules != before.rules, other_filters=other_filters)


async def _find_preferences(
    requests: Requests, target: SubscriptionTarget
) -> tuple[int, SubscribedChannel | None, Preferences] | Reply:
    """Return the number under which preferences for a target are stored, the subscription, and the preferences.

    The subscription is None if the target is all subscriptions. If no subscription matches the target, the result is
    the reply to the user instead.
    """
    subscription = None
    if not target.everything:
        targets = await find_targets(requests, target)
        if not targets:
            return NoSuchSubscription()
        subscription = targets[0]
    number = FOR_ALL if subscription is None else subscription.number
    return number, subscription, (await requests.preferences()).get(number, NO_PREFERENCES)


async def change_user_settings(
    requests: Requests, words: str, parse: Callable[[UserSettings, str], UserSettings | Reply]
) -> Reply:
    """Change the user's settings and return the reply that shows them; without ``words``, only show the settings.

    ``parse`` returns the settings after the change in the words, or a reply about an error in the words.
    """
    user_settings = await requests.user_settings()
    words = words.strip()
    if not words:
        return UserSettingsReply(user_settings, requests.now_s())
    changed = parse(user_settings, words)
    if isinstance(changed, Reply):
        return changed
    await requests.set_user_settings(changed)
    return UserSettingsReply(changed, requests.now_s(), changed=True)


async def change_announcements(requests: Requests, words: str) -> Reply:
    """Turn announcements on or off, as ``words`` say; without words, show whether the user gets them."""
    user_settings = await requests.user_settings()
    word = words.strip().lower()
    if not word:
        return AnnouncementsReply(user_settings.announcements)
    if word not in settings_parser.ON_WORDS | settings_parser.OFF_WORDS:
        return MissingArgument("announcements")
    enabled = word in settings_parser.ON_WORDS
    await requests.set_user_settings(msgspec.structs.replace(user_settings, announcements=enabled))
    return AnnouncementsReply(enabled, changed=True)


async def change_language(requests: Requests, words: str) -> Reply:
    """Change the language of the bot's messages to the one that ``words`` name; without words, show the language."""
    user_settings = await requests.user_settings()
    words = words.strip()
    if words:
        is_automatic = words.lower() in _AUTOMATIC
        language = "" if is_automatic else find_language(words)
        if not language and not is_automatic:
            return UnknownLanguage(words)
        user_settings = msgspec.structs.replace(user_settings, language=language)
        await requests.set_user_settings(user_settings)
    return LanguageReply(supported_language(user_settings.effective_language) or SOURCE_LANGUAGE, changed=bool(words))
