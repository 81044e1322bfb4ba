"""Limits of a user, and values that requests return."""

import msgspec

from service.model import ChannelId


class Limits(msgspec.Struct, frozen=True):
    """Limits of one user, and the number of subscribers from which on a channel is public."""

    subscriptions: int
    new_urls_per_hour: int
    commands_per_minute: int
    watches: int
    public_from_subscribers: int

    def of(self, max_subscriptions: int | None) -> "Limits":
        """Return the limits of a user for whom an admin has set ``max_subscriptions``, or None."""
        if max_subscriptions is None:
            return self
        return msgspec.structs.replace(self, subscriptions=max_subscriptions)


class MessageReferences(msgspec.Struct, frozen=True):
    """The channels that a message was about, and the numbers of the saved searches because of which it was sent."""

    channels: tuple[ChannelId, ...]
    watches: tuple[int, ...]
