"""Limits of a user, and types of results that requests return."""

import msgspec

from service.model import ChannelId


class Limits(msgspec.Struct, frozen=True):
    """Limits of one user; a channel with at least ``public_from_subscribers`` subscribers is public.

    ``watches`` is the maximum number of saved searches.
    """

    subscriptions: int
    new_urls_per_hour: int
    commands_per_minute: int
    watches: int
    public_from_subscribers: int

    def of(self, max_subscriptions: int | None) -> "Limits":
        """Return these limits with the maximum number of subscriptions set by an admin; None keeps the default."""
        if max_subscriptions is None:
            return self
        return msgspec.structs.replace(self, subscriptions=max_subscriptions)


class MessageReferences(msgspec.Struct, frozen=True):
    """The channels that a message of the bot was about, and the saved searches that caused the message.

    ``watches`` are the numbers of the saved searches.
    """

    channels: tuple[ChannelId, ...]
    watches: tuple[int, ...]
