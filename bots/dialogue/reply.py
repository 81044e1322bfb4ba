"""The reply to a command: its text in the user's language, and the possible answers if it asks a question."""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto

import msgspec

from bots.dialogue.request_handler import Requests
from bots.i18n.translator import Translator
from bots.replies.help_texts import help_text
from service.feeds.credentials import mask_credentials
from service.feeds.parsing.html_text import one_line


class CommandOutcome(Enum):
    """How the execution of a command ended."""

    DONE = auto()
    """The command was executed, or the bot has asked the user a question."""
    FAILED = auto()
    DENIED = auto()
    """The user may not execute the command."""
    MISUNDERSTOOD = auto()
    """The message is not a command, or is an incomplete command."""


class Option(msgspec.Struct, frozen=True):
    """An answer that the user can choose.

    - ``execute``: the function to call if the user chooses the answer.
    - ``label``: the text that stands for the answer in a form (XEP-0004); "" if the form does not list the
      answer.
    """

    execute: Callable[[Requests], Awaitable["Reply"]]
    label: str = ""


class Reply(msgspec.Struct, frozen=True):
    """The reply to a command.

    - ``text``: the text, which may be a question.
    - ``outcome``: how the execution of the command ended.
    - ``options``: for a question, the possible answers; the keys are what the user can type: "yes", "more" or
      a number.
    - ``question``: the question alone, if ``text`` contains more than the question.
    - ``further_texts``: texts that are sent as separate messages.
    - ``is_file``: whether ``further_texts`` are URLs of files.
    """

    text: str
    outcome: CommandOutcome = CommandOutcome.DONE
    options: Mapping[str, Option] = {}
    question: str = ""
    further_texts: tuple[str, ...] = ()
    is_file: bool = False


def failure(text: str) -> Reply:
    """Create the reply to a command that was refused, or that failed."""
    return Reply(text, CommandOutcome.FAILED)


def misunderstanding(text: str) -> Reply:
    """Create the reply to a message that is not a command, or is an incomplete command."""
    return Reply(text, CommandOutcome.MISUNDERSTOOD)


def missing_argument(verb: str, translator: Translator) -> Reply:
    """Create the reply to the command ``verb`` when it lacks a required argument."""
    return misunderstanding(help_text(verb, translator))


def suggestion(command: str, execute: Callable[[Requests], Awaitable[Reply]], translator: Translator) -> Reply:
    """Create the reply that asks whether the user meant ``command``; after "yes", ``execute`` executes it."""
    text = translator.gettext(
        "Did you mean `{command}`? If so, reply `yes`; if not, try again.",
        command=one_line(mask_credentials(command), 200),
    )
    return Reply(text, CommandOutcome.MISUNDERSTOOD, {"yes": Option(execute)})
