"""References of commands to messages of the bot: replies (XEP-0461) and reactions (XEP-0444).

A command that refers to a message, and names no subscription, is for the channel that the message was about. If the
message was about several of the user's channels, the bot asks which one is meant. If the message was about none of the
user's channels, but was sent because of a saved search, the command is for the saved search.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from bots.commands.parser import Command, SubscriptionTarget, VerbCommand, incomplete_command_template, parse
from bots.dialogue.read_requests import MessageReferences
from bots.dialogue.reply import Option, Reply
from bots.dialogue.request_handler import Requests
from bots.dialogue.subscription_commands import no_such_subscription
from bots.replies.formatting import fit_rows, title
from service.store.delivery.outbox import ANNOUNCEMENTS


async def find_referenced_command(
    requests: Requests,
    text: str,
    message_id: str,
    execute: Callable[..., Awaitable[Reply]],
    *,
    is_reaction: bool,
) -> Command | Reply | None:
    """Return the command that ``text`` means as a reply or reaction to the bot's message ``message_id``.

    - A :data:`~bots.commands.parser.Command`: ``text`` applied to the channel or saved search that the message was
      about.
    - A :class:`Reply`: the error if no command can be found, or the question which of several channels is meant. The
      answers to the question call ``execute(requests, command=...)``, which executes a command.
    - None: the message makes no difference, because ``text`` names a subscription itself or the message is unknown.
    """
    translator, template = requests.translator, incomplete_command_template(text)
    references = await requests.message_references(message_id) if template or is_reaction else None
    if references is None and is_reaction:
        return Reply(
            translator.gettext(
                "I no longer know what that message was about. `list` shows your subscriptions and their numbers."
            )
        )
    if references is None or not template:
        return None
    candidates = [each for each in await requests.subscriptions() if each.channel.id in references.channels]
    commands = [parse(template.format(each.number)) for each in candidates]
    if not commands:
        return _command_about_no_channel(template, references) or no_such_subscription(translator)
    if len(commands) == 1:
        return commands[0]
    rows = [f"#{each.number} {title(each.channel)}" for each in candidates]
    head = translator.gettext(
        "That message was about several channels. Which one do you mean? Reply with its number, or `cancel`."
    )
    options = {
        str(each.number): Option(partial(execute, command=command), row)
        for each, command, row in zip(candidates, commands, rows, strict=True)
    }
    return Reply(fit_rows(head, rows, translator), options=options)


def _command_about_no_channel(template: str, references: MessageReferences) -> Command | None:
    """Return the command for a message that is about none of the user's channels; None if no command applies.

    ``template`` is the command with which the user has replied or reacted to the message; ``#{}`` stands for the
    missing subscription number. ``references`` states what the message is about. In reply to an announcement, the
    result turns announcements off. In reply to a match of a saved search, it deletes the saved search.
    """
    if references.channels == (ANNOUNCEMENTS,) and template.startswith(("unsubscribe", "set #{} mute on")):
        return VerbCommand("announcements", words="off")
    if template.startswith("unsubscribe") and len(references.watches) == 1:
        return VerbCommand("unwatch", SubscriptionTarget(number=references.watches[0]))
    return None
