"""Each command as a form to fill in (XEP-0050, XEP-0004), and each question as the next one. Pure.

A form only gathers words: what is filled in becomes the line that a person would write in chat, and an answer to
a question the answer they would write. So there is one reading of commands, and one dialogue.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from bots.dialogue.request_handler import ReadRequests
from bots.i18n.translator import Translator, gettext_noop
from bots.replies.base import QuestionReply, title
from bots.replies.help import command_title
from bots.replies.search import SearchResults
from bots.replies.subscriptions import ChooseFeed
from bots.xmpp.adhoc import Field, Form, Options
from service.discovery.query_parser import format_condition
from service.feeds.parsing.html_text import one_line

Values = Mapping[str, tuple[str, ...]]
"""What was filled in, by field."""

_LONGEST_LABEL: Final = 120


_ONE: Final = Field("channel", gettext_noop("Subscription"), "list-single", required=True, choice="subscription")
_ONE_OR_ALL: Final = msgspec.structs.replace(_ONE, choice="subscription or all")
_SEVERAL: Final = msgspec.structs.replace(_ONE_OR_ALL, kind="list-multi")
_WATCH: Final = Field("watch", gettext_noop("Saved search"), "list-single", required=True, choice="watch")
_DAYS: Final = (
    ("mon", gettext_noop("Monday")), ("tue", gettext_noop("Tuesday")),
    ("wed", gettext_noop("Wednesday")), ("thu", gettext_noop("Thursday")), ("fri", gettext_noop("Friday")),
    ("sat", gettext_noop("Saturday")), ("sun", gettext_noop("Sunday")),
)  # fmt: skip
_DIGEST_SCHEDULES: Final = (
    ("off", gettext_noop("at once")), ("hourly", gettext_noop("hourly summary")),
    ("daily", gettext_noop("daily summary")), ("weekly", gettext_noop("weekly summary")),
)  # fmt: skip
_SETTINGS: Final = (
    ("interval", gettext_noop("Minimum interval (2h, daily, off)")), ("mute", gettext_noop("Mute (on, off)")),
    ("title", gettext_noop("Title")), ("edits", gettext_noop("Corrections (on, off)")),
    ("format", gettext_noop("Entry format ($title, $link, …)")),
)  # fmt: skip

_FIELDS: Final[dict[str, tuple[Field, ...]]] = {
    "subscribe": (
            Field("url", gettext_noop("Address of a site, feed or page"), required=True),
            Field("selector", gettext_noop("Only this part of the page (CSS selector)")),
        ),
    "unsubscribe": (_SEVERAL,),
    "list": (),
    "find": (Field("words", gettext_noop("Words, or e.g. tag=python lang=en"), required=True),),
    "watch": (Field("words", gettext_noop("“A phrase”, tag=python, or /regular expression/")),),
    "unwatch": (_WATCH,),
    "show": (_ONE, Field("count", gettext_noop("Number of entries"), values=("3",))),
    "why": (_ONE,),
    "status": (),
    "quiet": (
            Field("hours", gettext_noop("Hours, e.g. 22:00-07:00, or off")),
            Field("days", gettext_noop("Days (none: every day)"), "list-multi", options=_DAYS),
        ),
    "digest": (
            Field(
                "every", gettext_noop("How to send new entries"), "list-single",
                options=_DIGEST_SCHEDULES, values=("off",),
            ),
            Field("day", gettext_noop("Day of a weekly summary"), "list-single", options=_DAYS),
            Field("at", gettext_noop("Time of a daily or weekly summary, e.g. 08:00")),
        ),
    "timezone": (Field("words", gettext_noop("A large city in it, or its name")),),
    "language": (Field("words", gettext_noop("English, Deutsch, français, español, or auto")),),
    "pause": (_SEVERAL,),
    "resume": (_SEVERAL,),
    "set": (
            _ONE_OR_ALL,
            Field("setting", gettext_noop("Setting (none: show them all)"), "list-single", options=_SETTINGS),
            Field("value", gettext_noop("New value")),
        ),
    "export": (),
    "forget": (),
    "help": (),
}  # fmt: skip


_WORDS: Final = (Field("words", gettext_noop("What you would write after the command in chat")),)


def _fields(verb: str) -> tuple[Field, ...]:
    """Return a command's fields in the order of its words.

    A command with the field ``_SEVERAL`` is carried out for each chosen subscription.
    """
    return _FIELDS.get(verb, _WORDS)


async def opening(verb: str, translator: Translator, requests: ReadRequests) -> Form:
    """Return the form with which a command begins."""
    fields = []
    for blank in _fields(verb):
        options: Options = tuple((value, translator.gettext(label)) for value, label in blank.options)
        if blank.choice == "watch":
            watches = await requests.watches()
            options = tuple((f"#{watch.number}", _label(format_condition(watch.condition))) for watch in watches)
        elif blank.choice:
            mine = await requests.subscriptions()
            options = tuple((f"#{one.number}", _label(f"#{one.number} {title(one.channel)}")) for one in mine)
            if blank.choice == "subscription or all" and mine:
                options += (("all", translator.gettext("All of them")),)
        fields.append(msgspec.structs.replace(blank, label=translator.gettext(blank.label), options=options))
    return Form(command_title(verb, translator), "", tuple(fields))


def lines(verb: str, values: Values) -> list[str]:
    """Return what a person would write who means what was filled in; several lines are several commands."""
    words: list[str] = []
    each: list[str] = []
    for blank in _fields(verb):
        filled = [one_line(value, 4096) for value in values.get(blank.var, ()) if value.strip()]
        if blank is _SEVERAL:
            each = ["all"] if "all" in filled else filled
        else:
            words += filled
    return [" ".join((verb, one, *words)) for one in each] or [" ".join((verb, *words))]


def left(verb: str, values: Values, done: int) -> Values:
    """Return what was filled in without what the first ``done`` commands were for."""
    if _SEVERAL not in _fields(verb):
        return values
    chosen = [value for value in values.get(_SEVERAL.var, ()) if value.strip()]
    return {**values, _SEVERAL.var: tuple(chosen[done:])}


def question(asked: QuestionReply, instructions: str, translator: Translator) -> Form:
    """Return a question as a form."""
    match asked:
        case ChooseFeed(offered):
            named = [
                _label(f"{one_line(option.title, 80) or 'Feed'}: {one_line(option.url, 300)}") for option in offered
            ]
            return Form(translator.gettext("Which one?"), instructions, (_numbered(named, (), translator),))
        case SearchResults(hits=hits, has_more=has_more):
            named = [_label(title(hit.channel)) for hit in hits]
            others = (("more", translator.gettext("Show more")),) if has_more else ()
            return Form(
                translator.gettext("Subscribe to one of these?"), instructions, (_numbered(named, others, translator),)
            )
        case _:
            sure = Field("answer", translator.gettext("Yes"), "boolean", values=("0",))
            return Form(translator.gettext("Please confirm"), instructions, (sure,))


def answer(asked: QuestionReply, values: Values) -> str:
    """Return what a person would write who answers so; nothing chosen means to let it be."""
    chosen = one_line("".join(values.get("answer", ())[:1]), 100)
    if isinstance(asked, ChooseFeed | SearchResults):
        return chosen or "no"
    return "yes" if chosen in ("1", "true") else "no"


def again(form: Form, values: Values, instructions: str) -> Form:
    """Return a form as it was filled in, with what is wrong."""
    fields = tuple(msgspec.structs.replace(field, values=values.get(field.var, field.values)) for field in form.fields)
    return Form(form.title, instructions, fields)


def _numbered(named: Sequence[str], others: Options, translator: Translator) -> Field:
    options = (*((str(number), label) for number, label in enumerate(named, 1)), *others)
    return Field("answer", translator.gettext("Choose"), "list-single", options=options)


def _label(words: str) -> str:
    return one_line(words, _LONGEST_LABEL)
