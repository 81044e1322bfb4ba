"""What is said about when a person is told."""

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from bots import exchange as say
from bots.replies.help import HELP
from bots.voice import LANGUAGES, Voice
from bots.voice import voice as voice_of
from service.feeds.text import one_line
from service.habits import EVERY_DAY, MINUTES_PER_HOUR, Digest, Habits, Quiet


def habits_told(reply: say.HabitsTold, voice: Voice, now_s: float) -> str:
    """Say when the person is told, by which clock."""
    habits = reply.habits
    told = _told(habits, voice, changed=reply.changed)
    if habits.quiet:
        told = voice.say("{told}, but nothing {hours}", told=told, hours=_quiet(habits.quiet, voice))
    clock = datetime.fromtimestamp(now_s, ZoneInfo(habits.zone)).strftime("%H:%M")
    words = voice.say("{told}. Your clock: {zone}, where it is {time} now.", told=told, zone=habits.zone, time=clock)
    if habits.heeds_presence:
        held = voice.say(
            "While you are away, busy or offline I hold everything back. For that I have to see your presence: please "
            "accept my request."
        )
        words = f"{words}\n{held}"
    if habits.zone != "UTC" or not (habits.quiet or (habits.digest and habits.digest.every != "hour")):
        return words
    return "\n".join([words, voice.say("If that is not your time, tell me where you are, e.g. `timezone Berlin`.")])


def _told(habits: Habits, voice: Voice, *, changed: bool) -> str:
    """Return how the person is told, as a clause that others can follow."""
    if habits.digest is None:
        return (
            voice.say("From now on I tell you what is new at once")
            if changed
            else voice.say("I tell you what is new at once")
        )
    rhythm = _digest(habits.digest, voice)
    if changed:
        return voice.say("From now on I tell you what is new, all of it together, {rhythm}", rhythm=rhythm)
    return voice.say("I tell you what is new, all of it together, {rhythm}", rhythm=rhythm)


def _digest(digest: Digest, voice: Voice) -> str:
    match digest.every:
        case "hour":
            return voice.say("every full hour")
        case "day":
            return voice.say("every day at {time}", time=_clock(digest.at))
        case "week":
            day = voice.day(digest.day)
            return voice.say("every {day} at {time}", day=day, time=_clock(digest.at))


def _quiet(quiet: Quiet, voice: Voice) -> str:
    begins, ends = _clock(quiet.begins), _clock(quiet.ends)
    days = "" if quiet.days == EVERY_DAY else _days(quiet.days, voice)
    match quiet.begins != quiet.ends, bool(days):
        case True, True:
            return voice.say("from {begins} to {ends} on {days}", begins=begins, ends=ends, days=days)
        case True, False:
            return voice.say("from {begins} to {ends}", begins=begins, ends=ends)
        case False, True:
            return voice.say("on {days}", days=days)
        case _:
            return voice.say("at all")


def _days(days: tuple[int, ...], voice: Voice) -> str:
    """Return days of the week in words; they are sorted."""
    names = [voice.day(day) for day in days]
    if len(days) > 2 and days[-1] - days[0] == len(days) - 1:  # noqa: PLR2004 - two are named
        return voice.say("{first} to {last}", first=names[0], last=names[-1])
    return voice.listed(names)


def _clock(minute: int) -> str:
    return f"{minute // MINUTES_PER_HOUR:02}:{minute % MINUTES_PER_HOUR:02}"


def unreadable_time(reply: say.UnreadableTime, voice: Voice) -> str:
    """Say what was not understood, and what would be."""
    said = voice.say("I do not understand “{words}” here.", words=one_line(reply.words, 60))
    return f"{said}\n{HELP[reply.verb].all(voice)}"


def language_told(reply: say.LanguageTold, _voice: Voice) -> str:
    """Say which language we speak, in that language, and what else we can."""
    own = voice_of(reply.language)
    head = own.say("From now on I speak English with you.") if reply.changed else own.say("I speak English with you.")
    return f"{head} {_choice(own, [code for code in LANGUAGES if code != own.language])}"


def no_such_language(reply: say.NoSuchLanguage, voice: Voice) -> str:
    """Say which languages there are."""
    refused = voice.say("I do not speak “{words}”.", words=one_line(reply.words, 60))
    return f"{refused} {_choice(voice, LANGUAGES)}"


def _choice(voice: Voice, codes: Sequence[str]) -> str:
    commands = [f"`language {code}` ({voice_of(code).name(code)})" for code in codes]
    return voice.say("You can have {languages}.", languages=voice.listed(commands))


def no_such_zone(reply: say.NoSuchZone, voice: Voice) -> str:
    """Say which zones may be meant, or how to name one."""
    if reply.meant:
        commands = voice.listed([f"`timezone {name}`" for name in reply.meant])
        return voice.say("There are several. Which one? {commands}", commands=commands)
    return voice.say(
        "I know no time zone “{words}”. Name a large city in it, e.g. `timezone Berlin`, "
        "or its name as in `timezone America/New_York`.",
        words=one_line(reply.words, 60),
    )
