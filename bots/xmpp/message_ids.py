"""The ids of our messages: all are bound to the person, those of batches by a dash, those of answers by a dot."""

import secrets

from service.model import UserId
from service.store.delivery.inbound_log import EntryId
from service.store.delivery.outbox import MessageId


def fresh_id(uid: UserId) -> MessageId:
    """Return a fresh id for what is no batch: an answer to what stands nowhere, or news of our own."""
    return f"{uid}.{secrets.token_hex(8)}"


def answer_id(uid: UserId, place: EntryId, count: int) -> MessageId:
    """Return the id of an answer to what stands in the store: the same, whoever gives it."""
    return f"{uid}.{place}.{count}"


def is_own(uid: UserId, message_id: MessageId) -> bool:
    """Whether this is the id of a message to this person."""
    return message_id.startswith(uid)


def is_batch(uid: UserId, message_id: MessageId) -> bool:
    """Whether this is the id of a batch for this person."""
    return message_id.startswith(f"{uid}-")
