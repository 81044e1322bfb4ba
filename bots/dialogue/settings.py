"""Dialogues about a person's settings: pauses, preferences and filters of subscriptions, times, language."""

from collections.abc import Callable

import msgspec

from bots.commands.parser import SubscriptionTarget
from bots.dialogue import settings_parser
from bots.dialogue.request_handler import Requests
from bots.dialogue.subscriptions import find_targets
from bots.i18n.translator import SOURCE_LANGUAGE, find_language, supported_language
from bots.replies.base import Reply, SubscribedChannel
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
    """Tell nothing of some subscriptions for a while, or of any and of what is watched for."""
    found = await find_targets(requests, target)
    if not found and not target.everything:
        return NoSuchSubscription()
    fresh = await requests.pause(tuple(followed.channel.id for followed in found), watches=target.everything)
    return PauseReply(tuple(each for each in found if each.channel.id in fresh), found, everything=target.everything)


async def resume(requests: Requests, target: SubscriptionTarget) -> Reply:
    """Tell of some subscriptions again."""
    found = await find_targets(requests, target)
    if not found and not target.everything:
        return NoSuchSubscription()
    cids = tuple(followed.channel.id for followed in found)
    withheld = await requests.resume(cids, watches=target.everything)
    again = tuple(each for each in found if each.channel.id in withheld.withheld)
    return ResumeReply(again, sum(withheld.withheld.values()), withheld.missed_matches, everything=target.everything)


async def change_preferences(requests: Requests, target: SubscriptionTarget, words: str) -> Reply:
    """Change one setting of a subscription or of all, by its name and value, or tell how they are."""
    key, value = (*words.split(maxsplit=1), "", "")[:2]
    one = await _target(requests, target)
    if isinstance(one, Reply):
        return one
    number, followed, before = one
    if not key:
        return PreferencesReply(followed, before)
    if settings_parser.KEYS.get(key.lower()) == "proof" and number != FOR_ALL:  # its beginning is past
        return InvalidSetting("proof", value)
    changed = settings_parser.change_setting(before, key, value, for_all=number == FOR_ALL)
    if not isinstance(changed, Preferences):
        return changed
    await requests.set_preferences(number, changed)
    if followed is not None and changed.title:
        channel = msgspec.structs.replace(followed.channel, title=changed.title)
        followed = msgspec.structs.replace(followed, channel=channel)
    is_interval_changed = followed is not None and changed.interval_s != before.interval_s
    poll_interval_s = (
        await _poll_interval_s(requests, followed) if followed is not None and is_interval_changed else None
    )
    return PreferencesReply(followed, changed, changed=True, poll_interval_s=poll_interval_s)


async def _poll_interval_s(requests: Requests, followed: SubscribedChannel) -> float | None:
    """Return how far apart looks at a channel are on average, None if that cannot be said now."""
    try:
        reason = await requests.why(followed.channel.id)
    except CoronetError:
        return None
    return reason.interval_s / len(reason.turns)


async def edit_filters(requests: Requests, target: SubscriptionTarget, words: str) -> Reply:
    """Add or remove a filter of a subscription or of all, or name them."""
    one = await _target(requests, target)
    if isinstance(one, Reply):
        return one
    number, followed, before = one
    word, rest = (*words.split(maxsplit=1), "", "")[:2]
    if not word:
        return FilterList(followed, before.rules)
    rules = settings_parser.change_filters(before.rules, word.lower(), rest.strip())
    if isinstance(rules, Reply):
        return rules
    await requests.set_preferences(number, msgspec.structs.replace(before, rules=rules))
    return FilterList(followed, rules, changed=True)


async def _target(
    requests: Requests, target: SubscriptionTarget
) -> tuple[int, SubscribedChannel | None, Preferences] | Reply:
    """Return the number of what is meant, the subscription unless it is all of them, and what is wanted of it."""
    followed = None
    if not target.everything:
        found = await find_targets(requests, target)
        if not found:
            return NoSuchSubscription()
        followed = found[0]
    number = FOR_ALL if followed is None else followed.number
    return number, followed, (await requests.preferences()).get(number, NO_PREFERENCES)


async def change_user_settings(
    requests: Requests, words: str, read: Callable[[UserSettings, str], UserSettings | Reply]
) -> Reply:
    """Change the person's settings as ``read`` reads these words, or tell how they are."""
    user_settings = await requests.user_settings()
    words = words.strip()
    if not words:
        return UserSettingsReply(user_settings, requests.now_s())
    changed = read(user_settings, words)
    if isinstance(changed, Reply):
        return changed
    await requests.set_user_settings(changed)
    return UserSettingsReply(changed, requests.now_s(), changed=True)


async def change_language(requests: Requests, words: str) -> Reply:
    """Change the language we speak with a person, or tell which it is."""
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
