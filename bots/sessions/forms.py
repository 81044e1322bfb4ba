"""Each command as a form to fill in (XEP-0050, XEP-0004), and each question as the next one. Pure.

A form only gathers words: what is filled in becomes the line that a person would write in chat, and an answer to
a question the answer they would write. So there is one reading of commands, and one dialogue.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from bots.dialogue.request_handler import Queries
from bots.replies.base import Question, title
from bots.replies.search import Found
from bots.replies.subscriptions import Choose
from bots.replies.translator import Voice, marked
from service.discovery.query_parser import written
from service.feeds.parsing.html_text import one_line

Kind = Literal["text-single", "text-multi", "list-single", "list-multi", "boolean"]
Options = tuple[tuple[str, str], ...]
"""What can be chosen: value, label."""
Values = Mapping[str, tuple[str, ...]]
"""What was filled in, by field."""

_LONGEST_LABEL: Final = 120


class Field(msgspec.Struct, frozen=True):
    """One field of a form; ``choice`` is what of the person's own there is to choose from, "" for ``options``."""

    var: str
    label: str
    kind: Kind = "text-single"
    required: bool = False
    options: Options = ()
    values: tuple[str, ...] = ()
    choice: Literal["", "subscription", "subscription or all", "watch"] = ""


class Form(msgspec.Struct, frozen=True):
    """What to fill in; without fields, there is nothing to."""

    title: str
    instructions: str
    fields: tuple[Field, ...]


class _Shape(msgspec.Struct, frozen=True):
    """A command: its name, and its fields in the order of their words.

    A command with the field ``_SEVERAL`` is carried out for each chosen subscription.
    """

    name: str
    fields: tuple[Field, ...] = ()


_ONE: Final = Field("channel", marked("Subscription"), "list-single", required=True, choice="subscription")
_ONE_OR_ALL: Final = msgspec.structs.replace(_ONE, choice="subscription or all")
_SEVERAL: Final = msgspec.structs.replace(_ONE_OR_ALL, kind="list-multi")
_WATCH: Final = Field("watch", marked("Watch"), "list-single", required=True, choice="watch")
_DAYS: Final = (
    ("mon", marked("Monday")), ("tue", marked("Tuesday")), ("wed", marked("Wednesday")), ("thu", marked("Thursday")),
    ("fri", marked("Friday")), ("sat", marked("Saturday")), ("sun", marked("Sunday")),
)  # fmt: skip
_PACES: Final = (
    ("off", marked("at once")), ("hourly", marked("every hour")), ("daily", marked("every day")),
    ("weekly", marked("every week")),
)  # fmt: skip
_SETTINGS: Final = (
    ("interval", marked("How far apart (2h, daily, off)")), ("mute", marked("Tell nothing of it (on, off)")),
    ("title", marked("What I call it")), ("edits", marked("Corrections (on, off)")),
    ("format", marked("How entries look ($title, $link, …)")),
)  # fmt: skip

_SHAPES: Final[dict[str, _Shape]] = {
    "subscribe": _Shape(
        marked("Subscribe to a feed or page"),
        (
            Field("url", marked("Address of a site, feed or page"), required=True),
            Field("selector", marked("Only this part of the page (CSS selector)")),
        ),
    ),
    "unsubscribe": _Shape(marked("End subscriptions"), (_SEVERAL,)),
    "list": _Shape(marked("My subscriptions")),
    "find": _Shape(
        marked("Find channels"), (Field("words", marked("Words, or e.g. tag=python lang=en"), required=True),)
    ),
    "watch": _Shape(
        marked("Watch for a subject"), (Field("words", marked("“A phrase”, tag=python, or /regular expression/")),)
    ),
    "unwatch": _Shape(marked("End a watch"), (_WATCH,)),
    "show": _Shape(
        marked("Latest entries of a subscription"),
        (_ONE, Field("count", marked("How many"), values=("3",))),
    ),
    "why": _Shape(marked("How often is it looked at?"), (_ONE,)),
    "status": _Shape(marked("Is everything in order?")),
    "quiet": _Shape(
        marked("Quiet hours"),
        (
            Field("hours", marked("Hours, e.g. 22:00-07:00, or off")),
            Field("days", marked("On these days (none: on all)"), "list-multi", options=_DAYS),
        ),
    ),
    "digest": _Shape(
        marked("When to be told"),
        (
            Field("every", marked("Tell me what is new"), "list-single", options=_PACES, values=("off",)),
            Field("day", marked("Day, if every week"), "list-single", options=_DAYS),
            Field("at", marked("Time, e.g. 08:00, if every day or week")),
        ),
    ),
    "timezone": _Shape(marked("Time zone"), (Field("words", marked("A large city in it, or its name")),)),
    "language": _Shape(marked("Language"), (Field("words", marked("Its name")),)),
    "pause": _Shape(marked("Pause subscriptions"), (_SEVERAL,)),
    "resume": _Shape(marked("Resume subscriptions"), (_SEVERAL,)),
    "set": _Shape(
        marked("Settings of a subscription"),
        (
            _ONE_OR_ALL,
            Field("setting", marked("Setting (none: show them)"), "list-single", options=_SETTINGS),
            Field("value", marked("What it shall be")),
        ),
    ),
    "export": _Shape(marked("My subscriptions as OPML")),
    "forget": _Shape(marked("Forget me")),
    "help": _Shape(marked("Help")),
}  # fmt: skip


_WORDS: Final = (Field("words", marked("What you would write after it in chat")),)


def _shape(verb: str) -> _Shape:
    """Return a command's shape; one of its own is a convenience."""
    return _SHAPES.get(verb) or _Shape(verb.capitalize(), _WORDS)


def name(verb: str, voice: Voice) -> str:
    """Return what to call a command in a list."""
    return voice.say(_shape(verb).name)


async def opening(verb: str, voice: Voice, requests: Queries) -> Form:
    """Return the form with which a command begins."""
    shape = _shape(verb)
    fields = []
    for blank in shape.fields:
        options: Options = tuple((value, voice.say(label)) for value, label in blank.options)
        if blank.choice == "watch":
            watches = await requests.watches()
            options = tuple((f"#{watch.number}", _label(written(watch.standing))) for watch in watches)
        elif blank.choice:
            mine = await requests.subscriptions()
            options = tuple((f"#{one.number}", _label(f"#{one.number} {title(one.channel)}")) for one in mine)
            if blank.choice == "subscription or all" and mine:
                options += (("all", voice.say("All of them")),)
        fields.append(msgspec.structs.replace(blank, label=voice.say(blank.label), options=options))
    return Form(voice.say(shape.name), "", tuple(fields))


def lines(verb: str, values: Values) -> list[str]:
    """Return what a person would write who means what was filled in; several lines are several commands."""
    words: list[str] = []
    each: list[str] = []
    for blank in _shape(verb).fields:
        filled = [one_line(value, 4096) for value in values.get(blank.var, ()) if value.strip()]
        if blank is _SEVERAL:
            each = ["all"] if "all" in filled else filled
        else:
            words += filled
    return [" ".join((verb, one, *words)) for one in each] or [" ".join((verb, *words))]


def left(verb: str, values: Values, done: int) -> Values:
    """Return what was filled in without what the first ``done`` commands were for."""
    if _SEVERAL not in _shape(verb).fields:
        return values
    chosen = [value for value in values.get(_SEVERAL.var, ()) if value.strip()]
    return {**values, _SEVERAL.var: tuple(chosen[done:])}


def question(asked: Question, instructions: str, voice: Voice) -> Form:
    """Return a question as a form."""
    match asked:
        case Choose(offered):
            named = [
                _label(f"{one_line(option.title, 80) or 'Feed'}: {one_line(option.url, 300)}") for option in offered
            ]
            return Form(voice.say("Which one?"), instructions, (_numbered(named, (), voice),))
        case Found(findings=found, more=more):
            named = [_label(title(finding.channel)) for finding in found]
            others = (("more", voice.say("Show others")),) if more else ()
            return Form(voice.say("Subscribe to one of these?"), instructions, (_numbered(named, others, voice),))
        case _:
            sure = Field("answer", voice.say("Yes"), "boolean", values=("0",))
            return Form(voice.say("One question"), instructions, (sure,))


def answer(asked: Question, values: Values) -> str:
    """Return what a person would write who answers so; nothing chosen means to let it be."""
    chosen = one_line("".join(values.get("answer", ())[:1]), 100)
    if isinstance(asked, Choose | Found):
        return chosen or "no"
    return "yes" if chosen in ("1", "true") else "no"


def again(form: Form, values: Values, instructions: str) -> Form:
    """Return a form as it was filled in, with what is wrong."""
    fields = tuple(msgspec.structs.replace(field, values=values.get(field.var, field.values)) for field in form.fields)
    return Form(form.title, instructions, fields)


def _numbered(named: Sequence[str], others: Options, voice: Voice) -> Field:
    options = (*((str(number), label) for number, label in enumerate(named, 1)), *others)
    return Field("answer", voice.say("Choose"), "list-single", options=options)


def _label(words: str) -> str:
    return one_line(words, _LONGEST_LABEL)
