"""Replies about a person's settings: pauses, preferences and filters of subscriptions, times, language."""

from collections.abc import Sequence

from bots.commands.parser import MOST_SHOWN
from bots.i18n.translator import LANGUAGES, Voice, marked
from bots.i18n.translator import voice as voice_of
from bots.replies.base import Followed, Refusal, Reply, fitted, title
from bots.replies.entry_templates import MOST_CHARS, MOST_LINES, VARIABLES
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


class Paused(Reply, frozen=True):
    """``meant`` are paused, of which ``fresh`` were not; ``everything``: and what is watched for."""

    fresh: tuple[Followed, ...]
    meant: tuple[Followed, ...]
    everything: bool

    def _text(self, voice: Voice) -> str:
        if self.everything:
            return voice.say(
                "Everything is paused, including your saved searches. Send `resume` to continue; you'll get a short "
                "recap of your subscriptions then."
            )
        only = self.meant[0]
        name, number = title(only.channel), str(only.number)
        if not self.fresh:
            return voice.say("*{title}* is already paused. `resume #{number}` continues it.", title=name, number=number)
        return voice.say(
            "*{title}* is paused. `resume #{number}` continues it, with a short recap of what you missed.",
            title=name,
            number=number,
        )


class Resumed(Reply, frozen=True):
    """These are told again. ``versions`` came meanwhile and follow; ``unheard``, which watches met, do not."""

    resumed: tuple[Followed, ...]
    versions: int
    unheard: int
    everything: bool

    def _text(self, voice: Voice) -> str:
        if not self.resumed and not self.everything:
            return voice.say("That isn't paused.")
        if self.everything:
            head = voice.say("Everything is active again.")
        else:
            head = voice.say("*{title}* is active again.", title=title(self.resumed[0].channel))
        if self.versions:
            told = voice.many(
                "You missed {count} update; here it comes.",
                "You missed {count} updates; a short recap follows.",
                self.versions,
            )
        else:
            told = voice.say("You haven't missed anything.")
        if not self.unheard:
            return f"{head} {told}"
        unheard = voice.many(
            "Your saved searches matched {count} entry in the meantime. I don't send it any more, but `find "
            "type=entry` with the same search finds it.",
            "Your saved searches matched {count} entries in the meantime. I don't send them any more, but `find "
            "type=entry` with the same search finds them.",
            self.unheard,
        )
        return f"{head} {told}\n{unheard}"


class Preferred(Reply, frozen=True):
    """What is wanted of one subscription, or of all (``followed`` is None); ``changed``: from now on.

    ``looks_s`` is how far apart looks at its channel are, if that was asked for and is known.
    """

    followed: Followed | None
    preferences: Preferences
    changed: bool = False
    looks_s: float | None = None

    def _text(self, voice: Voice) -> str:
        if self.followed is None:
            head = (
                voice.say("Saved. Settings for all subscriptions:")
                if self.changed
                else voice.say("Settings for all subscriptions:")
            )
        else:
            name, number = title(self.followed.channel), str(self.followed.number)
            if self.changed:
                head = voice.say("Saved. Settings for *{title}* (#{number}):", title=name, number=number)
            else:
                head = voice.say("Settings for *{title}* (#{number}):", title=name, number=number)
        rows = _settings(self.preferences, voice, for_all=self.followed is None)
        if self.looks_s is not None:
            rows.append(self._looked(self.looks_s, voice))
        example = "all" if self.followed is None else f"#{self.followed.number}"
        tail = "" if self.changed else voice.say("To change one, send e.g. `set {which} edits off`.", which=example)
        return fitted(head, rows, voice, tail)

    def _looked(self, looks_s: float, voice: Voice) -> str:
        """Return what an interval that was set comes to, beside how often the channel is looked at."""
        wanted_s, looks = self.preferences.interval_s or 0, voice.span(looks_s)
        if not wanted_s:
            return voice.say("It is checked every {interval}.", interval=looks)
        if wanted_s < looks_s:
            return voice.say(
                "It is only checked every {interval}, and this setting doesn't change that, because all channels "
                "share the available checks. `why #{number}` explains more.",
                interval=looks,
                number=str(self.followed.number) if self.followed else "",
            )
        return voice.say(
            "You'll get everything new in one message. It is still checked every {interval}.", interval=looks
        )


def _settings(preferences: Preferences, voice: Voice, *, for_all: bool) -> list[str]:
    """Return a line per setting, which begins with its name."""
    on, off, as_for_all = voice.say("on"), voice.say("off"), voice.say("default")
    usual_title, usual_format = voice.say("the publisher's title"), voice.say("built-in")
    rows = [f"mute: {on if preferences.muted else off}"]
    if for_all:
        proof = DEFAULT_PROOF if preferences.proof is None else preferences.proof
        rows.append(f"latest: {proof or off}")
    else:
        rows.append(f"title: {one_line(preferences.title, 120) or usual_title}")
    if preferences.edits is None:
        rows.append(f"edits: {on if for_all else as_for_all}")
    else:
        rows.append(f"edits: {on if preferences.edits else off}")
    if preferences.interval_s:
        spaced = voice.say("at most every {interval}", interval=voice.exactly(preferences.interval_s))
    else:
        spaced = as_for_all if preferences.interval_s is None and not for_all else voice.say("at once")
    rows.append(f"interval: {spaced}")
    if preferences.template:
        rows.append(f"format: {one_line(preferences.template, MOST_CHARS)}")
    else:
        rows.append(f"format: {as_for_all if preferences.template is None and not for_all else usual_format}")
    return rows + [f"filter: {_rule(rule)}" for rule in preferences.rules]


def chosen(preferences: Preferences, voice: Voice) -> list[str]:
    """Return a line per setting that is not as usual."""
    usual = _settings(NO_PREFERENCES, voice, for_all=False)
    return [row for row in _settings(preferences, voice, for_all=False) if row not in usual]


class NoSuchSetting(Refusal, frozen=True):
    """There is no setting of this name."""

    key: str

    def _text(self, voice: Voice) -> str:
        said = voice.say("There is no setting “{words}”.", words=one_line(self.key, 40))
        return f"{said} {HELP['set'].all(voice)}"


class UnreadableSetting(Refusal, frozen=True):
    """No value for this setting; ``strangers`` are variables of a template that do not exist."""

    key: str
    value: str
    strangers: tuple[str, ...] = ()

    def _text(self, voice: Voice) -> str:
        variables = ", ".join("$" + name for name in VARIABLES)
        match self.key:
            case "title":
                return voice.say(
                    "What would you like to call it? For example: `set #3 title My news`; `off` restores the "
                    "publisher's title."
                )
            case "proof":
                return voice.say(
                    "How many of the latest entries would you like when you subscribe, from 0 to {most}? `set all "
                    "latest 3`, `set all latest off`, or for one subscription `subscribe URL with latest=3`.",
                    most=str(MOST_SHOWN),
                )
            case "interval":
                return voice.say(
                    "At most how often would you like messages from it? Anything from {least} to {most} works, e.g. "
                    "`set #3 interval 2h` or `set #3 interval daily`; `off` sends entries at once, `default` is the "
                    "same as for all. This doesn't change how often it is checked: `why #3` explains that.",
                    least=voice.exactly(MIN_INTERVAL_S),
                    most=voice.exactly(MAX_INTERVAL_S),
                )
            case "format" if self.strangers:
                return voice.say(
                    "I don't know {words}. A format can use these: {variables}.",
                    words=one_line(voice.listed([f"${name}" for name in self.strangers]), 200),
                    variables=variables,
                )
            case "format":
                return voice.say(
                    "A format has up to {chars} characters on up to {lines} lines (`\\n` starts a new one) and uses "
                    "at least one of these: {variables}. For example: `set #3 format $title: $link ($date)`; `off` "
                    "restores the built-in format.",
                    chars=MOST_CHARS,
                    lines=MOST_LINES,
                    variables=variables,
                )
            case key:
                return voice.say(
                    "“{words}” isn't a valid value. Use `on` or `off`.", words=one_line(self.value, 60) or key
                )


class Filters(Reply, frozen=True):
    """The filters of one subscription, or of all (``followed`` is None); ``changed``: from now on."""

    followed: Followed | None
    rules: tuple[FilterRule, ...]
    changed: bool = False

    def _text(self, voice: Voice) -> str:
        if not self.rules:
            if self.changed:
                return voice.say("All filters are removed: you'll get every entry again.")
            return " ".join([voice.say("There are no filters."), HELP["filter"].all(voice)])
        if self.followed is None:
            which, head = "all", voice.say("Filters for all subscriptions:")
        else:
            name, number = title(self.followed.channel), str(self.followed.number)
            which, head = f"#{number}", voice.say("Filters for *{title}* (#{number}):", title=name, number=number)
        rows = [f"{number}. {_rule(rule)}" for number, rule in enumerate(self.rules, 1)]
        return fitted(head, rows, voice, voice.say("`filter {which} off 1` removes the first one.", which=which))


def _rule(rule: FilterRule) -> str:
    """Return a rule as it is written."""
    return f"{'allow' if rule.allow else 'deny'} {one_line(format_condition(rule.test), 200)}"


class NoSuchFilter(Refusal, frozen=True):
    """There is no filter of this number."""

    sentence = marked(
        "There is no filter with that number. `filter #3` shows the filters of a subscription, `filter` those for all."
    )


class FiltersFull(Refusal, frozen=True):
    """No more than ``limit`` filters at one place."""

    limit: int

    def _text(self, voice: Voice) -> str:
        return voice.many(
            "You already have {count} filter here, the maximum. One /regular expression/ can replace several.",
            "You already have {count} filters here, the maximum. One /regular expression/ can replace several.",
            self.limit,
        )


class HabitsTold(Reply, frozen=True):
    """When the person is told, said at ``now_s`` (Unix time); ``changed``: from now on."""

    user_settings: UserSettings
    now_s: float
    changed: bool = False

    def _text(self, voice: Voice) -> str:
        user_settings = self.user_settings
        sentences = [self._told(voice)]
        if user_settings.quiet:
            sentences.append(voice.say("Quiet hours: {hours}.", hours=_quiet(user_settings.quiet, voice)))
        clock = local_datetime(self.now_s, user_settings.zone).strftime("%H:%M")
        sentences.append(
            voice.say("Your time zone: {zone}, where it is {time} now.", zone=user_settings.zone, time=clock)
        )
        words = " ".join(sentences)
        if user_settings.heeds_presence:
            held = voice.say(
                "While you are away, busy or offline, I hold everything back. For that I need to see your presence: "
                "please accept my request."
            )
            words = f"{words}\n{held}"
        if user_settings.zone != "UTC" or not (
            user_settings.quiet or (user_settings.digest and user_settings.digest.every != "hour")
        ):
            return words
        return "\n".join([words, voice.say("If that isn't your time, tell me where you are, e.g. `timezone Berlin`.")])

    def _told(self, voice: Voice) -> str:
        """Return the sentence that says whether new entries are sent at once or as a summary."""
        if self.user_settings.digest is None:
            if self.changed:
                return voice.say("Saved. You'll get new entries at once.")
            return voice.say("You get new entries at once.")
        rhythm = _digest(self.user_settings.digest, voice)
        if self.changed:
            return voice.say("Saved. You'll get a summary of new entries {rhythm}.", rhythm=rhythm)
        return voice.say("You get a summary of new entries {rhythm}.", rhythm=rhythm)


def _digest(digest: DigestSchedule, voice: Voice) -> str:
    match digest.every:
        case "hour":
            return voice.say("every hour, on the hour")
        case "day":
            return voice.say("every day at {time}", time=_clock(digest.at))
        case "week":
            day = voice.day(digest.day)
            return voice.say("every {day} at {time}", day=day, time=_clock(digest.at))


def _quiet(quiet: QuietHours, voice: Voice) -> str:
    begins, ends = _clock(quiet.begins), _clock(quiet.ends)
    days = "" if quiet.days == EVERY_DAY else _days(quiet.days, voice)
    match quiet.begins != quiet.ends, bool(days):
        case True, True:
            return voice.say("{begins} to {ends}, {days}", begins=begins, ends=ends, days=days)
        case True, False:
            return voice.say("{begins} to {ends}", begins=begins, ends=ends)
        case False, True:
            return voice.say("all day, {days}", days=days)
        case _:
            return voice.say("always")


def _days(days: tuple[int, ...], voice: Voice) -> str:
    """Return days of the week in words; they are sorted."""
    names = [voice.day(day) for day in days]
    if len(days) > 2 and days[-1] - days[0] == len(days) - 1:  # noqa: PLR2004 - two are named
        return voice.say("{first} to {last}", first=names[0], last=names[-1])
    return voice.listed(names)


def _clock(minute: int) -> str:
    return f"{minute // MINUTES_PER_HOUR:02}:{minute % MINUTES_PER_HOUR:02}"


class UnreadableTime(Refusal, frozen=True):
    """What stands after ``verb`` is no time, no days, or not what goes with it."""

    verb: str
    words: str

    def _text(self, voice: Voice) -> str:
        said = voice.say("I don't understand “{words}” here.", words=one_line(self.words, 60))
        return f"{said}\n{HELP[self.verb].all(voice)}"


class NoSuchZone(Refusal, frozen=True):
    """No time zone, or several (``meant``), of this name."""

    words: str
    meant: tuple[str, ...]

    def _text(self, voice: Voice) -> str:
        if self.meant:
            commands = voice.listed([f"`timezone {name}`" for name in self.meant])
            return voice.say("There are several. Which one do you mean? {commands}", commands=commands)
        return voice.say(
            "I don't know the time zone “{words}”. Name a large city in it, e.g. `timezone Berlin`, or use its full "
            "name, e.g. `timezone America/New_York`.",
            words=one_line(self.words, 60),
        )


class LanguageTold(Reply, frozen=True):
    """Which language we speak with the person, said in that; ``changed``: from now on."""

    language: str
    changed: bool = False

    def _text(self, _voice: Voice) -> str:
        own = voice_of(self.language)
        if self.changed:
            head = own.say("From now on I'll write to you in English.")
        else:
            head = own.say("I write to you in English.")
        return f"{head} {_languages(own, [code for code in LANGUAGES if code != own.language])}"


class NoSuchLanguage(Refusal, frozen=True):
    """We speak no language of this name."""

    words: str

    def _text(self, voice: Voice) -> str:
        refused = voice.say("I don't speak “{words}”.", words=one_line(self.words, 60))
        return f"{refused} {_languages(voice, LANGUAGES)}"


def _languages(voice: Voice, codes: Sequence[str]) -> str:
    commands = [f"`language {code}` ({voice_of(code).name(code)})" for code in codes]
    return voice.say("You can choose {languages}.", languages=voice.listed(commands))
