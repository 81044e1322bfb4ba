"""What a node remembers of a channel that it polls, between polls."""

import msgspec

from service.feeds.identity import IdentityState
from service.model import Channel, Validators
from service.store.channels import ChannelState


class Watch(msgspec.Struct):
    """The base that the next poll compares with, and what makes that poll conditional.

    Validators and identities may run ahead of the store's while the content says nothing new; they
    never run ahead of a version that is not confirmed, so what is found but not versioned is found again.
    ``not_before_s`` (Unix s) is the publisher's ``Retry-After``.
    """

    channel: Channel
    validators: Validators
    identity: IdentityState | None
    subscribers: int
    not_before_s: float = 0.0


def watch(state: ChannelState, subscribers: int) -> Watch:
    """Return a channel's state in the store as the base of its next poll."""
    identity = msgspec.msgpack.decode(state.identity, type=IdentityState) if state.identity else None
    return Watch(state.channel, state.validators, identity, subscribers)
