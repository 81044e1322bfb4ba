"""The reply to a command: its text in the user's language, and the answers to the question in it."""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto

import msgspec

from bots.dialogue.request_handler import Requests
from bots.i18n.translator import Translator
from bots.replies.help_texts import help_text
from service.feeds.parsing.html_text import one_line


class CommandOutcome(Enum):
    """How the execution of a command ended."""

    DONE = auto()
    """The command was executed, or the bot has asked the user a question."""
    FAILED = auto()
    DENIED = auto()
    """The user may not execute the command."""
    MISUNDERSTOOD = auto()
    """The message is not a command, or not a complete one."""


class Option(msgspec.Struct, frozen=True):
    """An answer that the user can choose.

    ``execute`` is the function that does what the answer means, and ``label`` is the answer's name in a form.
    """

    execute: Callable[[Requests], Awaitable["Reply"]]
    label: str = ""


class Reply(msgspec.Struct, frozen=True):
    """The reply to a command.

    - ``text``: the text, which may be a question.
    - ``outcome``: how the execution of the command ended.
    - ``options``: for a question, the possible answers; the keys are the texts that the user can type: "yes", "more" or
      a number.
    - ``question``: the question alone, if ``text`` says more.
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
    """Return the reply to a command that was not executed, or failed."""
    return Reply(text, CommandOutcome.FAILED)


def misunderstanding(text: str) -> Reply:
    """Return the reply to a message that is not a command, or not a complete one."""
    return Reply(text, CommandOutcome.MISUNDERSTOOD)


def missing_argument(verb: str, translator: Translator) -> Reply:
    """Return the reply to the command ``verb`` without the argument that it needs."""
    return misunderstanding(help_text(verb, translator))


def suggestion(command: str, execute: Callable[[Requests], Awaitable[Reply]], translator: Translator) -> Reply:
    """Return the question whether the user meant ``command``, which ``execute`` executes."""
    text = translator.gettext(
        "Did you mean `{command}`? If so, reply `yes`; if not, try again.", command=one_line(command, 200)
    )
    return Reply(text, CommandOutcome.MISUNDERSTOOD, {"yes": Option(execute)})
