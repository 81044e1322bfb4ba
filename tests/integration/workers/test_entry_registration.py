"""Entries of public channels are found by their present text for three days, and no longer than they are public."""

import time
from datetime import date

import pytest
from msgspec import structs

from service.clock import SystemClock
from service.discovery.queries.query_parser import parse_query
from service.discovery.search_candidates import require_all
from service.errors import StoreUnavailable
from service.model import Change, Channel, Entry
from service.search.entry_registration import remove_channel
from service.search.searcher import Searcher
from service.store import Store
from service.store.channels.public_entries import WINDOW_S, entry_name
from service.store.client import keys
from service.store.directory.matrix_directory import ContentName
from service.store.directory.vocabulary_store import SHARDS, StoredVocabulary
from tests.support.channels import change, make_channel
from workers.ownership.directory_registration import DirectoryRegistrar
from workers.ownership.fanout import FanOut

SNAKES = Entry("a", "On snakes", "https://example.org/a", tags=("Reptiles",))
CRABS = Entry("b", "On crabs", "https://example.org/b", tags=("Crustaceans",))
SHAKES = Entry("c", "On shakes", "https://example.org/c")
EDITED = Entry("a", "On turtles", "https://example.org/a", tags=("Shells",))


async def public_channel(store: Store, url: str = "https://example.org/feed", subscribers: int = 3) -> Channel:
    channel = await make_channel(store, url)
    for number in range(subscribers):
        await store.subscriptions.subscribe(f"reader{number}@localhost", channel.id)
    return channel


async def fan_out(store: Store, channel: Channel) -> None:
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    assert await FanOut(store, 3).run(channel.id, state.epoch)


async def publish(store: Store, channel: Channel, *changes: Change, base: int = 1, age_s: float = 0.0) -> None:
    await change(store, channel, *changes, base=base, detected_s=time.time() - age_s)
    await fan_out(store, channel)


async def upkeep(store: Store, *channels: Channel, registrar: DirectoryRegistrar | None = None) -> DirectoryRegistrar:
    """Run one round of upkeep of an owner of these channels, a new one if none is given."""
    registrar = registrar or DirectoryRegistrar(store, SystemClock(), 3)
    counts = await store.channel_index.count([channel.id for channel in channels])
    await registrar.schedule_changed([(channel.id, count) for channel, count in zip(channels, counts, strict=True)])
    await registrar.register_due()
    return registrar


async def titles(store: Store, pair: str) -> list[str]:
    found = await Searcher(store, 3).find(parse_query(f"type=entry {pair}", date(2026, 11, 1)))
    return [hit.entry.title for hit in found.hits if hit.entry]


async def registered(store: Store, pair: str) -> int:
    """Return the number of names that the directory has under an AV-pair, whether or not they may be shown."""
    return len((await store.entry_directory.find(require_all([pair]), (), 100)).names)


async def lose_directory(store: Store) -> None:
    """Delete all cells of the directory, as a failed Redis would."""
    for key in await store.redis.call("KEYS", "cn:{m*"):
        await store.redis.call("DEL", key)


async def test_an_edited_entry_is_found_by_its_present_text_only(store: Store) -> None:
    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES), Change("addition", CRABS))
    assert await titles(store, "tag=reptiles") == ["On snakes"]
    await publish(store, channel, Change("replacement", EDITED), base=2)
    assert await titles(store, "tag=reptiles") == []
    assert await registered(store, "tag=reptiles") == 0
    assert await titles(store, "tag=shells") == ["On turtles"]
    assert sorted(await titles(store, "host=example.org")) == ["On crabs", "On turtles"]


async def test_a_reverted_edit_restores_the_registered_text(store: Store) -> None:
    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES), age_s=3600.0)
    await publish(store, channel, Change("replacement", EDITED), base=2, age_s=1800.0)
    await publish(store, channel, Change("replacement", SNAKES), base=3)
    assert await titles(store, "tag=shells") == []
    assert await titles(store, "host=example.org") == ["On snakes"]


async def test_a_repeated_fan_out_changes_nothing(store: Store) -> None:
    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES))
    await publish(store, channel, Change("replacement", EDITED), base=2)
    before = await store.public_entries.tables([channel.id])
    (state,) = await store.channels.states([channel.id])
    assert state is not None
    await store.channels.record_fanout(channel.id, state.epoch, 1, "")
    await fan_out(store, channel)
    assert await store.public_entries.tables([channel.id]) == before
    assert await titles(store, "host=example.org") == ["On turtles"]


async def test_an_entry_is_not_found_by_a_pair_that_it_does_not_have(store: Store) -> None:
    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES))
    name = ContentName(entry_name(channel.id, SNAKES.key), {"tag=rust": 1})
    await store.entry_directory.register([name], time.time() + 600.0)
    assert await registered(store, "tag=rust") == 1
    assert await titles(store, "tag=rust") == []


async def test_a_word_of_a_document_is_not_misspelt_although_the_vocabulary_lacks_it(store: Store) -> None:
    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES), Change("addition", SHAKES))
    await store.redis.call("DEL", *(keys.vocabulary("entry", shard) for shard in range(SHARDS)))
    await StoredVocabulary(store.redis, "entry").add({"shakes": "shake"})
    assert await titles(store, "snakes") == ["On snakes"]
    assert await titles(store, "shbkes") == ["On shakes"]


async def test_an_entry_is_found_for_three_days(store: Store) -> None:
    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES), age_s=WINDOW_S + 1.0)
    await publish(store, channel, Change("addition", CRABS), base=2, age_s=WINDOW_S - 60.0)
    await publish(store, channel, Change("replacement", EDITED), base=3)
    await upkeep(store, channel)
    assert await titles(store, "host=example.org") == ["On crabs"]
    assert await registered(store, "host=example.org") == 1


async def test_lines_of_pages_and_earlier_entries_are_not_registered(store: Store) -> None:
    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES, line=7))
    await upkeep(store, channel)
    assert await titles(store, "host=example.org") == []


async def test_the_entries_of_a_channel_are_found_once_it_is_public(store: Store) -> None:
    channel = await public_channel(store, subscribers=2)
    await publish(store, channel, Change("addition", SNAKES), Change("addition", CRABS))
    await publish(store, channel, Change("replacement", EDITED), base=2)
    registrar = await upkeep(store, channel)
    assert await registered(store, "host=example.org") == 0
    await store.subscriptions.subscribe("third@localhost", channel.id)
    await upkeep(store, channel, registrar=registrar)
    assert sorted(await titles(store, "host=example.org")) == ["On crabs", "On turtles"]


@pytest.mark.parametrize("owner", ["same", "another"])
async def test_entries_are_withdrawn_when_their_channel_becomes_private(store: Store, owner: str) -> None:
    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES))
    registrar = await upkeep(store, channel)
    await store.subscriptions.unsubscribe("reader0@localhost", channel.id)
    assert await titles(store, "tag=reptiles") == [], "before any worker looked again"
    await upkeep(store, channel, registrar=registrar if owner == "same" else None)
    assert await registered(store, "tag=reptiles") == 0
    assert await store.public_entries.tables([channel.id]) == [None]


async def test_entries_are_withdrawn_when_an_admin_no_longer_lists_their_channel(store: Store) -> None:
    channel = await make_channel(store)
    await store.channels.set_listed(channel.id, listed=True)
    await publish(store, channel, Change("addition", SNAKES))
    registrar = await upkeep(store, channel)
    assert await titles(store, "tag=reptiles") == ["On snakes"]
    await store.channels.set_listed(channel.id, listed=False)
    assert await titles(store, "tag=reptiles") == []
    await upkeep(store, channel, registrar=registrar)
    assert await registered(store, "tag=reptiles") == 0
    assert (await store.channel_directory.find(require_all(["host=example.org"]), (), 10)).names == ()


async def test_lost_cells_and_tables_are_restored_from_the_log(store: Store) -> None:
    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES), Change("addition", CRABS))
    await publish(store, channel, Change("replacement", EDITED), base=2)
    await lose_directory(store)
    await store.redis.call("HDEL", keys.channel(channel.id), "entries")
    assert await titles(store, "host=example.org") == []
    await upkeep(store, channel)
    assert sorted(await titles(store, "host=example.org")) == ["On crabs", "On turtles"]


async def test_a_lost_entry_is_registered_again_on_its_second_day(store: Store) -> None:
    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES), age_s=30 * 3600.0)
    await publish(store, channel, Change("addition", CRABS), base=2)
    await upkeep(store, channel)
    (table,) = await store.public_entries.tables([channel.id])
    assert table is not None
    await store.public_entries.replace(channel.id, table, structs.replace(table, checked_s=table.checked_s - 90_000))
    await lose_directory(store)
    await upkeep(store, channel)
    assert await titles(store, "host=example.org") == ["On snakes"]


async def test_a_new_owner_does_not_register_entries_again(store: Store) -> None:
    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES))
    await upkeep(store, channel)
    await lose_directory(store)
    await upkeep(store, channel)
    assert await registered(store, "tag=reptiles") == 0, "the last check was less than a day ago"


@pytest.mark.parametrize(
    ("part", "step"), [("entry_directory", "register"), ("entry_directory", "withdraw"), ("public_entries", "replace")]
)
async def test_an_interrupted_registration_is_completed_by_the_next_owner(
    store: Store, monkeypatch: pytest.MonkeyPatch, part: str, step: str
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise StoreUnavailable("The owner was killed here.")

    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES))
    with monkeypatch.context() as context:
        context.setattr(getattr(store, part), step, fails)
        with pytest.raises(StoreUnavailable):
            await publish(store, channel, Change("replacement", EDITED), Change("addition", CRABS), base=2)
    assert await titles(store, "tag=crustaceans") == []
    await fan_out(store, channel)
    assert sorted(await titles(store, "host=example.org")) == ["On crabs", "On turtles"]
    assert await registered(store, "tag=reptiles") == 0
    await store.subscriptions.unsubscribe("reader0@localhost", channel.id)
    if step != "register":
        with monkeypatch.context() as context:
            context.setattr(getattr(store, part), step, fails)
            with pytest.raises(StoreUnavailable):
                await upkeep(store, channel)
    await upkeep(store, channel)
    assert await registered(store, "host=example.org") == 0


async def test_a_removed_channel_has_no_entries(store: Store) -> None:
    channel = await public_channel(store)
    await publish(store, channel, Change("addition", SNAKES))
    await upkeep(store, channel)
    await remove_channel(store, channel.id)
    assert await titles(store, "tag=reptiles") == []
    assert await registered(store, "tag=reptiles") == 0
    assert (await store.channel_directory.find(require_all(["host=example.org"]), (), 10)).names == ()
