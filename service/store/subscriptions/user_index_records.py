"""Records of a user's subscriptions, as scripts write them to Redis.

A record has these parts (format: ``scripts/user_index.lua``):

- the number of the subscription
- the number (``seq``) of the user's last change of the subscription
- the last version that was queued for the subscription
- the time when the subscription began
- if the subscription is paused, the last version before the pause
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from service.model import ChannelId, Subscription


def index_field(cid: ChannelId) -> bytes:
    """Return the name of the field for a channel in a user's list of subscriptions, which is a Redis hash.

    The format is documented in ``scripts/user_index.lua``.
    """
    return bytes.fromhex(cid)


def parse_subscription(cid: ChannelId, record: bytes) -> Subscription:
    """Return the subscription to a channel whose record in the user index is ``record``."""
    number, seq, seen, since, *paused = record.split()
    withheld_after = int(paused[0].rstrip(b"*")) if paused else None
    return Subscription(cid, int(number), int(seq), int(seen), _decode_timestamp_s(since), withheld_after)


def encode_timestamp(at_s: float) -> str:
    """Return a time (Unix s) as 6 characters of base64."""
    # In decimal digits, it would take 10 characters, which costs Redis 32 bytes more per user.
    return urlsafe_b64encode(int(at_s).to_bytes(4)).decode().rstrip("=")


def _decode_timestamp_s(text: bytes) -> float:
    """Return the time (Unix s) of an encoded timestamp."""
    return float(int.from_bytes(urlsafe_b64decode(text + b"==")))
