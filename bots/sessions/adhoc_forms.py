"""Data forms (XEP-0004) for ad-hoc commands (XEP-0050), which ask for the arguments of a command or ask a question.

The values of a submitted form are converted to the text that the user would type in a chat. Therefore text commands and
forms share one parser and the same dialogues.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from bots.dialogue.folders import all_folders
from bots.dialogue.read_requests import ReadRequests
from bots.dialogue.reply import Reply
from bots.i18n.translator import Translator, gettext_noop
from bots.replies.formatting import title
from bots.replies.help_texts import command_title
from bots.sessions.message_encryption import CREDENTIAL_FIELD
from bots.xmpp.adhoc_stanzas import Field, Form, Options
from service.feeds.parsing.html_text import one_line

Values = Mapping[str, tuple[str, ...]]
"""Maps the name of each field to the values submitted for it."""

_MAX_LABEL_CHARS: Final = 120


_SUBSCRIPTION: Final = Field(
    "channel", gettext_noop("Subscription"), "list-single", required=True, choice="subscription"
)
_SUBSCRIPTION_OR_ALL: Final = msgspec.structs.replace(_SUBSCRIPTION, choice="subscription or all")
_SUBSCRIPTIONS: Final = msgspec.structs.replace(_SUBSCRIPTION_OR_ALL, kind="list-multi")
_FOLDER: Final = Field("folder", gettext_noop("Folder (none: everything)"), "list-single", choice="folder")
_SAVED_SEARCH: Final = Field("watch", gettext_noop("Saved search"), "list-single", required=True, choice="watch")
_DAYS: Final = (
    ("mon", gettext_noop("Monday")), ("tue", gettext_noop("Tuesday")),
    ("wed", gettext_noop("Wednesday")), ("thu", gettext_noop("Thursday")), ("fri", gettext_noop("Friday")),
    ("sat", gettext_noop("Saturday")), ("sun", gettext_noop("Sunday")),
)  # fmt: skip
_DIGEST_SCHEDULES: Final = (
    ("off", gettext_noop("right away")), ("hourly", gettext_noop("hourly summary")),
    ("daily", gettext_noop("daily summary")), ("weekly", gettext_noop("weekly summary")),
)  # fmt: skip
_SETTINGS: Final = (
    ("interval", gettext_noop("Minimum interval (2h, daily, off)")), ("mute", gettext_noop("Mute (on, off)")),
    ("folder", gettext_noop("Folder")), ("digest", gettext_noop("Summaries (daily 08:00, hourly, off)")),
    ("title", gettext_noop("Title")), ("edits", gettext_noop("Corrections (on, off)")),
    ("when", gettext_noop("Condition on a number (< 20, changes by 5 %, off)")),
    ("format", gettext_noop("Entry format ($title, $link, …)")),
    ("text", gettext_noop("Length of texts (0 to 2000, full)")), ("images", gettext_noop("Images (on, off)")),
)  # fmt: skip

_ON_OFF: Final = (("on", gettext_noop("on")), ("off", gettext_noop("off")))
_ORDERS: Final = (("popular", gettext_noop("popular ones")), ("new", gettext_noop("new ones")))

_VERBS_FOR_FOLDERS: Final = ("pause", "resume", "set")
_WORDS: Final = (Field("words", gettext_noop("What you would write after the command in chat")),)
_FIELDS: Final[dict[str, tuple[Field, ...]]] = {
    "subscribe": (
            Field("url", gettext_noop("Address of a site, feed or page"), required=True),
            Field("selector", gettext_noop("Only this part of the page (CSS selector, xpath=… or json=…)")),
            Field("when", gettext_noop("Only when a number meets this (< 20, changes by 5 %)")),
            Field(
                CREDENTIAL_FIELD,
                gettext_noop("Login of a private feed (login NAME PASSWORD, token …, cookie … or header …)"),
                "text-private",
            ),
        ),
    "unsubscribe": (_SUBSCRIPTIONS,),
    "list": (),
    "find": (Field("words", gettext_noop("Words, “a phrase”, -without, tag:python, lang:en"), required=True),),
    "discover": (
            Field(
                "order", gettext_noop("Which channels"), "list-single", options=_ORDERS, values=("popular",),
            ),
            Field("words", gettext_noop("Topic (none: all)")),
        ),
    "watch": (
            Field("words", gettext_noop("As for a search, or /regular expression/ (none: show your saved searches)")),
        ),
    "unwatch": (_SAVED_SEARCH,),
    "show": (_SUBSCRIPTION, Field("count", gettext_noop("Number of entries"), values=("3",))),
    "why": (_SUBSCRIPTION,),
    "status": (),
    "quiet": (
            Field("hours", gettext_noop("Hours, e.g. 22:00-07:00, or off")),
            Field("days", gettext_noop("Days (none: every day)"), "list-multi", options=_DAYS),
        ),
    "digest": (
            _FOLDER,
            Field(
                "every", gettext_noop("How to send new entries"), "list-single",
                options=_DIGEST_SCHEDULES, values=("off",),
            ),
            Field("day", gettext_noop("Day of a weekly summary"), "list-single", options=_DAYS),
            Field("at", gettext_noop("Time of a daily or weekly summary, e.g. 08:00")),
        ),
    "timezone": (Field("words", gettext_noop("A large city in it, or its name")),),
    "language": (
            Field(
                "words",
                gettext_noop(
                    "English, Deutsch, français, español, italiano, português, Nederlands, polski, or auto"
                ),
            ),
        ),
    "pause": (_SUBSCRIPTIONS,),
    "resume": (_SUBSCRIPTIONS,),
    "set": (
            _SUBSCRIPTION_OR_ALL,
            Field("setting", gettext_noop("Setting (none: show them all)"), "list-single", options=_SETTINGS),
            Field("value", gettext_noop("New value")),
        ),
    "announcements": (
            Field(
                "words", gettext_noop("Announcements from the operators"), "list-single",
                options=_ON_OFF, values=("on",),
            ),
        ),
    "export": (),
    "forget": (),
    "help": (),
}  # fmt: skip
"""The form fields of each command, in the order of its arguments. A command that is absent here has one field for all
its arguments as text (``_WORDS``).

A command with the field ``_SUBSCRIPTIONS`` is executed once for each subscription that the user selects."""


async def command_form(verb: str, translator: Translator, requests: ReadRequests) -> Form:
    """Return the form that asks for the arguments of the command ``verb``.

    If the command applies to subscriptions or saved searches, the form offers those of the user, which are read through
    ``requests``.
    """
    fields = []
    for template in _FIELDS.get(verb, _WORDS):
        options: Options = tuple((value, translator.gettext(label)) for value, label in template.options)
        if template.choice == "watch":
            watches = await requests.watches()
            options = tuple((f"#{watch.number}", _label(watch.text)) for watch in watches)
        elif template.choice == "folder":
            options = tuple((folder.name, _label(folder.name)) for folder in await all_folders(requests))
            if not options:
                continue
        elif template.choice:
            subscriptions = await requests.subscriptions()
            options = tuple(
                (f"#{subscription.number}", _label(f"#{subscription.number} {title(subscription.channel)}"))
                for subscription in subscriptions
            )
            if template.choice == "subscription or all" and subscriptions:
                options += (("all", translator.gettext("All of them")),)
            if verb in _VERBS_FOR_FOLDERS:
                options += tuple((folder.name, _label(folder.name)) for folder in await all_folders(requests))
        fields.append(msgspec.structs.replace(template, label=translator.gettext(template.label), options=options))
    return Form(command_title(verb, translator), "", tuple(fields))


def form_to_commands(verb: str, values: Values) -> list[str]:
    """Convert a submitted form to text commands, one for each subscription that the user has selected.

    ``values`` maps the name of each field to the submitted values.
    """
    words: list[str] = []
    each: list[str] = []
    for template in _FIELDS.get(verb, _WORDS):
        submitted = [one_line(value, 4096) for value in values.get(template.var, ()) if value.strip()]
        if template.var == CREDENTIAL_FIELD:
            submitted = [value.strip() for value in values.get(template.var, ()) if value.strip()]
        if template.var == "when":
            submitted = [f"when {value}" for value in submitted]
        if template is _SUBSCRIPTIONS:
            each = ["all"] if "all" in submitted else submitted
        else:
            words += submitted
    return [" ".join((verb, subscription, *words)) for subscription in each] or [" ".join((verb, *words))]


def remaining_values(verb: str, values: Values, done: Collection[int]) -> Values:
    """Return the submitted values without the subscriptions for which the command ``verb`` has succeeded.

    ``done`` contains the index of each such subscription among the selected subscriptions.
    """
    if _SUBSCRIPTIONS not in _FIELDS.get(verb, _WORDS):
        return values
    selected = [value for value in values.get(_SUBSCRIPTIONS.var, ()) if value.strip()]
    return {**values, _SUBSCRIPTIONS.var: tuple(value for index, value in enumerate(selected) if index not in done)}


def question_form(question: Reply, instructions: str, translator: Translator) -> Form:
    """Return a form that asks a question; ``instructions`` is the text above the options."""
    if "yes" in question.options:
        field = Field("answer", translator.gettext("Yes"), "boolean", values=("0",))
        return Form(translator.gettext("Please confirm"), instructions, (field,))
    options = tuple((answer, _label(option.label)) for answer, option in question.options.items() if option.label)
    field = Field("answer", translator.gettext("Choose"), "list-single", options=options)
    return Form(translator.gettext("Subscribe to one of these?"), instructions, (field,))


def form_to_answer(question: Reply, values: Values) -> str:
    """Convert a submitted form to the text of an answer; if no option is selected, the answer is "no"."""
    selected = one_line("".join(values.get("answer", ())[:1]), 100)
    if "yes" in question.options:
        return "yes" if selected in ("1", "true") else "no"
    return selected or "no"


def repeated_form(form: Form, values: Values, instructions: str) -> Form:
    """Return the form filled with the submitted values, so that the user can correct them.

    ``instructions`` is the error to show. Credentials are left out, because the form may be stored on its way.
    """
    fields = tuple(
        msgspec.structs.replace(field, values=values.get(field.var, field.values))
        if field.kind != "text-private"
        else field
        for field in form.fields
    )
    return Form(form.title, instructions, fields)


def _label(words: str) -> str:
    return one_line(words, _MAX_LABEL_CHARS)
