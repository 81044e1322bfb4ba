"""Replies about pauses, preferences and filters of subscriptions, delivery times, and the language."""

from collections.abc import Sequence

from bots.commands.parser import MAX_ENTRY_COUNT
from bots.i18n.translator import LANGUAGES, Translator, get_translator, gettext_noop
from bots.replies.base import FailureReply, Reply, SubscribedChannel, fit_rows, title
from bots.replies.entry_templates import MAX_CHARS, MAX_LINES, VARIABLES
from bots.replies.help import HELP
from service.feeds.parsing.html_text import one_line
from service.users.preferences import (
    DEFAULT_PROOF,
    MAX_INTERVAL_S,
    MIN_INTERVAL_S,
    NO_PREFERENCES,
    FilterRule,
    Preferences,
    format_condition,
)
from service.users.quiet_hours import (
    EVERY_DAY,
    MINUTES_PER_HOUR,
    DigestSchedule,
    QuietHours,
    UserSettings,
    local_datetime,
)


class PauseReply(Reply, frozen=True):
    """Says that subscriptions were paused.

    ``targets`` are the subscriptions that the command was for. ``newly_paused`` are the subscriptions among them that
    were not paused before. ``everything`` states whether the user's saved searches were paused too.
    """

    newly_paused: tuple[SubscribedChannel, ...]
    targets: tuple[SubscribedChannel, ...]
    everything: bool

    def _text(self, translator: Translator) -> str:
        if self.everything:
            return translator.gettext(
                "Everything is paused, including your saved searches. Send `resume` to continue; you'll get a short "
                "recap of your subscriptions then."
            )
        (target,) = self.targets
        name, number = title(target.channel), str(target.number)
        if not self.newly_paused:
            return translator.gettext(
                "*{title}* is already paused. `resume #{number}` starts it again.", title=name, number=number
            )
        return translator.gettext(
            "*{title}* is paused. `resume #{number}` starts it again, with a short recap of what you missed.",
            title=name,
            number=number,
        )


class ResumeReply(Reply, frozen=True):
    """Says that subscriptions were resumed.

    ``missed_updates`` is the number of updates during the pause; a recap of them follows this reply. ``missed_matches``
    is the number of entries during the pause that matched saved searches; these entries are not sent.
    ``saved_searches_resumed`` tells whether the saved searches were paused.
    """

    resumed: tuple[SubscribedChannel, ...]
    missed_updates: int
    missed_matches: int
    everything: bool
    saved_searches_resumed: bool = False

    def _text(self, translator: Translator) -> str:
        if not self.resumed and not self.everything:
            return translator.gettext("That isn't paused.")
        if not self.resumed and not self.saved_searches_resumed:
            return translator.gettext("Nothing is paused.")
        if self.everything:
            head = translator.gettext("Everything is active again.")
        else:
            head = translator.gettext("*{title}* is active again.", title=title(self.resumed[0].channel))
        if self.missed_updates:
            recap = translator.ngettext(
                "You missed {count} update; here it comes.",
                "You missed {count} updates; a short recap follows.",
                self.missed_updates,
            )
        else:
            recap = translator.gettext("You haven't missed anything.")
        if not self.missed_matches:
            return f"{head} {recap}"
        matches = translator.ngettext(
            "Your saved searches matched {count} entry in the meantime. I don't send it any more, but `find "
            "type=entry` with the same search finds it.",
            "Your saved searches matched {count} entries in the meantime. I don't send them any more, but `find "
            "type=entry` with the same search finds them.",
            self.missed_matches,
        )
        return f"{head} {recap}\n{matches}"


class PreferencesReply(Reply, frozen=True):
    """Shows the settings of one subscription, or of all subscriptions if ``target`` is None.

    ``changed`` tells whether the command has changed the settings. ``poll_interval_s`` is the interval between polls of
    the channel; it is None if the command did not change the delivery interval, or if the poll interval is unknown.
    """

    target: SubscribedChannel | None
    preferences: Preferences
    changed: bool = False
    poll_interval_s: float | None = None

    def _text(self, translator: Translator) -> str:
        if self.target is None:
            head = (
                translator.gettext("Saved. Settings for all subscriptions:")
                if self.changed
                else translator.gettext("Settings for all subscriptions:")
            )
        else:
            name, number = title(self.target.channel), str(self.target.number)
            if self.changed:
                head = translator.gettext("Saved. Settings for *{title}* (#{number}):", title=name, number=number)
            else:
                head = translator.gettext("Settings for *{title}* (#{number}):", title=name, number=number)
        rows = _settings(self.preferences, translator, for_all=self.target is None)
        if self.poll_interval_s is not None:
            rows.append(self._interval_note(self.poll_interval_s, translator))
        example = "all" if self.target is None else f"#{self.target.number}"
        tail = (
            ""
            if self.changed
            else translator.gettext(
                "To change one, send e.g. `set {which} edits off`; `help set` explains them.", which=example
            )
        )
        return fit_rows(head, rows, translator, tail)

    def _interval_note(self, poll_interval_s: float, translator: Translator) -> str:
        """Return the sentence that compares the interval between deliveries with the interval between polls."""
        delivery_interval_s, frequency = self.preferences.interval_s or 0, translator.format_frequency(poll_interval_s)
        if not delivery_interval_s:
            return translator.gettext("It is checked {frequency}.", frequency=frequency)
        if delivery_interval_s < poll_interval_s:
            return translator.gettext(
                "It's only checked {frequency}, so messages can't come more often than that; this setting doesn't "
                "affect checks. `why #{number}` explains more.",
                frequency=frequency,
                number=str(self.target.number) if self.target else "",
            )
        return translator.gettext(
            "You'll get everything new in one message. I still check for news {frequency}.", frequency=frequency
        )


def _settings(preferences: Preferences, translator: Translator, *, for_all: bool) -> list[str]:
    """Return one line for each setting, with the name of the setting and its value.

    ``for_all`` tells whether the preferences are for all subscriptions.
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


class NoSuchSetting(FailureReply, frozen=True):
    """Says that no setting has the name ``key``."""

    key: str

    def _text(self, translator: Translator) -> str:
        return translator.gettext(
            "There is no setting “{words}”. You can set mute, title, edits, interval, format and latest; `help set` "
            "explains them.",
            words=one_line(self.key, 40),
        )


class InvalidSetting(FailureReply, frozen=True):
    """Says that ``value`` is not valid for the setting ``key``, or missing ("").

    If the value is a template, ``unknown_variables`` are the variables in it that do not exist. ``number`` is the
    number of the subscription in the examples.
    """

    key: str
    value: str
    unknown_variables: tuple[str, ...] = ()
    number: int = 3

    def _text(self, translator: Translator) -> str:
        variables = ", ".join("$" + name for name in VARIABLES)
        match self.key:
            case "title":
                return translator.gettext(
                    "What would you like to call it? For example: `set #{number} title My news`; `off` restores the "
                    "publisher's title.",
                    number=str(self.number),
                )
            case "proof":
                explanation = translator.gettext(
                    "`latest` only applies when you subscribe: it is the number of recent entries I show then, from "
                    "0 to {most}. Send e.g. `set all latest 3` or `set all latest off`, or for one subscription "
                    "`subscribe URL with latest=3`.",
                    most=str(MAX_ENTRY_COUNT),
                )
                return f"{self._refusal(translator)} {explanation}".strip()
            case "interval":
                explanation = translator.gettext(
                    "Choose how long to wait between messages, from {least} to {most}, e.g. `set #{number} interval "
                    "2h` or `set #{number} interval daily`. `off` sends entries right away, `default` uses your "
                    "setting for all subscriptions. This doesn't change how often I check for news: `why #{number}` "
                    "explains that.",
                    number=str(self.number),
                    least=translator.format_exact_duration(MIN_INTERVAL_S),
                    most=translator.format_exact_duration(MAX_INTERVAL_S),
                )
                return f"{self._refusal(translator)} {explanation}".strip()
            case "format" if self.unknown_variables:
                return translator.gettext(
                    "I don't know {words}. A format can use these: {variables}.",
                    words=one_line(
                        translator.format_alternatives([f"${name}" for name in self.unknown_variables]), 200
                    ),
                    variables=variables,
                )
            case "format":
                return translator.gettext(
                    "A format must contain at least one of these: {variables}. It can have up to {chars} characters "
                    "and {lines} lines (`\\n` starts a new one). For example: `set #{number} format $title: $link "
                    "($date)`; `off` restores the built-in format.",
                    number=str(self.number),
                    chars=MAX_CHARS,
                    lines=MAX_LINES,
                    variables=variables,
                )
            case key:
                return translator.gettext(
                    "“{words}” isn't a valid value. Use `on` or `off`.", words=one_line(self.value, 60) or key
                )

    def _refusal(self, translator: Translator) -> str:
        """Return the sentence that says that the value is not valid, or "" without a value."""
        value = one_line(self.value, 60)
        return translator.gettext("“{words}” isn't a valid value.", words=value) if value else ""


class FilterList(Reply, frozen=True):
    """Lists the filters of one subscription, or the filters for all subscriptions if ``target`` is None.

    ``changed`` states whether the command has changed the filters. ``other_filters`` states whether the user has
    further filters: those for all subscriptions, or those of single subscriptions.
    """

    target: SubscribedChannel | None
    rules: tuple[FilterRule, ...]
    changed: bool = False
    other_filters: bool = False

    def _text(self, translator: Translator) -> str:
        if not self.rules:
            return " ".join(self._sentences_without_rules(translator))
        if self.target is None:
            which, head = "all", translator.gettext("Filters for all subscriptions:")
        else:
            name, number = title(self.target.channel), str(self.target.number)
            which, head = (
                f"#{number}",
                translator.gettext("Filters for *{title}* (#{number}):", title=name, number=number),
            )
        rows = [f"{number}. {_rule(rule)}" for number, rule in enumerate(self.rules, 1)]
        return fit_rows(
            head, rows, translator, translator.gettext("`filter {which} off 1` removes the first one.", which=which)
        )

    def _sentences_without_rules(self, translator: Translator) -> list[str]:
        """Return the sentences that say that there are no filters, or no longer any, and which other filters apply."""
        if self.target is None:
            removed = translator.gettext("Removed the filters that applied to all subscriptions.")
            missing = (
                translator.gettext("There are no filters for all subscriptions.")
                if self.other_filters
                else translator.gettext("There are no filters.")
            )
            others = translator.gettext("Filters for single subscriptions still apply.")
        else:
            name, number = title(self.target.channel), str(self.target.number)
            removed = translator.gettext("Removed all filters for *{title}* (#{number}).", title=name, number=number)
            missing = translator.gettext("There are no filters for *{title}* (#{number}).", title=name, number=number)
            others = translator.gettext("Your filters for all subscriptions still apply.")
        sentences = [removed if self.changed else missing, *([others] if self.other_filters else [])]
        if self.changed:
            return sentences
        explanation = HELP["filter"].full_text(translator)
        return [*sentences, explanation.replace("#3", f"#{self.target.number}") if self.target else explanation]


def _rule(rule: FilterRule) -> str:
    """Return a filter rule as a user would type it."""
    return f"{'allow' if rule.allow else 'deny'} {one_line(format_condition(rule.test), 200)}"


class NoSuchFilter(FailureReply, frozen=True):
    """Says that no filter has the number in the command."""

    sentence = gettext_noop(
        "There is no filter with that number. `filter #3` shows the filters of one subscription; `filter` alone shows "
        "those that apply to all."
    )


class TooManyFilters(FailureReply, frozen=True):
    """Says that the maximum number of filters, ``limit``, has been reached."""

    limit: int

    def _text(self, translator: Translator) -> str:
        return translator.ngettext(
            "You already have {count} filter here, the maximum. One /regular expression/ can replace several.",
            "You already have {count} filters here, the maximum. One /regular expression/ can replace several.",
            self.limit,
        )


class UserSettingsReply(Reply, frozen=True):
    """Says when new entries are delivered to the user.

    ``changed`` tells whether the command has changed the settings; ``now_s`` is the current Unix time.
    """

    user_settings: UserSettings
    now_s: float
    changed: bool = False

    def _text(self, translator: Translator) -> str:
        user_settings = self.user_settings
        sentences = [self._delivery_sentence(translator)]
        if user_settings.quiet and user_settings.digest and not _is_always_quiet(user_settings.quiet):
            sentences.append(translator.gettext("Quiet hours: {hours}.", hours=_quiet(user_settings.quiet, translator)))
        clock = local_datetime(self.now_s, user_settings.zone).strftime("%H:%M")
        sentences.append(
            translator.gettext("Your time zone: {zone}, where it is {time} now.", zone=user_settings.zone, time=clock)
        )
        words = " ".join(sentences)
        if user_settings.heeds_presence:
            presence_note = translator.gettext(
                "While you are away, busy or offline, I hold everything back. For that I need to see your presence: "
                "please accept my request."
            )
            words = f"{words}\n{presence_note}"
        if user_settings.zone != "UTC" or not (
            user_settings.quiet or (user_settings.digest and user_settings.digest.every != "hour")
        ):
            return words
        return "\n".join(
            [words, translator.gettext("If that isn't your time, tell me where you are, e.g. `timezone Berlin`.")]
        )

    def _delivery_sentence(self, translator: Translator) -> str:
        """Return the sentence that says whether new entries are sent right away, as a summary, or not at all."""
        if self.user_settings.quiet and _is_always_quiet(self.user_settings.quiet):
            if self.changed:
                return translator.gettext(
                    "Saved. Quiet hours are on all day, every day, so nothing will be sent until you change that."
                )
            return translator.gettext(
                "Quiet hours are on all day, every day, so nothing will be sent until you change that."
            )
        if self.user_settings.digest is None:
            return self._immediate_delivery_sentence(translator)
        rhythm = _digest(self.user_settings.digest, translator)
        if self.changed:
            return translator.gettext("Saved. You'll get a summary of new entries {rhythm}.", rhythm=rhythm)
        return translator.gettext("You get a summary of new entries {rhythm}.", rhythm=rhythm)

    def _immediate_delivery_sentence(self, translator: Translator) -> str:
        """Return the sentence that says that new entries are sent right away, except in any quiet hours."""
        if self.user_settings.quiet is None:
            if self.changed:
                return translator.gettext("Saved. You'll get new entries right away.")
            return translator.gettext("You get new entries right away.")
        hours = _quiet(self.user_settings.quiet, translator)
        if self.changed:
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


class InvalidTime(FailureReply, frozen=True):
    """Says that ``words`` are not valid times or days for the command ``verb``."""

    verb: str
    words: str

    def _text(self, translator: Translator) -> str:
        sentence = translator.gettext("I don't understand “{words}” here.", words=one_line(self.words, 60))
        return f"{sentence}\n{HELP[self.verb].full_text(translator)}"


class UnknownTimeZone(FailureReply, frozen=True):
    """Says that no time zone has the name ``words``, or that several time zones have it.

    ``candidates`` are the names of the several time zones; it is empty if there is none.
    """

    words: str
    candidates: tuple[str, ...]

    def _text(self, translator: Translator) -> str:
        if self.candidates:
            return translator.gettext(
                "There's more than one “{words}”. Which do you mean: {commands}?",
                words=one_line(self.words, 60),
                commands=translator.format_alternatives([f"`timezone {name}`" for name in self.candidates]),
            )
        return translator.gettext(
            "I don't know the time zone “{words}”. Name a large city in it, e.g. `timezone Berlin`, or use the "
            "zone's full name, e.g. `timezone America/New_York`.",
            words=one_line(self.words, 60),
        )


class LanguageReply(Reply, frozen=True):
    """Says which language the bot's messages have, in this language.

    ``changed`` states whether it has just been set.
    """

    language: str
    changed: bool = False

    def _text(self, _translator: Translator) -> str:
        translator = get_translator(self.language)
        if self.changed:
            head = translator.gettext("From now on I'll write to you in English.")
        else:
            head = translator.gettext("I'm writing to you in English.")
        return f"{head} {_languages(translator, [code for code in LANGUAGES if code != translator.language])}"


class UnknownLanguage(FailureReply, frozen=True):
    """Says that the bot supports no language with the name ``words``."""

    words: str

    def _text(self, translator: Translator) -> str:
        sentence = translator.gettext("I don't speak “{words}”.", words=one_line(self.words, 60))
        return f"{sentence} {_languages(translator, LANGUAGES)}"


def _languages(translator: Translator, codes: Sequence[str]) -> str:
    commands = [f"`language {code}` ({get_translator(code).language_name(code)})" for code in codes]
    return translator.gettext("You can choose {languages}.", languages=translator.format_list(commands))
