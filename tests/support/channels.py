"""Ready channels for tests that are about something else."""

from service.feeds.urls import channel_id
from service.model import Change, Channel, Delta, Entry, Validators
from service.store import Store
from service.store.channels import Snapshot

SNAPSHOT = Snapshot(Validators(etag='"1"'), b"", "A feed", "https://example.org/")


async def make_channel(store: Store, url: str = "https://example.org/feed", *, listed: bool = False) -> Channel:
    """Create a channel with one entry at version 1."""
    wanted = Channel(channel_id(url), url, created_s=1_000.0, listed=listed)
    return await store.channels.create(wanted, SNAPSHOT, [Entry("first", "First", url + "/1")], 1_000.0)


async def publish(store: Store, channel: Channel, *keys: str, base: int = 1, node: str = "a" * 40) -> Delta:
    """Adopt the channel and add entries to it as one version."""
    (state,) = await store.channels.adopt([channel.id], node)
    assert state is not None
    changes = tuple(Change("addition", Entry(key, f"Entry {key}", f"https://example.org/{key}")) for key in keys)
    delta = Delta(channel.id, base, 0, 2_000.0, changes)
    return await store.channels.publish(delta, SNAPSHOT, state.epoch, silent=False)
