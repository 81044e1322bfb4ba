"""Greetings of new users, and of users who write again after deliveries to them were suspended.

When an unreachable user writes again, the deliveries are resumed, with a summary of what was withheld.
"""

import msgspec

from bots.delivery.unreachable_users import resume_reachable_user
from bots.dialogue.bot_services import BotServices
from bots.dialogue.reply import Reply
from bots.i18n.translator import get_translator, supported_language
from bots.replies.formatting import MAX_MESSAGE_BYTES, clip
from bots.replies.greetings_and_refusals import WELCOME, WELCOME_BACK
from service.store.people.users import UserState


async def record_activity(services: BotServices, known: UserState, tag: str) -> UserState:
    """Record that a user with access to the bot has written; return the user's state before this message.

    ``known`` is the user's stored state, and ``tag`` the language of the user's client (RFC 5646). A new user is marked
    as welcomed, and deliveries to an unreachable user are resumed. The result still states whether the user was new or
    unreachable before, but has the new language.
    """
    jid, store = known.jid, services.store
    if not known.welcomed:
        await store.users.mark_welcomed(jid)
        await store.home_addresses.keep(jid)
    if known.unreachable:
        await resume_reachable_user(store, jid)
    client_language = supported_language(tag)
    if client_language in ("", known.user_settings.client_language):
        return known
    await store.users.set_client_language(jid, client_language)
    services.delivery.on_settings_changed(jid)
    user_settings = msgspec.structs.replace(known.user_settings, client_language=client_language)
    return msgspec.structs.replace(known, user_settings=user_settings)


def greeted_text(user: UserState, reply: Reply) -> str:
    """Return the text of a reply, preceded by a greeting for new and for returning users.

    ``user`` is the state of the user from before the command was received.
    """
    translator = get_translator(user.user_settings.effective_language)
    text = reply.text
    if user.unreachable:
        text = f"{translator.gettext(WELCOME_BACK)}\n\n{text}"
    elif not user.welcomed and text != (welcome := translator.gettext(WELCOME)):
        text = f"{welcome}\n\n{text}"
    return clip(text, MAX_MESSAGE_BYTES)
