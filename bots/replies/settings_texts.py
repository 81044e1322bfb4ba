"""Texts about settings: preferences and filters for subscriptions, delivery times, language, and announcements."""

from collections.abc import Sequence
from typing import Final

import msgspec

from bots.commands.parser import MAX_ENTRY_COUNT
from bots.i18n.translator import LANGUAGES, Translator, get_translator, gettext_noop
from bots.replies.entry_templates import MAX_CHARS, MAX_LINES, VARIABLES
from bots.replies.formatting import Folder, SubscribedChannel, Target, fit_rows, more_line
from service.feeds.parsing.field_limits import NAME_CHARS
from service.feeds.parsing.html_text import one_line
from service.model import Entry
from service.users.filters import FilterRule, format_condition
from service.users.numeric_conditions import format_numeric_condition
from service.users.preferences import (
    DEFAULT_PROOF,
    DEFAULT_TEXT_CHARS,
    FOR_ALL,
    FULL_TEXT,
    MAX_INTERVAL_S,
    MAX_TEXT_CHARS,
    MIN_INTERVAL_S,
    NO_PREFERENCES,
    Preferences,
)
from service.users.quiet_hours_and_digests import EVERY_DAY, MINUTES_PER_HOUR, DigestSchedule, QuietHours
from service.users.time_zones import local_datetime
from service.users.user_settings import UserSettings

_VARIABLES: Final = ", ".join(f"${name}" for name in VARIABLES)
_SWITCHES: Final = {
    "mute": (
        gettext_noop("What should `mute` be: `on` or `off`?"),
        gettext_noop("`mute` can only be `on` or `off`, not “{words}”."),
    ),
    "edits": (
        gettext_noop("What should `edits` be: `on`, `off` or `default`?"),
        gettext_noop("`edits` can only be `on`, `off` or `default`, not “{words}”."),
    ),
    "images": (
        gettext_noop("What should `images` be: `on`, `off` or `default`?"),
        gettext_noop("`images` can only be `on`, `off` or `default`, not “{words}”."),
    ),
}
"""Maps each setting that can be on or off to a pair: the question which value it should have, and the reply to an
invalid value."""
NO_CONDITION_FOR_FEEDS: Final = gettext_noop(
    "That's a feed; a condition works only for a page, or a part of it, e.g. `subscribe URL css=.price when < 20`. "
    "For a feed, use a filter; `help filter` explains it."
)
_PREVIEW_EXAMPLES: Final = 3
_EXAMPLE_NUMBER: Final = 3
_NAMES: Final = {"proof": "latest"}
"""The names under which settings are shown in lists; settings that are shown under their keys are absent."""


class FilterPreview(msgspec.Struct, frozen=True):
    """What a filter would have hidden: ``hidden`` of the latest ``count`` entries."""

    count: int
    hidden: Sequence[Entry]


def name_in_commands(target: Target) -> str:
    """Return what a command names to apply to ``target``: `#3`, the name of a folder, or `all`."""
    if isinstance(target, SubscribedChannel):
        return f"#{target.number}"
    return "all" if target is None else target.name


def preferences_text(target: Target, preferences: Preferences, inherited: Preferences, translator: Translator) -> str:
    """Return a text that shows the settings for one subscription, a folder, or all subscriptions.

    ``preferences`` are the settings to show. Settings that are unset there are taken from ``inherited``, the settings
    for the folder of the subscription and for all subscriptions.
    """
    rows = _settings_for(target, preferences, inherited, translator)
    if target is None:
        head = translator.gettext("Settings for all subscriptions:")
    elif isinstance(target, Folder):
        head = translator.gettext("Settings for the folder *{folder}*:", folder=target.name)
    else:
        head = translator.gettext("Settings for *{title}* (#{number}):", **target.placeholders)
    tail = translator.gettext(
        "To change one, send e.g. `set {which} edits off`; `help set` explains them.", which=name_in_commands(target)
    )
    return fit_rows(head, rows, translator, tail)


def changed_preference_text(
    key: str,
    target: Target,
    preferences: Preferences,
    inherited: Preferences,
    translator: Translator,
    *,
    note: str = "",
) -> str:
    """Return the text that says that the setting ``key`` was changed, and shows its new value.

    The setting was changed for ``target``. ``preferences`` are the settings after the change. ``inherited`` is as for
    :func:`preferences_text`. ``note`` is a line to add, or "".
    """
    if target is None:
        head = translator.gettext("Saved for all subscriptions:")
    elif isinstance(target, Folder):
        head = translator.gettext("Saved for the folder *{folder}*:", folder=target.name)
    else:
        head = translator.gettext("Saved for *{title}* (#{number}):", **target.placeholders)
    rows = _settings_for(target, preferences, inherited, translator)
    name = _NAMES.get(key, key)
    shown = [row for row in rows if row.startswith(f"{name}:")] or [f"{name}: {translator.gettext('off')}"]
    return "\n".join([head, *shown, *filter(None, [note])])


def muted_text(  # noqa: PLR0911 - one sentence per case
    target: SubscribedChannel | None,
    preferences: Preferences,
    translator: Translator,
    *,
    all_muted: bool,
    others_muted: bool,
    folder_muted: bool,
) -> str:
    """Return the text that tells the user that a subscription was muted or unmuted.

    If ``target`` is None, all subscriptions were muted or unmuted at once. ``preferences`` are the settings after the
    change. ``all_muted`` states whether the user has muted all subscriptions at once, and ``others_muted`` whether the
    user has muted individual subscriptions. ``folder_muted`` states whether the subscription's folder is muted.
    """
    if target is None:
        if preferences.muted:
            return translator.gettext(
                "All your subscriptions are muted; I won't send anything from them until you send `unmute`."
            )
        if others_muted:
            return translator.gettext(
                "You'll hear from your subscriptions again, except from those you've muted one by one; `list` shows "
                "which."
            )
        return translator.gettext("You'll hear from your subscriptions again.")
    named = target.placeholders
    if preferences.muted:
        return translator.gettext(
            "You'll get nothing from *{title}* (#{number}) until you send `unmute #{number}`.", **named
        )
    if all_muted:
        return translator.gettext(
            "*{title}* (#{number}) stays muted, because you've muted all subscriptions. `unmute` ends that.", **named
        )
    if folder_muted:
        return translator.gettext(
            "*{title}* (#{number}) stays muted, because its folder is muted. `unmute {folder}` ends that.",
            folder=target.folder,
            **named,
        )
    return translator.gettext("You'll hear from *{title}* (#{number}) again.", **named)


def interval_note(interval_s: int | None, poll_interval_s: float, number: int, translator: Translator) -> str:
    """Return a sentence that compares a channel's notification interval with its polling interval.

    ``interval_s`` is the minimum time between messages about the channel, in seconds; 0 or None means that there is no
    minimum. ``poll_interval_s`` is the time between polls, in seconds. ``number`` is the number of the subscription.
    """
    frequency = translator.format_frequency(poll_interval_s)
    if not interval_s:
        return translator.gettext("I check it for news {frequency}.", frequency=frequency)
    if interval_s < poll_interval_s:
        return translator.gettext(
            "I only check it {frequency}, so messages can't come more often than that. This setting doesn't change "
            "how often I check; `why #{number}` tells you more.",
            frequency=frequency,
            number=str(number),
        )
    return translator.gettext(
        "You'll get everything new in one message. I still check for news {frequency}.", frequency=frequency
    )


def _settings_for(
    target: Target, preferences: Preferences, inherited: Preferences, translator: Translator
) -> list[str]:
    """Return one line for each setting that ``target`` has; the other arguments are as for :func:`preferences_text`."""
    rows = _settings(preferences, inherited if target is not None else None, translator)
    return [row for row in rows if not row.startswith(("title:", "folder:"))] if isinstance(target, Folder) else rows


def _settings(preferences: Preferences, for_all: Preferences | None, translator: Translator) -> list[str]:
    """Return one line for each setting, with its name and value.

    Settings that are unset in ``preferences`` are taken from ``for_all``, the settings for a folder or for all.
    ``for_all`` is None if ``preferences`` are the settings for all subscriptions.
    """
    on, off = translator.gettext("on"), translator.gettext("off")
    rows = [f"mute: {on if preferences.muted else off}"]
    if for_all is None:
        proof = DEFAULT_PROOF if preferences.proof is None else preferences.proof
        rows.append(f"latest: {proof or off}")
    else:
        publisher_title = translator.gettext("the publisher's title")
        rows.append(f"title: {one_line(preferences.title, 120) or publisher_title}")

    def value(own: str | None, default: str) -> str:
        if own is not None:
            return own
        return default if for_all is None else translator.gettext("{value} (default)", value=default)

    own = [_values(preferences, translator), _values(for_all or NO_PREFERENCES, translator)]
    builtin = (on, translator.gettext("right away"), translator.gettext("built-in"), str(DEFAULT_TEXT_CHARS), off)
    names = ("edits", "interval", "format", "text", "images")
    rows += [
        f"{name}: {value(mine, general or standard)}"
        for name, mine, general, standard in zip(names, *own, builtin, strict=True)
    ]
    if preferences.folder:
        rows.append(f"folder: {one_line(preferences.folder, NAME_CHARS)}")
    if digest := for_all and (preferences.digest or for_all.digest):
        shown = translator.gettext("right away") if digest == "off" else _digest(digest, translator)
        rows.append(f"digest: {shown if preferences.digest else translator.gettext('{value} (default)', value=shown)}")
    if preferences.when is not None:
        rows.append(f"when: {format_numeric_condition(preferences.when)}")
    return rows + [f"filter: {_rule(rule)}" for rule in preferences.rules]


def _values(preferences: Preferences, translator: Translator) -> tuple[str | None, ...]:
    """Return the settings ``edits``, ``interval``, ``format``, ``text`` and ``images`` in words.

    None stands for an unset setting.
    """
    interval = template = text = None
    on, off = translator.gettext("on"), translator.gettext("off")
    edits, images = (None if each is None else on if each else off for each in (preferences.edits, preferences.images))
    if preferences.interval_s is not None:
        seconds = preferences.interval_s
        interval = translator.format_max_frequency(seconds) if seconds else translator.gettext("right away")
    if preferences.template is not None:
        template = one_line(preferences.template, MAX_CHARS) or translator.gettext("built-in")
    if preferences.text_chars is not None:
        is_full = preferences.text_chars == FULL_TEXT
        text = translator.gettext("full") if is_full else str(preferences.text_chars or off)
    return edits, interval, template, text, images


def changed_settings(preferences: Preferences, translator: Translator) -> list[str]:
    """Return one line for each setting that differs from the default."""
    default_rows = _settings(NO_PREFERENCES, NO_PREFERENCES, translator)
    return [row for row in _settings(preferences, NO_PREFERENCES, translator) if row not in default_rows]


def invalid_setting_text(key: str, value: str, translator: Translator, *, number: int | None) -> str:
    """Return the text that says that ``value`` is invalid for the setting ``key``, and which values are valid.

    If ``value`` is "", the text only states the valid values. It contains example commands for subscription number
    ``number``. ``number`` is None while the user subscribes, when the subscription does not have a number yet.
    """
    value = one_line(value, 60)
    if key in _SWITCHES:
        question, refusal = _SWITCHES[key]
        return translator.gettext(refusal, words=value) if value else translator.gettext(question)
    explanation = _values_when_subscribing(key, translator) if number is None else _values_of(key, number, translator)
    if value and key in ("proof", "interval", "text", "when"):
        refusal = translator.gettext("“{words}” isn't a valid value.", words=value)
        return f"{refusal} {explanation}"
    return explanation


def _values_when_subscribing(key: str, translator: Translator) -> str:
    match key:
        case "title":
            return translator.gettext(
                "What would you like to call it? For example: `subscribe URL with title=My news`."
            )
        case "interval":
            return translator.gettext(
                "Choose how long to wait between messages, from {least} to {most}, e.g. `subscribe URL with "
                "interval=2h`.",
                least=translator.format_exact_duration(MIN_INTERVAL_S),
                most=translator.format_exact_duration(MAX_INTERVAL_S),
            )
        case "format":
            return translator.gettext(
                "A format must contain at least one of these: {variables}. It can have up to {chars} characters "
                "and {lines} lines (`\\n` starts a new one). For example: `subscribe URL with format=$title: $link`.",
                chars=MAX_CHARS,
                lines=MAX_LINES,
                variables=_VARIABLES,
            )
        case "text":
            return translator.gettext(
                "Choose how many characters of an entry's text I show, from 0 to {most}, e.g. `subscribe URL with "
                "text=500`. With `text=full`, I read the article on the linked page.",
                most=MAX_TEXT_CHARS,
            )
        case "when":
            return translator.gettext(
                "Write a condition on a number in the part of the page, e.g. `subscribe URL css=.price when < 20`, "
                "`… when >= 1,299.00` or `… when changes by 5 %`. I'll tell you when it becomes true."
            )
        case _:
            return _values_of(key, _EXAMPLE_NUMBER if key in ("folder", "digest") else FOR_ALL, translator)


def _values_of(key: str, number: int, translator: Translator) -> str:  # noqa: PLR0911 - one per setting
    match key:
        case "title":
            return translator.gettext(
                "What would you like to call it? For example: `set #{number} title My news`; `off` restores the "
                "publisher's title.",
                number=str(number),
            )
        case "folder":
            return translator.gettext(
                "What should its folder be called? A number can't be a name. For example: `set #{number} folder News`; "
                "`off` takes it out of its folder.",
                number=str(number),
            )
        case "digest":
            return translator.gettext(
                "Choose when to send summaries, e.g. `set #{number} digest daily 08:00`. `off` sends entries right "
                "away, `default` uses your setting for the folder or for all subscriptions.",
                number=str(number),
            )
        case "interval":
            return translator.gettext(
                "Choose how long to wait between messages, from {least} to {most}, e.g. `set #{number} interval "
                "2h` or `set #{number} interval daily`. `off` sends entries right away, `default` uses your "
                "setting for all subscriptions. This doesn't change how often I check for news: `why #{number}` "
                "explains that.",
                number=str(number),
                least=translator.format_exact_duration(MIN_INTERVAL_S),
                most=translator.format_exact_duration(MAX_INTERVAL_S),
            )
        case "format":
            return translator.gettext(
                "A format must contain at least one of these: {variables}. It can have up to {chars} characters "
                "and {lines} lines (`\\n` starts a new one). For example: `set #{number} format $title: $link "
                "($date)`; `off` restores the built-in format.",
                number=str(number),
                chars=MAX_CHARS,
                lines=MAX_LINES,
                variables=_VARIABLES,
            )
        case "text":
            return translator.gettext(
                "Choose how many characters of an entry's text I show, from 0 to {most}, e.g. `set #{number} text "
                "500`. `full` shows the article on the linked page, `off` no text, and `default` uses your setting for "
                "all subscriptions.",
                number=str(number),
                most=MAX_TEXT_CHARS,
            )
        case "when":
            return translator.gettext(
                "Write a condition on a number in the page, e.g. `set #{number} when < 20`, `set #{number} when >= "
                "1,299.00` or `set #{number} when changes by 5 %`. I'll tell you when it becomes true; `off` removes "
                "the condition.",
                number=str(number),
            )
        case _:
            return translator.gettext(
                "`latest` is how many recent entries I show when you subscribe, from 0 to {most}; it has no effect "
                "later. Send e.g. `set all latest 3` or `set all latest off`. For a single subscription, write "
                "`subscribe URL with latest=3`.",
                most=str(MAX_ENTRY_COUNT),
            )


def unknown_variables_text(names: Sequence[str], translator: Translator) -> str:
    """Return the text that tells the user that a format contains the variables ``names``, which do not exist."""
    return translator.gettext(
        "I don't know {words}. A format can use these: {variables}.",
        words=one_line(translator.format_alternatives([f"${name}" for name in names]), 200),
        variables=_VARIABLES,
    )


def filter_list(
    target: Target,
    rules: Sequence[FilterRule],
    translator: Translator,
    *,
    before: Sequence[FilterRule] | None = None,
    other_filters: bool = False,
    preview: FilterPreview | None = None,
) -> str:
    """Return the text that lists the filters for one subscription, for a folder, or for all subscriptions.

    - ``rules``: the filters to list.
    - ``before``: the filters before the command; None if the command does not change filters.
    - ``other_filters``: whether the user has other filters, which are not listed. If ``target`` is None, these are the
      filters for single subscriptions and folders. Otherwise, they are the filters that also apply to ``target``.
    - ``preview``: what a new filter would have hidden; None if the command adds none.
    """
    which = name_in_commands(target)
    if target is None:
        head = translator.gettext("Filters for all subscriptions:")
        removed = translator.gettext("Removed the filters that applied to all subscriptions.")
        missing = (
            translator.gettext("You have no filters that apply to all subscriptions.")
            if other_filters
            else translator.gettext("You have no filters yet.")
        )
        others = translator.gettext("Your filters for individual subscriptions still apply.")
    elif isinstance(target, Folder):
        head = translator.gettext("Filters for the folder *{folder}*:", folder=target.name)
        removed = translator.gettext("Removed all filters for the folder *{folder}*.", folder=target.name)
        missing = translator.gettext("The folder *{folder}* has no filters.", folder=target.name)
        others = translator.gettext("Your filters for all subscriptions still apply.")
    else:
        head = translator.gettext("Filters for *{title}* (#{number}):", **target.placeholders)
        removed = translator.gettext("Removed all filters for *{title}* (#{number}).", **target.placeholders)
        missing = translator.gettext("*{title}* (#{number}) has no filters.", **target.placeholders)
        others = translator.gettext("Your filters for its folder or for all subscriptions still apply.")
        if not target.folder:
            others = translator.gettext("Your filters for all subscriptions still apply.")
    if not rules:
        explanation = translator.gettext(
            "To add one, send e.g. `filter {which} deny crypto OR nft`; `help filter` tells you more.", which=which
        )
        sentences = [removed if before else missing, others if other_filters else "", "" if before else explanation]
        return " ".join(filter(None, sentences))
    if before is not None:
        head = f"{_filter_change(len(rules) - len(before), translator)} {head}"
    rows = [f"{number}. {_rule(rule)}" for number, rule in enumerate(rules, 1)]
    tail = [translator.gettext("`filter {which} off 1` removes the first one.", which=which)]
    tail += _preview_lines(preview, translator) if preview is not None and preview.count else []
    return fit_rows(head, rows, translator, "\n".join(tail))


def _preview_lines(preview: FilterPreview, translator: Translator) -> list[str]:
    """Return lines that say how many of the latest entries a filter would have hidden, and show some of them."""
    if not preview.hidden:
        none_hidden = translator.ngettext(
            "It would not have hidden the latest entry.",
            "It would have hidden none of the latest {count} entries.",
            preview.count,
        )
        return [none_hidden]
    head = translator.gettext("It would have hidden the latest entry:")
    if preview.count > 1:
        head = translator.ngettext(
            "It would have hidden {count} of the latest {total} entries:",
            "It would have hidden {count} of the latest {total} entries:",
            len(preview.hidden),
            total=preview.count,
        )
    rows = [f"• {one_line(each.title or each.link, 200)}" for each in preview.hidden[:_PREVIEW_EXAMPLES]]
    left = len(preview.hidden) - len(rows)
    return [head, *rows, *([more_line(left, translator)] if left else [])]


def _filter_change(added: int, translator: Translator) -> str:
    """Return a sentence that says whether a command has added a filter, removed filters, or changed nothing.

    ``added`` is the change in the number of filters: negative if filters were removed, 0 if the user already had the
    filter.
    """
    if added > 0:
        return translator.gettext("Filter saved.")
    return translator.gettext("Filter removed.") if added else translator.gettext("You already have that filter.")


def _rule(rule: FilterRule) -> str:
    """Return a filter rule in the form in which a user would type it."""
    return f"{'allow' if rule.allow else 'deny'} {one_line(format_condition(rule), 200)}"


def quiet_hours_text(
    user_settings: UserSettings, translator: Translator, now_s: float, *, changed: bool = False
) -> str:
    """Return the text that tells the user during which hours they get no messages.

    ``changed`` states whether the user has just changed the quiet hours; if so, the text says when new entries are
    delivered. ``now_s`` is the current Unix time.
    """
    if changed or user_settings.quiet:
        return _delivery_times_text(user_settings, translator, now_s, changed=changed, quiet_first=not changed)
    lines = [translator.gettext("You have no quiet hours. To set them, send e.g. `quiet 22:00-07:00`.")]
    return "\n".join([*lines, *_presence_lines(user_settings, translator)])


def digest_text(user_settings: UserSettings, translator: Translator, now_s: float, *, changed: bool = False) -> str:
    """Return the text that says when the user gets summaries of new entries.

    The arguments are as for :func:`quiet_hours_text`.
    """
    if changed or user_settings.digest:
        return _delivery_times_text(user_settings, translator, now_s, changed=changed)
    return translator.gettext("You're not getting summaries. To get one a day, send e.g. `digest daily 08:00`.")


def time_zone_text(user_settings: UserSettings, translator: Translator, now_s: float, *, changed: bool = False) -> str:
    """Return the text that says which time zone the user has set; the arguments are as for :func:`quiet_hours_text`."""
    sentence = _time_zone_sentence(user_settings, translator, now_s)
    if not changed:
        return " ".join([sentence, translator.gettext("To change it, send e.g. `timezone Berlin`.")])
    sentences = [translator.gettext("Saved."), sentence]
    if user_settings.quiet or user_settings.digest:
        sentences.append(_delivery_sentence(user_settings, translator, changed=False))
    return " ".join(sentences)


def _delivery_times_text(
    user_settings: UserSettings, translator: Translator, now_s: float, *, changed: bool, quiet_first: bool = False
) -> str:
    """Return the text that tells the user when new entries are delivered.

    ``changed`` states whether the user has just changed a setting. If ``quiet_first`` is true, the text begins with the
    quiet hours.
    """
    quiet, digest = user_settings.quiet, user_settings.digest
    sentences = [_delivery_sentence(user_settings, translator, changed=changed)]
    if quiet and digest and not _is_always_quiet(quiet):
        hours = translator.gettext("Quiet hours: {hours}.", hours=_quiet(quiet, translator))
        sentences.insert(0 if quiet_first else 1, hours)
    sentences.append(_time_zone_sentence(user_settings, translator, now_s))
    lines = [" ".join(sentences), *_presence_lines(user_settings, translator)]
    if user_settings.zone == "UTC" and (quiet or (digest and digest.every != "hour")):
        lines.append(
            translator.gettext("If that's not your local time, tell me where you are, e.g. `timezone Berlin`.")
        )
    return "\n".join(lines)


def _time_zone_sentence(user_settings: UserSettings, translator: Translator, now_s: float) -> str:
    clock = local_datetime(now_s, user_settings.zone).strftime("%H:%M")
    return translator.gettext("Your time zone is {zone}, where it's {time} now.", zone=user_settings.zone, time=clock)


def _presence_lines(user_settings: UserSettings, translator: Translator) -> list[str]:
    if not user_settings.heeds_presence:
        return []
    return [
        translator.gettext(
            "While you're away, busy or offline, I'll hold everything back. For that, I need to see your status: if I "
            "send you a contact request, please accept it."
        )
    ]


def _delivery_sentence(user_settings: UserSettings, translator: Translator, *, changed: bool) -> str:  # noqa: PLR0911 - one sentence per case
    """Return a sentence that says whether new entries are sent right away, in a summary, or not at all."""
    quiet, digest = user_settings.quiet, user_settings.digest
    if quiet and _is_always_quiet(quiet):
        if changed:
            return translator.gettext(
                "Saved. Your quiet hours last all day, every day, so I won't send you anything until you change them."
            )
        return translator.gettext(
            "Your quiet hours last all day, every day, so I won't send you anything until you change them."
        )
    if digest is not None:
        rhythm = _digest(digest, translator)
        if changed:
            return translator.gettext("Saved. You'll get a summary of new entries {rhythm}.", rhythm=rhythm)
        return translator.gettext("You get a summary of new entries {rhythm}.", rhythm=rhythm)
    if quiet is None:
        if changed:
            return translator.gettext("Saved. You'll get new entries right away.")
        return translator.gettext("You get new entries right away.")
    hours = _quiet(quiet, translator)
    if changed:
        return translator.gettext(
            "Saved. You'll get new entries right away, except in your quiet hours: {hours}.", hours=hours
        )
    return translator.gettext("You get new entries right away, except in your quiet hours: {hours}.", hours=hours)


def _digest(digest: DigestSchedule, translator: Translator) -> str:
    match digest.every:
        case "hour":
            return translator.gettext("every hour, on the hour")
        case "day":
            return translator.gettext("every day at {time}", time=_clock(digest.at))
        case "week":
            day = translator.weekday_name(digest.day)
            return translator.gettext("every {day} at {time}", day=day, time=_clock(digest.at))


def _is_always_quiet(quiet: QuietHours) -> bool:
    return quiet.begins == quiet.ends and quiet.days == EVERY_DAY


def _quiet(quiet: QuietHours, translator: Translator) -> str:
    begins, ends = _clock(quiet.begins), _clock(quiet.ends)
    days = "" if quiet.days == EVERY_DAY else _days(quiet.days, translator)
    if quiet.begins == quiet.ends:
        return translator.gettext("all day, {days}", days=days)
    if days:
        return translator.gettext("{begins} to {ends}, {days}", begins=begins, ends=ends, days=days)
    return translator.gettext("{begins} to {ends}", begins=begins, ends=ends)


def _days(days: tuple[int, ...], translator: Translator) -> str:
    """Return days of the week in words; ``days`` are their indexes in ascending order, where 0 is Monday."""
    names = [translator.weekday_name(day) for day in days]
    if len(days) > 2 and days[-1] - days[0] == len(days) - 1:  # noqa: PLR2004 - two are named
        return translator.gettext("{first} to {last}", first=names[0], last=names[-1])
    return translator.format_list(names)


def _clock(minute: int) -> str:
    return f"{minute // MINUTES_PER_HOUR:02}:{minute % MINUTES_PER_HOUR:02}"


def language_text(user_settings: UserSettings, _translator: Translator, _now_s: float, *, changed: bool = False) -> str:
    """Return the text that says which language the bot uses with the user; it is written in that language.

    ``changed`` states whether the user has just changed the language.
    """
    translator = get_translator(user_settings.effective_language)
    if changed and user_settings.language:
        head = translator.gettext("From now on I'll write to you in English.")
    elif changed:
        head = translator.gettext(
            "From now on I'll write in your client's language, if it tells me. At the moment, that's English."
        )
    elif user_settings.language:
        head = translator.gettext("I'm writing to you in English.")
    else:
        head = translator.gettext("I write in your client's language, if it tells me. At the moment, that's English.")
    return f"{head} {languages_text([code for code in LANGUAGES if code != translator.language], translator)}"


def languages_text(codes: Sequence[str], translator: Translator) -> str:
    """Return a sentence that names the commands for choosing one of these languages."""
    commands = [f"`language {code}` ({get_translator(code).language_name(code)})" for code in codes]
    return translator.gettext(
        "To choose another language, send {languages}.", languages=translator.format_alternatives(commands)
    )


def announcements_text(
    user_settings: UserSettings, translator: Translator, _now_s: float, *, changed: bool = False
) -> str:
    """Return the text that tells the user whether they get announcements from the operators."""
    is_on = user_settings.announcements
    if changed and is_on:
        return translator.gettext("You'll get announcements again from the people who run this service.")
    if changed:
        return translator.gettext(
            "You won't get any more announcements from the people who run this service. `announcements on` turns "
            "them back on."
        )
    if is_on:
        return translator.gettext(
            "You're getting announcements from the people who run this service. `announcements off` turns them off."
        )
    return translator.gettext(
        "You're not getting announcements from the people who run this service. `announcements on` turns them on."
    )
