"""Texts about preferences and filters of subscriptions, delivery times, the language and announcements."""

from collections.abc import Sequence
from typing import Final

from bots.commands.parser import MAX_ENTRY_COUNT
from bots.i18n.translator import LANGUAGES, Translator, get_translator
from bots.replies.entry_templates import MAX_CHARS, MAX_LINES, VARIABLES
from bots.replies.formatting import SubscribedChannel, fit_rows
from bots.replies.help_texts import help_text
from service.feeds.parsing.html_text import one_line
from service.users.filters import FilterRule, format_condition
from service.users.preferences import DEFAULT_PROOF, MAX_INTERVAL_S, MIN_INTERVAL_S, NO_PREFERENCES, Preferences
from service.users.quiet_hours_and_digests import EVERY_DAY, MINUTES_PER_HOUR, DigestSchedule, QuietHours
from service.users.time_zones import local_datetime
from service.users.user_settings import UserSettings

_VARIABLES: Final = ", ".join(f"${name}" for name in VARIABLES)


def preferences_text(
    target: SubscribedChannel | None, preferences: Preferences, translator: Translator, *, note: str | None = None
) -> str:
    """Return the settings of one subscription, or of all subscriptions if ``target`` is None.

    If the command has changed the settings, ``note`` is a line to add, or "". Otherwise ``note`` is None.
    """
    rows = _settings(preferences, translator, for_all=target is None)
    if note is not None:
        if target is None:
            head = translator.gettext("Saved. Settings for all subscriptions:")
        else:
            head = translator.gettext("Saved. Settings for *{title}* (#{number}):", **target.placeholders)
        return fit_rows(head, [*rows, *filter(None, [note])], translator)
    if target is None:
        which, head = "all", translator.gettext("Settings for all subscriptions:")
    else:
        which = f"#{target.number}"
        head = translator.gettext("Settings for *{title}* (#{number}):", **target.placeholders)
    tail = translator.gettext(
        "To change one, send e.g. `set {which} edits off`; `help set` explains them.", which=which
    )
    return fit_rows(head, rows, translator, tail)


def interval_note(interval_s: int | None, poll_interval_s: float, number: int, translator: Translator) -> str:
    """Return the sentence that compares the interval between deliveries with the one between polls (both in s).

    ``number`` is the number of the subscription.
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


def _settings(preferences: Preferences, translator: Translator, *, for_all: bool) -> list[str]:
    """Return one line for each setting, with the name of the setting and its value.

    ``for_all`` states whether the preferences are for all subscriptions.
    """
    on, off, default = translator.gettext("on"), translator.gettext("off"), translator.gettext("default")
    default_title, default_format = translator.gettext("the publisher's title"), translator.gettext("built-in")
    rows = [f"mute: {on if preferences.muted else off}"]
    if for_all:
        proof = DEFAULT_PROOF if preferences.proof is None else preferences.proof
        rows.append(f"latest: {proof or off}")
    else:
        rows.append(f"title: {one_line(preferences.title, 120) or default_title}")
    if preferences.edits is None:
        rows.append(f"edits: {on if for_all else default}")
    else:
        rows.append(f"edits: {on if preferences.edits else off}")
    if preferences.interval_s:
        interval = translator.format_max_frequency(preferences.interval_s)
    else:
        interval = default if preferences.interval_s is None and not for_all else translator.gettext("right away")
    rows.append(f"interval: {interval}")
    if preferences.template:
        rows.append(f"format: {one_line(preferences.template, MAX_CHARS)}")
    else:
        rows.append(f"format: {default if preferences.template is None and not for_all else default_format}")
    return rows + [f"filter: {_rule(rule)}" for rule in preferences.rules]


def changed_settings(preferences: Preferences, translator: Translator) -> list[str]:
    """Return one line for each setting that differs from the default."""
    default_rows = _settings(NO_PREFERENCES, translator, for_all=False)
    return [row for row in _settings(preferences, translator, for_all=False) if row not in default_rows]


def invalid_setting_text(key: str, value: str, translator: Translator, *, number: int) -> str:
    """Return the text that says which values the setting ``key`` can have, and that ``value`` is invalid.

    If ``value`` is "", the text only names the values. ``number`` is the number of the subscription in the examples.
    """
    value = one_line(value, 60)
    refusal = translator.gettext("“{words}” isn't a valid value.", words=value) if value else ""
    match key:
        case "title":
            return translator.gettext(
                "What would you like to call it? For example: `set #{number} title My news`; `off` restores the "
                "publisher's title.",
                number=str(number),
            )
        case "proof":
            explanation = translator.gettext(
                "`latest` is how many recent entries I show when you subscribe, from 0 to {most}; it has no effect "
                "later. Send e.g. `set all latest 3` or `set all latest off`. For a single subscription, write "
                "`subscribe URL with latest=3`.",
                most=str(MAX_ENTRY_COUNT),
            )
            return f"{refusal} {explanation}".strip()
        case "interval":
            explanation = translator.gettext(
                "Choose how long to wait between messages, from {least} to {most}, e.g. `set #{number} interval "
                "2h` or `set #{number} interval daily`. `off` sends entries right away, `default` uses your "
                "setting for all subscriptions. This doesn't change how often I check for news: `why #{number}` "
                "explains that.",
                number=str(number),
                least=translator.format_exact_duration(MIN_INTERVAL_S),
                most=translator.format_exact_duration(MAX_INTERVAL_S),
            )
            return f"{refusal} {explanation}".strip()
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
        case _:
            return translator.gettext("“{words}” isn't a valid value. Use `on` or `off`.", words=value or key)


def unknown_variables_text(names: Sequence[str], translator: Translator) -> str:
    """Return the text that says that a format has variables that do not exist."""
    return translator.gettext(
        "I don't know {words}. A format can use these: {variables}.",
        words=one_line(translator.format_alternatives([f"${name}" for name in names]), 200),
        variables=_VARIABLES,
    )


def filter_list(
    target: SubscribedChannel | None,
    rules: Sequence[FilterRule],
    translator: Translator,
    *,
    changed: bool = False,
    other_filters: bool = False,
) -> str:
    """Return the list of the filters of one subscription, or for all subscriptions if ``target`` is None.

    ``changed`` states whether the command has changed the filters. ``other_filters`` states whether the user has
    further filters: those for all subscriptions, or those of single subscriptions.
    """
    if target is None:
        which, head = "all", translator.gettext("Filters for all subscriptions:")
        removed = translator.gettext("Removed the filters that applied to all subscriptions.")
        missing = (
            translator.gettext("You have no filters that apply to all subscriptions.")
            if other_filters
            else translator.gettext("You have no filters yet.")
        )
        others = translator.gettext("Your filters for individual subscriptions still apply.")
        explanation = help_text("filter", translator)
    else:
        which, head = (
            f"#{target.number}",
            translator.gettext("Filters for *{title}* (#{number}):", **target.placeholders),
        )
        removed = translator.gettext("Removed all filters for *{title}* (#{number}).", **target.placeholders)
        missing = translator.gettext("*{title}* (#{number}) has no filters.", **target.placeholders)
        others = translator.gettext("Your filters for all subscriptions still apply.")
        explanation = help_text("filter", translator).replace("#3", which)
    if not rules:
        sentences = [removed if changed else missing, others if other_filters else "", "" if changed else explanation]
        return " ".join(filter(None, sentences))
    rows = [f"{number}. {_rule(rule)}" for number, rule in enumerate(rules, 1)]
    return fit_rows(
        head, rows, translator, translator.gettext("`filter {which} off 1` removes the first one.", which=which)
    )


def _rule(rule: FilterRule) -> str:
    """Return a filter rule as a user would type it."""
    return f"{'allow' if rule.allow else 'deny'} {one_line(format_condition(rule.test), 200)}"


def delivery_times_text(
    user_settings: UserSettings, translator: Translator, now_s: float, *, changed: bool = False
) -> str:
    """Return the text that says when new entries are delivered to the user.

    ``changed`` states whether the command has changed the settings; ``now_s`` is the current Unix time.
    """
    quiet, digest = user_settings.quiet, user_settings.digest
    sentences = [_delivery_sentence(user_settings, translator, changed=changed)]
    if quiet and digest and not _is_always_quiet(quiet):
        sentences.append(translator.gettext("Quiet hours: {hours}.", hours=_quiet(quiet, translator)))
    clock = local_datetime(now_s, user_settings.zone).strftime("%H:%M")
    sentences.append(
        translator.gettext("Your time zone is {zone}, where it's {time} now.", zone=user_settings.zone, time=clock)
    )
    lines = [" ".join(sentences)]
    if user_settings.heeds_presence:
        lines.append(
            translator.gettext(
                "While you're away, busy or offline, I'll hold everything back. For that, I need to see your "
                "status, so please accept my contact request."
            )
        )
    if user_settings.zone == "UTC" and (quiet or (digest and digest.every != "hour")):
        lines.append(
            translator.gettext("If that's not your local time, tell me where you are, e.g. `timezone Berlin`.")
        )
    return "\n".join(lines)


def _delivery_sentence(user_settings: UserSettings, translator: Translator, *, changed: bool) -> str:  # noqa: PLR0911 - one sentence per case
    """Return the sentence that says whether new entries are sent right away, as a summary, or not at all."""
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
    """Return days of the week in words; ``days`` are their sorted numbers, 0 for Monday."""
    names = [translator.weekday_name(day) for day in days]
    if len(days) > 2 and days[-1] - days[0] == len(days) - 1:  # noqa: PLR2004 - two are named
        return translator.gettext("{first} to {last}", first=names[0], last=names[-1])
    return translator.format_list(names)


def _clock(minute: int) -> str:
    return f"{minute // MINUTES_PER_HOUR:02}:{minute % MINUTES_PER_HOUR:02}"


def language_text(user_settings: UserSettings, _translator: Translator, _now_s: float, *, changed: bool = False) -> str:
    """Return the text that says which language the bot's messages have, in this language."""
    translator = get_translator(user_settings.effective_language)
    if changed:
        head = translator.gettext("From now on I'll write to you in English.")
    else:
        head = translator.gettext("I'm writing to you in English.")
    return f"{head} {languages_text([code for code in LANGUAGES if code != translator.language], translator)}"


def languages_text(codes: Sequence[str], translator: Translator) -> str:
    """Return the sentence that names the commands by which the user can choose one of these languages."""
    commands = [f"`language {code}` ({get_translator(code).language_name(code)})" for code in codes]
    return translator.gettext("Your choices: {languages}.", languages=translator.format_list(commands))


def announcements_text(
    user_settings: UserSettings, translator: Translator, _now_s: float, *, changed: bool = False
) -> str:
    """Return the text that says whether the user gets announcements by the operators."""
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
