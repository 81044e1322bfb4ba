"""Dispatcher of commands: executes one command of a user, and returns the reply.

Commands read and change the user's data through *requests*, the methods of
:class:`~bots.dialogue.request_handler.RequestHandler`. The dispatcher keeps no state between two commands. If a reply
asks a question, the caller keeps the reply, and passes it with the next command. If a command is a reply or a reaction
to a message of the bot, :mod:`bots.dialogue.message_references` finds the subscription or saved search that the command
applies to.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from bots.commands.parser import (
    AnswerCommand,
    Command,
    SubscribeCommand,
    SubscriptionTarget,
    UnknownCommand,
    VerbCommand,
    is_read_only,
    parse,
)
from bots.commands.verb_synonyms import LEAVE
from bots.dialogue import (
    account_commands,
    feed_and_webhook_commands,
    opml_commands,
    search_commands,
    settings_commands,
    subscription_commands,
)
from bots.dialogue.message_references import find_referenced_command
from bots.dialogue.reply import CommandOutcome, Reply, failure, misunderstanding, suggestion
from bots.dialogue.request_handler import Requests
from bots.replies.error_texts import error_text
from bots.replies.formatting import MAX_MESSAGE_BYTES, clip
from bots.replies.greetings_and_refusals import access_denied_text
from bots.replies.search_texts import NO_LIST
from service.errors import CoronetError

_DIALOGUES: Final[Mapping[str, Callable[[Requests, VerbCommand], Awaitable[Reply]]]] = {
    "unsubscribe": subscription_commands.unsubscribe,
    "list": subscription_commands.list_all,
    "show": subscription_commands.show,
    "why": subscription_commands.why,
    "status": subscription_commands.status,
    "export": opml_commands.export,
    "import": opml_commands.import_list,
    "atom": feed_and_webhook_commands.show_feed,
    "webhook": feed_and_webhook_commands.manage_webhook,
    "pause": subscription_commands.pause,
    "resume": subscription_commands.resume,
    "set": settings_commands.change_preferences,
    "filter": settings_commands.edit_filters,
    "digest": settings_commands.change_digest,
    **dict.fromkeys(("quiet", "timezone", "language", "announcements"), settings_commands.change_user_settings),
    "find": search_commands.find,
    "discover": search_commands.discover,
    "watch": search_commands.watch,
    "unwatch": search_commands.unwatch,
    "help": account_commands.show_help,
    "hello": account_commands.welcome,
    "invite": account_commands.accept_invitation,
    "forget": account_commands.forget,
}
"""Maps each verb to the function that executes it. Verbs that depend on the last question are executed by
:func:`_answer` instead."""


async def answer(
    requests: Requests,
    text: str,
    pending_question: Reply | None = None,
    *,
    is_admitted: bool,
    reply_to_id: str = "",
    is_reaction: bool = False,
    can_manage: bool = True,
) -> Reply:
    """Execute the command in ``text`` and return the reply, whose text fits into one message.

    Args:
        requests: The methods that read and change the user's data. In a dry run, they only record what would change.
        text: The command; any text is accepted.
        pending_question: The last reply, if it asked a question that the user has not answered yet; otherwise None.
        is_admitted: Whether the user has access to the bot.
        reply_to_id: The id of the bot's message that the user replied or reacted to, or "".
        is_reaction: Whether ``text`` is the command that a reaction stands for.
        can_manage: Whether the user may change subscriptions and settings; in a room, only owners and admins may.
    """
    command, translator, settings = parse(text), requests.translator, requests.settings
    if not can_manage and (not is_read_only(command) or text.strip().lower() in LEAVE):
        sentence = translator.gettext(
            "Only owners and admins of this room can change its subscriptions. `list` shows them."
        )
        return Reply(sentence, CommandOutcome.DENIED)
    is_invitation = isinstance(command, VerbCommand) and command.name == "invite"
    if not is_admitted and not (is_invitation and settings.who_may_use == "invited"):
        denied = access_denied_text(settings.who_may_use, settings.contact_addresses, translator)
        return Reply(denied, CommandOutcome.DENIED)
    question = pending_question if can_manage and not is_reaction else None
    try:
        referenced = None
        if can_manage and (reply_to_id or is_reaction):
            referenced = await find_referenced_command(requests, text, reply_to_id, _answer, is_reaction=is_reaction)
        if isinstance(referenced, Reply):
            reply = referenced
        elif referenced is not None:
            reply = await _answer(requests, referenced)
        else:
            reply = await _answer(requests, command, question)
    except CoronetError as error:
        reply = failure(error_text(error, "", translator))
    return msgspec.structs.replace(reply, text=clip(reply.text, MAX_MESSAGE_BYTES))


async def _answer(requests: Requests, command: Command, question: Reply | None = None) -> Reply:  # noqa: PLR0911 - one arm per kind of command
    """Execute a command; ``question`` is the last reply if it asked a question that is still unanswered, or None."""
    translator, options = requests.translator, question.options if question is not None else {}
    match command:
        case SubscribeCommand():
            return await subscription_commands.subscribe(requests, command)
        case VerbCommand("more"):
            more = options.get("more")
            return await more.execute(requests) if more else misunderstanding(translator.gettext(NO_LIST))
        case VerbCommand("cancel") if not options:
            return misunderstanding(
                translator.gettext(
                    "There's nothing to cancel. `unsubscribe #3` ends one subscription, `unsubscribe all` ends them "
                    "all, and `pause` pauses everything until you `resume`."
                )
            )
        case VerbCommand("cancel"):
            return Reply(translator.gettext("All right, I haven't changed anything."))
        case VerbCommand(name):
            return await _DIALOGUES[name](requests, command)
        case AnswerCommand(answer):
            return await _answer_question(requests, answer, question)
        case UnknownCommand(_, ""):
            return misunderstanding(
                translator.gettext(
                    "Sorry, I don't understand that. Send me the address of a site to subscribe to it, or `help` to "
                    "see what I can do."
                )
            )
        case UnknownCommand(_, suggested):
            return suggestion(suggested, partial(_answer, command=parse(suggested)), translator)


async def _answer_question(requests: Requests, answer: str, question: Reply | None) -> Reply:
    """Execute the option of ``question`` that the user has chosen with ``answer`` ("yes", "no", or a number).

    - If ``question`` has numbered options and the user's number is not one of them, the reply says so and repeats
      the question.
    - If ``question`` is None or asks for "yes" or "no", a number refers to a subscription. The reply shows the
      latest entries of this subscription.
    - Any other answer that is not an option changes nothing.
    """
    if question is not None and answer in question.options:
        return await question.options[answer].execute(requests)
    if answer.isdecimal():
        if question is not None and "yes" not in question.options:
            translator = requests.translator
            text = question.question or question.text
            unknown = translator.gettext("There's no number {number} in that list.", number=answer)
            return msgspec.structs.replace(question, text=f"{unknown}\n{text}", question=text)
        return await subscription_commands.show(requests, VerbCommand("show", SubscriptionTarget(number=int(answer))))
    if question is not None:
        return Reply(requests.translator.gettext("All right, I haven't changed anything."))
    return misunderstanding(
        requests.translator.gettext(
            "I'm not waiting for an answer right now. If you mean an earlier question, please send that command again; "
            "`help` shows what I can do."
        )
    )
