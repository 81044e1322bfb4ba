"""Fan-out: new entries and edits are separate items, and an entry is sent by one of its channels."""

from service.model import Change, Channel, Entry
from service.store import Store
from service.store.client import keys
from service.store.delivery.outbox import OutboxItem
from tests.support.channels import change, make_channel
from workers.ownership.fanout import FanOut

ALICE = "alice@localhost"
UID = keys.user_id(ALICE)
ARTICLE = Entry("x", "An article of two feeds", "https://example.org/articles/x")


async def followed(store: Store, name: str) -> Channel:
    channel = await make_channel(store, f"https://example.org/{name}")
    await store.subscriptions.subscribe(ALICE, channel.id)
    return channel


async def fan_out_changes(store: Store, channel: Channel, *changes: Change, base: int = 1) -> None:
    """Publish a version, and fan it out twice, as after a crash."""
    await change(store, channel, *changes, base=base)
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    assert await FanOut(store, 3).run(channel.id, state.epoch)
    await store.channels.record_fanout(channel.id, state.epoch, base, "")
    assert await FanOut(store, 3).run(channel.id, state.epoch)


async def claimed(store: Store) -> list[OutboxItem]:
    """Claim Alice's next batch; return its items."""
    return [item for batch in (await store.outbox.claim([UID], 20, 5.0)).values() for item in batch.items]


async def test_new_entries_precede_the_edits_of_a_version(store: Store) -> None:
    channel = await followed(store, "a")
    await fan_out_changes(store, channel, Change("replacement", Entry("first")), Change("addition", ARTICLE))
    assert [[(item.version, item.edits) for item in await claimed(store)] for _ in range(3)] == [
        [(2, False)],
        [(2, True)],
        [],
    ]


async def test_an_entry_of_two_channels_is_sent_once_and_its_edit_by_the_same_channel(store: Store) -> None:
    one, two = await followed(store, "a"), await followed(store, "b")
    edit = Change("replacement", Entry("x", "An edited article", ARTICLE.link))
    for channel in (one, two):
        await fan_out_changes(store, channel, Change("addition", ARTICLE))
    for channel in (two, one):
        await fan_out_changes(store, channel, edit, base=2)
    told = [*await claimed(store), *await claimed(store), *await claimed(store)]
    assert [(item.channel, item.version) for item in told if not item.omitted] == [(one.id, 2), (one.id, 3)]


async def test_lines_of_pages_are_not_deduplicated(store: Store) -> None:
    one, two = await followed(store, "a"), await followed(store, "b")
    for channel in (one, two):
        await fan_out_changes(store, channel, Change("addition", ARTICLE, line=7))
    assert [item.omitted for item in await claimed(store)] == [None, None]
