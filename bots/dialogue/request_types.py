"""Values that requests of dialogues return, and what one person may have."""

import msgspec

from service.model import ChannelId


class Limits(msgspec.Struct, frozen=True):
    """What one user may have, and how many subscribers make a channel anybody's business."""

    subscriptions: int
    new_urls_per_hour: int
    commands_per_minute: int
    watches: int
    public_from_subscribers: int

    def of(self, most_subscriptions: int | None) -> "Limits":
        """Return them for a person for whom an admin has set another number of subscriptions, or None."""
        if most_subscriptions is None:
            return self
        return msgspec.structs.replace(self, subscriptions=most_subscriptions)


class MessageReferences(msgspec.Struct, frozen=True):
    """The channels that a message told of, and the numbers of what is watched for that it told for."""

    channels: tuple[ChannelId, ...]
    watches: tuple[int, ...]
