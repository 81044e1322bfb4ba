"""Records of a user's subscriptions, in the form in which scripts write them to Redis.

A record consists of these parts (format: ``scripts/user_index.lua``):

- the number of the subscription
- the sequence number (``seq``) of the user's last change to the subscription
- the last version that was queued for the subscription
- the time when the subscription began
- if the subscription is paused, the last version before the pause
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from service.model import ChannelId, Subscription


def index_field(cid: ChannelId) -> bytes:
    """Return the name of a channel's field in the Redis hash that contains a user's subscriptions.

    The format is documented in ``scripts/user_index.lua``.
    """
    return bytes.fromhex(cid)


def parse_subscription(cid: ChannelId, record: bytes) -> Subscription:
    """Decode ``record``, the user index's record of a subscription to the channel ``cid``."""
    number, seq, seen, since, *paused = record.split()
    withheld_after = int(paused[0].rstrip(b"*")) if paused else None
    return Subscription(cid, int(number), int(seq), int(seen), _decode_timestamp_s(since), withheld_after)


def encode_timestamp(at_s: float) -> str:
    """Encode a Unix time in seconds as 6 characters of base64."""
    # In decimal digits, it would take 10 characters, which costs Redis 32 bytes more per user.
    return urlsafe_b64encode(int(at_s).to_bytes(4)).decode().rstrip("=")


def _decode_timestamp_s(text: bytes) -> float:
    """Decode a timestamp from :func:`encode_timestamp` to a Unix time in seconds."""
    return float(int.from_bytes(urlsafe_b64decode(text + b"==")))
