"""Dialogues about settings: preferences and filters for subscriptions, delivery times, language, and announcements."""

import math
from collections.abc import Callable
from typing import Final

import msgspec

from bots.commands.days_and_times import parse_digest
from bots.commands.parser import SubscriptionTarget, VerbCommand
from bots.dialogue import settings_parser
from bots.dialogue.folders import find_folder, split_folder
from bots.dialogue.reply import Reply, failure
from bots.dialogue.request_handler import Requests
from bots.dialogue.subscription_commands import find_targets, no_such_subscription
from bots.i18n.translator import Translator
from bots.replies import settings_texts as texts
from bots.replies.formatting import Folder, SubscribedChannel, Target
from service.errors import CoronetError, LimitReached
from service.model import Change
from service.users.filters import FilterRule, build_subjects, is_allowed
from service.users.preferences import (
    FOR_ALL,
    MAX_FOLDERS,
    NO_PREFERENCES,
    Preferences,
    folder_number,
    inherited_preferences,
    preference_levels,
)
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
PREVIEW_ENTRIES: Final = 20
"""Maximum number of entries to which a new filter is applied to show what it would have hidden."""


async def change_preferences(requests: Requests, command: VerbCommand) -> Reply:
    """Change a setting for one subscription, for a folder, or for all subscriptions.

    The words of the command are the setting's name and its new value. Without words, the reply shows the settings.
    """
    translator = requests.translator
    found = await _find_preferences(requests, command, settings_parser.is_setting)
    if isinstance(found, Reply):
        return found
    number, target, before, words = found
    key, value = (*words.split(maxsplit=1), "", "")[:2]
    every = await requests.preferences()
    inherited = inherited_preferences(every, number)
    if inherited.digest is None:
        inherited = msgspec.structs.replace(inherited, digest=(await requests.user_settings()).digest)
    if not key:
        return Reply(texts.preferences_text(target, before, inherited, translator))
    name = settings_parser.SETTING_OF_NAME.get(key.lower(), "")
    if target is not None and (refusal := _refuse_setting(name, target, translator)):
        return failure(refusal)
    changed = settings_parser.change_setting(before, key, value, translator, number)
    if not isinstance(changed, Preferences):
        return changed
    await _save(requests, number, changed)
    if name == "mute" and not isinstance(target, Folder):
        others_muted = any(own.muted for each, own in every.items() if each != FOR_ALL)
        _, folder, for_all = preference_levels(every, number)
        muted = {"all_muted": for_all.muted, "others_muted": others_muted, "folder_muted": folder.muted}
        return Reply(texts.muted_text(target, changed, translator, **muted))
    note = ""
    if isinstance(target, SubscribedChannel):
        if changed.title:
            channel = msgspec.structs.replace(target.channel, title=changed.title)
            target = msgspec.structs.replace(target, channel=channel)
        if changed.interval_s != before.interval_s:
            interval_s = inherited.interval_s if changed.interval_s is None else changed.interval_s
            note = await _interval_note(requests, target, interval_s)
    return Reply(texts.changed_preference_text(name, target, changed, inherited, translator, note=note))


async def _save(requests: Requests, number: int, preferences: Preferences) -> None:
    """Store preferences. Raises LimitReached if they belong to one folder too many."""
    if number < FOR_ALL:
        every = await requests.preferences()
        if preferences == Preferences(folder=preferences.folder):
            preferences = NO_PREFERENCES
        elif number not in every and sum(each < FOR_ALL for each in every) >= MAX_FOLDERS:
            raise LimitReached(
                "You already have settings for {most} folders, and that's the maximum.", most=MAX_FOLDERS
            )
    await requests.set_preferences(number, preferences)


def _refuse_setting(name: str, target: SubscribedChannel | Folder, translator: Translator) -> str:
    """Return the reason why the setting ``name`` does not apply to a subscription or a folder; "" if it does."""
    if name == "proof":  # counts only when subscribing
        return texts.invalid_setting_text("proof", "", translator, number=FOR_ALL)
    is_feed = isinstance(target, SubscribedChannel) and target.channel.kind == "feed"
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
    """Add or remove a filter for one subscription, a folder or all subscriptions; without words, list the filters.

    The reply to a new filter shows which of the latest entries it would have hidden.
    """
    found = await _find_preferences(requests, command, settings_parser.is_filter_change)
    if isinstance(found, Reply):
        return found
    number, target, before, words = found
    word, rest = (*words.split(maxsplit=1), "", "")[:2]
    preferences = await requests.preferences()
    others = [own for each, own in preferences.items() if each != FOR_ALL]
    if number != FOR_ALL:
        _, *others = preference_levels(preferences, number)
    rules, preview = before.rules, None
    if word:
        which = texts.name_in_commands(target)
        changed = settings_parser.change_filters(rules, word.lower(), rest.strip(), requests.translator, which)
        if isinstance(changed, Reply):
            return changed
        if len(changed) > len(rules):
            preview = await _preview(requests, target, rules, changed)
        rules = changed
        await _save(requests, number, msgspec.structs.replace(before, rules=rules))
    return Reply(
        texts.filter_list(
            target,
            rules,
            requests.translator,
            before=before.rules if word else None,
            other_filters=any(each.rules for each in others),
            preview=preview,
        )
    )


async def _preview(
    requests: Requests, target: Target, before: tuple[FilterRule, ...], after: tuple[FilterRule, ...]
) -> texts.FilterPreview:
    """Return which of the latest entries of feeds the rules ``after`` hide, but the rules ``before`` do not.

    At most ``PREVIEW_ENTRIES`` entries are examined.
    """
    if isinstance(target, SubscribedChannel):
        subscriptions: tuple[SubscribedChannel, ...] = (target,)
    else:
        subscriptions = await requests.subscriptions() if target is None else target.subscriptions
    cids = [each.channel.id for each in subscriptions if each.channel.kind == "feed"][:PREVIEW_ENTRIES]
    latest = [await requests.latest(cid, PREVIEW_ENTRIES) for cid in cids]
    entries = [entry for each in latest for entry in each[: math.ceil(PREVIEW_ENTRIES / len(cids))]][:PREVIEW_ENTRIES]
    subjects = build_subjects(Change("addition", entry) for entry in entries)
    pairs = zip(entries, subjects, strict=True)
    hidden = [entry for entry, each in pairs if is_allowed(before, each) and not is_allowed(after, each)]
    return texts.FilterPreview(len(entries), hidden)


async def _find_preferences(
    requests: Requests, command: VerbCommand, is_rest: Callable[[str], bool]
) -> tuple[int, Target, Preferences, str] | Reply:
    """Return (number, target, preferences, words) for a command, or the reply if it names no subscription.

    ``number`` is the number under which the preferences are stored. ``words`` are the words of the command after the
    name of a folder; ``is_rest`` returns whether they can follow it.
    """
    target, words = command.target, command.words
    folder = await find_folder(requests, target.folder)
    if folder is None and target.everything:
        folder, words = await split_folder(requests, words, is_rest)
    every = await requests.preferences()
    if folder is not None:
        number = folder_number(folder.name)
        before = msgspec.structs.replace(every.get(number, NO_PREFERENCES), folder=folder.name)
        return number, folder, before, words
    if target.everything:
        return FOR_ALL, None, every.get(FOR_ALL, NO_PREFERENCES), words
    found = await find_targets(requests, target)
    if not found:
        return no_such_subscription(requests.translator)
    return found[0].number, found[0], every.get(found[0].number, NO_PREFERENCES), words


async def change_digest(requests: Requests, command: VerbCommand) -> Reply:
    """Change when summaries are sent, for all messages or for a folder; without a time, say when they are sent."""
    folder, words = None, command.words
    if parse_digest(words) is None:
        folder, words = await split_folder(requests, words, settings_parser.is_digest)
    if folder is None:
        return await change_user_settings(requests, command)
    words = f"digest {words}" if words else ""
    return await change_preferences(requests, VerbCommand("set", SubscriptionTarget(folder=folder.name), words))


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
