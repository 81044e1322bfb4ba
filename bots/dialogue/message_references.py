"""Commands that refer to a message of the bot: replies (XEP-0461) and reactions (XEP-0444).

If such a command names no subscription, it applies to the channel that the message is about. If the message is about
several of the user's channels, the bot asks which one is meant. A message about none of the user's channels may have
been sent because an entry matches a saved search. The command then applies to the saved search.
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
    """Return the command that a reply or reaction to one of the bot's messages stands for.

    ``text`` is the text of the reply, or the command that the reaction stands for. ``message_id`` is the id of
    the bot's message. Return one of these:

    - A :data:`~bots.commands.parser.Command`: the command in ``text``, applied to the channel or saved search
      that the message is about.
    - A :class:`Reply`: an error message if no command can be found, or a question if the message is about several
      channels. The user's answer to the question is executed by ``execute(requests, command=...)``.
    - None: ``text`` must be executed as it is, without regard to the message. Either it needs no subscription
      number, or it is a reply to an unknown message.
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
    """Return the command for a reply or reaction to a message that is about none of the user's channels.

    ``template`` is the command in the reply or reaction, with ``#{}`` for the missing subscription number.
    ``references`` states what the message is about. The result is one of these:

    - a command that turns announcements off, if the user wants no more announcements
    - a command that deletes a saved search, if the user wants no more messages about it
    - None in all other cases
    """
    if references.channels == (ANNOUNCEMENTS,) and template.startswith(("unsubscribe", "set #{} mute on")):
        return VerbCommand("announcements", words="off")
    if template.startswith("unsubscribe") and len(references.watches) == 1:
        return VerbCommand("unwatch", SubscriptionTarget(number=references.watches[0]))
    return None
