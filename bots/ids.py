"""The ids of our messages: all are bound to the person, those of batches by a dash, those of answers by a dot."""

import secrets

from service.model import UserId
from service.store.outbox import MessageId


def answer_id(uid: UserId) -> MessageId:
    """Return a fresh id for an answer: also bound to the person, but no batch's."""
    return f"{uid}.{secrets.token_hex(8)}"


def is_own(uid: UserId, message_id: MessageId) -> bool:
    """Whether this is the id of a message to this person."""
    return message_id.startswith(uid)


def is_batch(uid: UserId, message_id: MessageId) -> bool:
    """Whether this is the id of a batch for this person."""
    return message_id.startswith(f"{uid}-")
