"""Public channels are registered in the directory with their present pairs; private ones are not."""

import time
from collections.abc import Collection, Sequence
from datetime import date

import pytest
from msgspec import structs

from service.clock import SystemClock
from service.discovery.queries.query_parser import parse_query
from service.discovery.search_candidates import require_all
from service.feeds.canonical_urls import channel_id
from service.model import Change, Channel, Entry, FeedMetadata
from service.search.searcher import Searcher
from service.store import Store
from service.store.directory.lookup_directory_client import LookupResult
from service.store.directory.matrix_directory import ContentName
from tests.support.channels import SNAPSHOT, change, make_channel
from workers.ownership import directory_registration
from workers.ownership.directory_registration import DirectoryRegistrar

SECRET = "https://example.org/feed?token=abc"
TAGGED = Entry("b", "On snakes", tags=("Python",), authors=("Jane Doe",))


@pytest.fixture
def registrar(store: Store) -> DirectoryRegistrar:
    return DirectoryRegistrar(store, SystemClock(), 3)


async def channel_with(store: Store, subscribers: int, url: str = "https://example.org/feed") -> Channel:
    channel = await make_channel(store, url)
    for number in range(subscribers):
        await store.subscriptions.subscribe(f"reader{number}@localhost", channel.id)
    await change(store, channel, Change("addition", TAGGED))
    return channel


async def name(store: Store, registrar: DirectoryRegistrar, *channels: Channel) -> None:
    counts = await store.channel_index.count([channel.id for channel in channels])
    await registrar.schedule_changed([(channel.id, count) for channel, count in zip(channels, counts, strict=True)])
    await registrar.register_due()


async def found(store: Store, text: str) -> list[str]:
    return [hit.channel.id for hit in (await Searcher(store, 3).find(parse_query(text, date(2026, 11, 1)))).hits]


async def test_a_public_channel_is_found_by_its_pairs(store: Store, registrar: DirectoryRegistrar) -> None:
    channel = await channel_with(store, 3)
    await name(store, registrar, channel)
    for text in (
        "tag=python",
        'author="jane doe" host=example.org',
        "domain=example.org type=feed status=ok",
        "lang=en-GB feed",
    ):
        assert await found(store, text) == [channel.id], text
    assert await found(store, "tag=rust") == []


@pytest.mark.parametrize(("subscribers", "url"), [(2, "https://example.org/feed"), (5, SECRET)])
async def test_a_private_channel_is_not_found(
    store: Store, registrar: DirectoryRegistrar, subscribers: int, url: str
) -> None:
    channel = await channel_with(store, subscribers, url)
    await name(store, registrar, channel)
    assert await found(store, "host=example.org") == []
    assert (await store.channel_directory.find(require_all(["host=example.org"]), (), 10)).found == ()


async def test_an_unsubscription_can_withdraw_a_channel_at_once(store: Store, registrar: DirectoryRegistrar) -> None:
    channel = await channel_with(store, 3)
    await name(store, registrar, channel)
    await store.subscriptions.unsubscribe("reader0@localhost", channel.id)
    assert await found(store, "tag=python") == [], "before any worker looked again"
    await name(store, registrar, channel)
    assert (await store.channel_directory.find(require_all(["host=example.org"]), (), 10)).found == ()


async def test_an_admin_can_list_a_channel_but_not_one_with_a_secret(
    store: Store, registrar: DirectoryRegistrar
) -> None:
    plain, secret = await channel_with(store, 0), await channel_with(store, 0, SECRET)
    for channel in (plain, secret):
        await store.channels.set_listed(channel.id, listed=True)
    await name(store, registrar, plain, secret)
    assert await found(store, "host=example.org") == [plain.id]


async def test_the_registrar_keeps_no_state_of_private_channels(store: Store, registrar: DirectoryRegistrar) -> None:
    channel = await channel_with(store, 2)
    await name(store, registrar, channel)
    assert channel.id not in registrar._due
    assert registrar._listed == set()


async def test_a_new_owner_registers_a_bounded_number_at_a_time(
    store: Store, registrar: DirectoryRegistrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_registration, "MAX_DUE", 20)
    channels = [await channel_with(store, 3, f"https://example.org/{number}") for number in range(30)]
    await name(store, registrar, *channels)
    first = (await store.channel_directory.find(require_all(["host=example.org"]), (), 100)).found
    await name(store, registrar, *channels)
    assert (
        len(first),
        len((await store.channel_directory.find(require_all(["host=example.org"]), (), 100)).found),
    ) == (20, 30)


async def test_a_changed_channel_is_found_by_its_present_pairs(store: Store, registrar: DirectoryRegistrar) -> None:
    channel = await channel_with(store, 3)
    await name(store, registrar, channel)
    await change(store, channel, Change("addition", Entry("c", "On crabs", tags=("Rust",))), base=2)
    registrar.on_changed(channel.id)
    await name(store, registrar, channel)
    assert await found(store, "tag=rust") == [channel.id]


async def test_a_version_that_changes_no_pair_registers_nothing(
    store: Store, registrar: DirectoryRegistrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = await channel_with(store, 3)
    await name(store, registrar, channel)
    registered = list[str]()
    register = store.channel_directory.register

    async def recorded(names: Sequence[ContentName], expires_s: float) -> None:
        registered.extend(each.id for each in names)
        await register(names, expires_s)

    monkeypatch.setattr(store.channel_directory, "register", recorded)
    await change(store, channel, Change("addition", structs.replace(TAGGED, key="c", title="")), base=2)
    registrar.on_changed(channel.id)
    await name(store, registrar, channel)
    assert registered == []
    await change(store, channel, Change("addition", Entry("d", "On crabs", tags=("Rust",))), base=3)
    registrar.on_changed(channel.id)
    await name(store, registrar, channel)
    assert registered == [channel.id]


async def test_another_owner_registers_a_channel_again(store: Store, registrar: DirectoryRegistrar) -> None:
    channel = await channel_with(store, 3)
    await name(store, registrar, channel)
    await name(store, DirectoryRegistrar(store, SystemClock(), 3), channel)
    assert await found(store, "tag=python") == [channel.id]


async def test_a_channel_is_found_by_its_categories_and_generator(store: Store, registrar: DirectoryRegistrar) -> None:
    url = "https://example.org/feed"
    own = structs.replace(SNAPSHOT, metadata=FeedMetadata(("Reptiles",), "https://wordpress.org/?v=6.4"))
    await store.channels.create(Channel(channel_id(url), url, listed=True), own, [TAGGED], 1_000.0)
    await registrar.schedule_changed([(channel_id(url), 0)])
    await registrar.register_due()
    for text in ("tag=reptiles tag=python", "generator=wordpress version=6.4"):
        assert await found(store, text) == [channel_id(url)], text


async def test_an_outdated_share_in_memory_is_not_shown(
    store: Store, registrar: DirectoryRegistrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    snakes, crabs = await channel_with(store, 3), await channel_with(store, 3, "https://example.org/crabs")
    await name(store, registrar, snakes, crabs)
    await change(store, crabs, *([Change("addition", Entry(f"c{n}", tags=("Rust",))) for n in range(30)]), base=2)
    registrar.on_changed(crabs.id)
    await name(store, registrar, snakes, crabs)

    async def stale(_pairs: Collection[str], _target: int) -> LookupResult:
        return LookupResult("tag=python", (crabs.id, snakes.id), is_complete=False, answers=1, asked=1)

    monkeypatch.setattr(store.directory_lookups, "lookup", stale)
    assert await found(store, "tag=python limit 1") == [snakes.id]
    assert await found(store, "tag=python limit 2") == [snakes.id], "the matrices are asked for what is missing"
    assert await found(store, "tag=rust limit 1") == [crabs.id]
    for number in range(3):
        await store.subscriptions.unsubscribe(f"reader{number}@localhost", crabs.id)
    listing = await Searcher(store, 3).discover()
    assert [hit.channel.id for hit in listing.hits] == [snakes.id], "the share has a channel that is private now"
    assert [facet.channels for facet in (*listing.languages, *listing.topics)] == [1, 1]


async def test_an_outdated_cell_is_not_shown(store: Store, registrar: DirectoryRegistrar) -> None:
    channel = await channel_with(store, 3)
    await name(store, registrar, channel)
    await store.channel_directory.register(
        [ContentName(channel.id, dict.fromkeys({"tag=rust"}, 1))], time.time() + 600.0
    )
    assert (await store.channel_directory.find(require_all(["tag=rust"]), (), 10)).found
    assert await found(store, "tag=rust") == []
    assert await found(store, "tag=python") == [channel.id]


async def test_an_earlier_name_does_not_replace_a_later_one(store: Store, registrar: DirectoryRegistrar) -> None:
    channel = await channel_with(store, 3)
    await name(store, registrar, channel)
    await store.channels.set_content_name(channel.id, 1, ["tag=rust"])
    assert await found(store, "tag=python") == [channel.id]


async def test_private_results_do_not_hide_public_ones(store: Store, registrar: DirectoryRegistrar) -> None:
    everybodys = await channel_with(store, 3)
    await name(store, registrar, everybodys)
    others = [ContentName(f"{number:040x}", dict.fromkeys({"tag=python"}, 1)) for number in range(30)]
    await store.channel_directory.register(others, time.time() + 600.0)
    for _ in range(5):
        assert await found(store, "tag=python limit 1") == [everybodys.id]
