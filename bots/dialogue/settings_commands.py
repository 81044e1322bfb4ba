"""Dialogues about settings: preferences and filters for subscriptions, delivery times, language, and announcements."""

from collections.abc import Callable
from typing import Final

import msgspec

from bots.commands.parser import SubscriptionTarget, VerbCommand
from bots.dialogue import settings_parser
from bots.dialogue.reply import Reply, failure
from bots.dialogue.request_handler import Requests
from bots.dialogue.subscription_commands import find_targets, no_such_subscription
from bots.i18n.translator import Translator
from bots.replies import settings_texts as texts
from bots.replies.formatting import SubscribedChannel
from service.errors import CoronetError
from service.users.preferences import FOR_ALL, NO_PREFERENCES, Preferences
from service.users.user_settings import UserSettings

_Parser = Callable[[UserSettings, str, Translator], UserSettings | Reply]
_PARSERS: Final[dict[str, _Parser]] = {
    "quiet": settings_parser.set_quiet_hours,
    "digest": settings_parser.set_digest,
    "timezone": settings_parser.set_time_zone,
    "language": settings_parser.set_language,
    "announcements": settings_parser.set_announcements,
}
_TEXTS: Final = {
    "quiet": texts.quiet_hours_text,
    "digest": texts.digest_text,
    "timezone": texts.time_zone_text,
    "language": texts.language_text,
    "announcements": texts.announcements_text,
}
"""Maps each verb to the function that returns the text about its setting."""


async def change_preferences(requests: Requests, command: VerbCommand) -> Reply:
    """Change a setting for one subscription or for all subscriptions.

    The words of the command are the setting's name and its new value. Without words, the reply shows the settings.
    """
    translator = requests.translator
    key, value = (*command.words.split(maxsplit=1), "", "")[:2]
    found = await _find_preferences(requests, command.target)
    if isinstance(found, Reply):
        return found
    number, subscription, before = found
    every = await requests.preferences()
    for_all = every.get(FOR_ALL, NO_PREFERENCES)
    if not key:
        return Reply(texts.preferences_text(subscription, before, for_all, translator))
    name = settings_parser.SETTING_OF_NAME.get(key.lower(), "")
    if subscription is not None and (refusal := _refuse_setting(name, subscription, translator)):
        return failure(refusal)
    changed = settings_parser.change_setting(before, key, value, translator, number)
    if not isinstance(changed, Preferences):
        return changed
    await requests.set_preferences(number, changed)
    if name == "mute":
        others_muted = any(own.muted for each, own in every.items() if each != FOR_ALL)
        return Reply(
            texts.muted_text(subscription, changed, translator, all_muted=for_all.muted, others_muted=others_muted)
        )
    note = ""
    if subscription is not None:
        if changed.title:
            channel = msgspec.structs.replace(subscription.channel, title=changed.title)
            subscription = msgspec.structs.replace(subscription, channel=channel)
        if changed.interval_s != before.interval_s:
            interval_s = for_all.interval_s if changed.interval_s is None else changed.interval_s
            note = await _interval_note(requests, subscription, interval_s)
    return Reply(texts.changed_preference_text(name, subscription, changed, for_all, translator, note=note))


def _refuse_setting(name: str, subscription: SubscribedChannel, translator: Translator) -> str:
    """Return the reason why the setting ``name`` does not apply to a subscription; "" if it does."""
    if name == "proof":  # counts only when subscribing
        return texts.invalid_setting_text("proof", "", translator, number=subscription.number)
    is_feed = subscription.channel.kind == "feed"
    return translator.gettext(texts.NO_CONDITION_FOR_FEEDS) if name == "when" and is_feed else ""


async def _interval_note(requests: Requests, subscription: SubscribedChannel, interval_s: int | None) -> str:
    """Return a sentence that compares a new delivery interval with the channel's polling interval.

    The result is "" if the polling interval is currently unknown.
    """
    try:
        explanation = await requests.explain_polling(subscription.channel.id)
    except CoronetError:
        return ""
    return texts.interval_note(interval_s, explanation.gap_s, subscription.number, requests.translator)


async def edit_filters(requests: Requests, command: VerbCommand) -> Reply:
    """Add or remove a filter for one subscription or for all subscriptions; without words, list the filters."""
    found = await _find_preferences(requests, command.target)
    if isinstance(found, Reply):
        return found
    number, subscription, before = found
    word, rest = (*command.words.split(maxsplit=1), "", "")[:2]
    preferences = await requests.preferences()
    other_filters = any(other.rules for each, other in preferences.items() if (each == FOR_ALL) != (number == FOR_ALL))
    rules = before.rules
    if word:
        changed = settings_parser.change_filters(rules, word.lower(), rest.strip(), requests.translator, number)
        if isinstance(changed, Reply):
            return changed
        rules = changed
        await requests.set_preferences(number, msgspec.structs.replace(before, rules=rules))
    return Reply(
        texts.filter_list(
            subscription,
            rules,
            requests.translator,
            before=before.rules if word else None,
            other_filters=other_filters,
        )
    )


async def _find_preferences(
    requests: Requests, target: SubscriptionTarget
) -> tuple[int, SubscribedChannel | None, Preferences] | Reply:
    """Return (number, subscription, preferences) for the target of a command, or the reply if no subscription matches.

    ``number`` is the subscription number under which the preferences are stored. If the target is all subscriptions,
    ``number`` is ``FOR_ALL``, and the subscription is None.
    """
    subscription = None
    if not target.everything:
        targets = await find_targets(requests, target)
        if not targets:
            return no_such_subscription(requests.translator)
        subscription = targets[0]
    number = FOR_ALL if subscription is None else subscription.number
    return number, subscription, (await requests.preferences()).get(number, NO_PREFERENCES)


async def change_user_settings(requests: Requests, command: VerbCommand) -> Reply:
    """Change the setting that the verb of the command names, such as the quiet hours or the language.

    The words of the command are the new value. Without words, show the current value.
    """
    user_settings, words = await requests.user_settings(), command.words.strip()
    if words:
        changed = _PARSERS[command.name](user_settings, words, requests.translator)
        if isinstance(changed, Reply):
            return changed
        user_settings = changed
        await requests.set_user_settings(user_settings)
    return Reply(_TEXTS[command.name](user_settings, requests.translator, requests.now_s(), changed=bool(words)))
