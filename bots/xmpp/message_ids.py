"""The ids of the messages that the bot sends.

Each id begins with the user id of the recipient, so that the bot can reject a delivery receipt that comes from anybody
else. The user id is followed by a dash in the id of a batch of notifications, and by a dot in all other ids.
"""

import secrets

from service.model import UserId
from service.store.delivery.inbound_log import EntryId
from service.store.delivery.outbox import MessageId


def new_message_id(user_id: UserId) -> MessageId:
    """Return a random id for a message that is neither a batch of notifications nor a reply to a stored message."""
    return f"{user_id}.{secrets.token_hex(8)}"


def reply_id(user_id: UserId, entry_id: EntryId, index: int) -> MessageId:
    """Return the id of one part of the reply to a stored message.

    ``entry_id`` is the id of the stored message in the inbound log; ``index`` is the index of the part within the
    reply. Every process computes the same id, so that clients recognise a reply that is sent twice (guarantee I2).
    """
    return f"{user_id}.{entry_id}.{index}"


def image_id(batch_id: MessageId) -> MessageId:
    """Return the id of the message with the image of an entry that is sent after the batch ``batch_id``.

    The id is the same whenever the batch is sent, so that clients recognise a repeated image.
    """
    return f"{batch_id.replace('-', '.', 1)}.image"


def is_message_to(user_id: UserId, message_id: MessageId) -> bool:
    """Return whether ``message_id`` is the id of a message to this user."""
    return message_id.startswith(user_id)


def is_batch_id(user_id: UserId, message_id: MessageId) -> bool:
    """Return whether ``message_id`` is the id of a batch of notifications sent to this user."""
    return message_id.startswith(f"{user_id}-")
