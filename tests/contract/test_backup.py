"""Backup and restoration of a store: nothing durable is lost, and what changes meanwhile keeps the guarantees."""

import asyncio
import contextlib
import gzip
import io
import os
import random
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from service.discovery.queries.saved_searches import SearchableEntry
from service.errors import StoreIdentityMismatch, UserError
from service.feeds.entries.version_parts import VersionParts
from service.feeds.opml_writer import OpmlDocument, OpmlSubscription
from service.model import Channel, Delta, Entry, Notice
from service.operations import backup
from service.operations.backup import FORMAT, BackupFileWriter, check_file
from service.operations.restore import restore_backup, seekable
from service.operations.upgrade_check import check, judge
from service.settings import Settings
from service.store import Store, open_store, opened
from service.store.backup.backup_records import BackupOrigin, ChannelRecord, KeyRecord, Record, StoredKey, UserRecord
from service.store.backup.export import StoreExport
from service.store.backup.restoration import StoreRestoration
from service.store.client import keys
from service.store.client.data_loss_guard import SCHEMA_VERSION, IdentityFile, TrustedIdentity
from service.store.client.erasure_file import ErasureFile
from service.store.client.redis_client import script_command
from service.store.directory.saved_search_store import SavedSearchMatcher
from service.tick_timer import TickTimer
from tests.contract.test_erasure import ALICE, BOB, OTHER, UID, live
from tests.support.channels import count_channels, make_channel, publish
from tests.support.redis_cluster import RedisCluster
from tests.support.waiting import until_so
from workers.ownership.fanout import FanOut

ORIGIN = BackupOrigin("fleet", 7, SCHEMA_VERSION, 0.0)

# Keys that a backup leaves out. Those in the first group are made from others when it is restored.
DERIVED = {
    *("cn:{g:XX}:channels", "cn:{g:XX}:hubs", "cn:{a}:users", "cn:{d}:waiting", "cn:{d}:unread", "cn:{i}:users"),
    *("cn:{i}:importing", "cn:{ws:B}", "cn:{ws}:log", "cn:{h:SITE}:rate", "cn:{p}:identity", "cn:{p}:restored"),
    *("cn:{clash:K}", "cn:{clash:K}:pages", "cn:{clash:K}:records", "cn:{clash:K}:channels", "cn:{clash:K}:ends"),
}
SOFT = {
    *("cn:{r}:nodes", "cn:{r}:leases", "cn:{r}:changes", "cn:{l:NAME}:holders", "cn:{l:NAME}:parts"),
    *("cn:{n:NODE}:inbox", "cn:{q:ID}", "cn:{g}:changes", "cn:{g}:numbers", "cn:{c:CID}:units", "cn:{c:CID}:budget"),
    *("cn:{c:CID}:pushes", "cn:{c:CID}:pushes:excess", "cn:{push}:of:CID", "cn:{push}:sizes", "cn:{push}:until"),
    *("cn:{clash:K}:told", "cn:{clash:K}:load", "cn:{m:B}", "cn:{m:B}:ID", "cn:{nm:B}:ABOUT", "cn:{mx}:ABOUT:sizes"),
    *("cn:{ld}:announced", "cn:{mx}:ABOUT:load", "cn:{words:ABOUT:S}", "cn:{words:ABOUT}:HOUR"),
    *("cn:{u:UID}:rate:WHAT", "cn:{a}:floor", "cn:{u:UID}:revived:L", "cn:{d}:wake", "cn:{d}:news", "cn:{d}:heard"),
    *("cn:{d}:say:SESSION", "cn:{d}:bots", "cn:{d}:asked", "cn:{d}:answers", "cn:{h:SITE}", "cn:{h:SITE}:from:EGRESS"),
    *("cn:{h:SITE}:pause", "cn:{console}:setup", "cn:{console}:links", "cn:{console}:logins"),
    *("cn:{im}:all", "cn:{im:N}", "cn:{im:N}:feeds", "cn:{im:N}:failed", "cn:{im:N}:lease"),
    *("cn:{console}:login:H", "cn:{console}:attempts:WINDOW:H", "cn:{console}:browsers:H", "cn:{console}:repeat:H"),
}


def test_each_documented_key_is_durable_or_explicitly_excluded() -> None:
    documented = set(re.findall(r"^``(cn:[^`]+)``", keys.__doc__ or "", re.MULTILINE))
    patterns = {re.sub(r"ADDRESS|SERVICE|\bN\b", "*", key): key for key in documented}
    durable = {*keys.DURABLE_KEYS, *keys.durable_user_keys("UID"), *keys.durable_channel_keys("CID")}
    durable |= {patterns[pattern] for pattern in keys.DURABLE_PATTERNS}
    assert documented - DERIVED - SOFT == durable, (
        "state for each new key whether a backup needs it (keys.DURABLE_KEYS)"
    )


@contextlib.asynccontextmanager
async def opened_without_check(settings: Settings) -> AsyncIterator[Store]:
    store = open_store(settings, is_guarded=False)
    try:
        yield store
    finally:
        await store.close()


@pytest_asyncio.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    """An open store that is used while it is being restored."""
    async with opened_without_check(settings) as store:
        yield store


async def back_up(store: Store) -> list[Record]:
    return [record async for record in StoreExport(store.redis).records()]


async def restore(
    store: Store, records: list[Record], erased: dict[str, int] | None = None, origin: BackupOrigin = ORIGIN
) -> None:
    """Delete everything and write the records, a few at a time."""
    writer = StoreRestoration(store)
    await writer.begin()
    for first in range(0, len(records), 3):
        await writer.write(records[first : first + 3])
    await writer.finish(origin, erased or {})


async def durable_values(store: Store) -> dict[str, tuple[bytes, bytes, list[bytes]]]:
    """Return type, last id and items of each durable key of the store and of two users."""
    names = [*keys.DURABLE_KEYS, *(name for uid in (UID, OTHER) for name in keys.durable_user_keys(uid))]
    found = await store.redis.call_many([script_command("backup_read", [name]) for name in names])
    return {
        name: (kind, last_id, sorted(items)) for name, ((kind, _, last_id, items),) in zip(names, found, strict=True)
    }


async def test_a_restored_store_has_all_durable_keys_and_all_indexes(store: Store) -> None:
    channels = [await make_channel(store, f"https://example.org/{number}") for number in range(3)]
    await live(store, ALICE, channels)
    await live(store, BOB, channels[:2])
    listed = OpmlDocument((OpmlSubscription("https://example.com/f"),), ("Line 2: names no feed.",))
    await store.user_imports.add(ALICE, listed, "bot@localhost")
    await store.redis.call("SET", keys.home_address(UID), "bot@localhost")
    await store.request_budgets.set_site_rate("example.org", 0.5)
    await store.admin_settings.pause([channels[0].id], 1000.0)
    before = await durable_values(store)
    records = await back_up(store)
    await restore(store, records)
    assert await durable_values(store) == before
    assert await store.channel_index.count([channel.id for channel in channels]) == [2, 2, 1]
    assert set(await store.outbox.waiting_users()) == {UID, OTHER}
    assert await count_channels(store) == 3
    assert await store.request_budgets.site_rate("example.org") == 0.5
    assert await store.user_imports.users("bot@localhost") == [UID]
    (found,) = await SavedSearchMatcher(store.saved_searches).match([SearchableEntry(Entry("k", "a brown fox", ""))])
    assert {search.partition("/")[0] for search in found} == {UID, OTHER}
    assert await store.subscription_intents.replay() == 0
    assert await store.redis.call("EXISTS", keys.RESTORED_FANOUT) == 0
    assert (await store.subscriptions.subscribe(ALICE, channels[0].id))[1] is False
    assert await store.subscriptions.unsubscribe(BOB, channels[0].id)
    assert await store.subscriptions.count(channels[0].id) == 1


async def test_a_restored_empty_outbox_does_not_reuse_message_ids(store: Store) -> None:
    channel = await make_channel(store)
    await live(store, ALICE, [channel, channel])
    await store.redis.call("XADD", keys.outbox(UID), "99999999999999-5", "c", channel.id)
    await store.redis.call("XTRIM", keys.outbox(UID), "MAXLEN", 0)
    await restore(store, await back_up(store))
    assert await store.redis.call("XADD", keys.outbox(UID), "*", "c", channel.id) == b"99999999999999-6"


class _World:
    """A store with users and channels, in which versions are published and queued while a backup is read."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)  # noqa: S311 - a test's own randomness
        self.fan_out = FanOut(store, 3)
        self.channels: list[Channel] = []
        self.versions: dict[str, int] = defaultdict(lambda: 1)
        self.delivered: dict[str, list[tuple[str, int]]] = defaultdict(list)
        """What each user was sent before the user's keys were read, by user id: channel and version."""

    async def prepare(self) -> None:
        for number in range(2):
            self.channels.append(await make_channel(self.store, f"https://example.org/{number}"))
        for number in range(5):
            for channel in self.channels:
                await self.store.subscriptions.subscribe(f"user{number}@localhost", channel.id)

    async def step(self, read: set[str]) -> None:
        """Publish, queue for some or all, or deliver. Users in ``read`` are in the backup already."""
        channel = self.random.choice(self.channels)
        what = self.random.random()
        if what < 0.4:
            base = self.versions[channel.id]
            delta = await publish(self.store, channel, f"{channel.id[:4]}-{base}", base=base)
            self.versions[channel.id] = delta.version
            if self.random.random() < 0.5:  # the owner dies after a part of the users
                (state,) = await self.store.channels.states([channel.id])
                assert state is not None
                some = [keys.user_id(f"user{number}@localhost") for number in range(5) if self.random.random() < 0.5]
                for version in range(state.fanned_version + 1, delta.version + 1):
                    await self.store.outbox.enqueue(some, channel.id, version, 5.0, VersionParts())
        elif what < 0.7:
            (state,) = await self.store.channels.adopt([channel.id], "b" * 40)
            assert state is not None
            await self.fan_out.run(channel.id, state.epoch)
        else:
            await self.deliver(keys.user_id(f"user{self.random.randrange(5)}@localhost"), read)

    async def deliver(self, uid: str, read: set[str]) -> None:
        batches = await self.store.outbox.claim([uid], 3, 6.0)
        for owner, batch in batches.items():
            if owner not in read:
                self.delivered[owner] += [(item.channel, item.version) for item in batch.items]
            await self.store.outbox.complete(acked=[(owner, batch.message_id)], done=[(owner, batch.message_id)])


@pytest.mark.parametrize("seed", range(6))
async def test_versions_published_during_a_backup_are_queued_once_and_in_order(store: Store, seed: int) -> None:
    world = _World(store, seed)
    await world.prepare()
    read = set[str]()
    for _ in range(5):
        await world.step(read)

    class InterruptedReader(StoreExport):
        async def _read_groups(self, groups: Sequence[list[str]]) -> list[list[StoredKey]]:
            found = []
            for group in groups:
                found += await super()._read_groups([group])
                read.update(re.findall(r"^cn:\{u:(.+)\}$", group[0]))
                await world.step(read)
            return found

    await restore(store, [record async for record in InterruptedReader(store.redis).records()])
    for channel in world.channels:
        (state,) = await store.channels.adopt([channel.id], "c" * 40)
        assert state is not None
        await world.fan_out.run(channel.id, state.epoch)
    for uid in sorted(read):
        while await store.outbox.waiting_users() and (batches := await store.outbox.claim([uid], 50, 6.0)):
            world.delivered[uid] += [(item.channel, item.version) for item in batches[uid].items]
        for channel in world.channels:
            (state,) = await store.channels.states([channel.id])
            assert state is not None
            versions = [version for cid, version in world.delivered[uid] if cid == channel.id]
            assert versions == list(range(2, state.channel.version + 1)), (seed, uid, channel.url)


async def test_subscribers_of_a_moved_channel_who_were_read_before_the_move_are_moved_again(store: Store) -> None:
    old = await make_channel(store, "https://example.org/old")
    await store.subscriptions.subscribe(ALICE, old.id)
    records = await back_up(store)
    (moved,) = await move(store, old)
    users = [record for record in records if isinstance(record, UserRecord)]
    later = [record for record in await back_up(store) if not isinstance(record, UserRecord)]
    await restore(store, users + later)
    (state,) = await store.channels.states([old.id])
    assert state is not None
    assert not state.channel.dormant
    await store.channel_moves.carry_out(state, 3_000.0)
    assert [held.channel for held in await store.subscriptions.of_user(ALICE)] == [moved]


async def move(store: Store, old: Channel) -> list[str]:
    """Move a channel with all its subscribers, and return the id of its successor."""
    url = "https://example.org/new"
    (state,) = await store.channels.adopt([old.id], "a" * 40)
    assert state is not None
    notice = Delta(old.id, 1, 0, 2_000.0, (), notice=Notice("moved", url))
    await store.channels.publish(notice, None, state.epoch, silent=False)
    await store.channels.record_fanout(old.id, state.epoch, 2, "")
    (state,) = await store.channels.states([old.id])
    assert state is not None
    await store.channel_moves.carry_out(state, 3_000.0)
    return [state.channel.moved_to]


async def test_people_erased_after_the_backup_are_not_restored(store: Store) -> None:
    channel = await make_channel(store)
    for jid in (ALICE, BOB):
        await store.subscriptions.subscribe(jid, channel.id)
    records, origin = await back_up(store), await StoreExport(store.redis).origin()
    await store.erasure.erase(ALICE)
    erased = {UID: int(origin.began_s) + 1, OTHER: int(origin.began_s) - 1}  # Bob came back before the backup
    await restore(store, records, erased, origin)
    assert [held.channel for held in await store.subscriptions.of_user(BOB)] == [channel.id]
    assert await store.redis.call("HLEN", keys.user_index(UID)) == 0
    assert await store.subscriptions.count(channel.id) == 1
    assert await store.redis.call("EXISTS", keys.user(UID)) == 0


@pytest.fixture
def machine(clean_redis: str, tmp_path: Path) -> Settings:
    """Settings of a machine whose programs have an identity file."""
    return Settings(redis_url=clean_redis, store_identity_file=str(tmp_path / "identity.json"))


def yes(_: str) -> bool:
    return True


async def saved(settings: Settings) -> io.BytesIO:
    file = io.BytesIO()
    await backup.back_up(settings, file)
    return file


async def test_a_file_that_was_cut_off_or_altered_is_refused_before_anything_is_written(machine: Settings) -> None:
    async with opened(machine) as store:
        channel = await make_channel(store)
        await store.subscriptions.subscribe(ALICE, channel.id)
        content = (await saved(machine)).getvalue()
        plain = gzip.decompress(content)
        altered = plain.replace(b"alice@localhost", b"mallo@localhost")
        assert altered != plain
        cut = [content[:size] for size in range(0, len(content), 97)]
        wrong = [gzip.compress(plain[:size]) for size in range(0, len(plain), 97)]
        for bad in (*cut, *wrong, gzip.compress(altered), gzip.compress(plain + plain), b"nothing", content + b"x" * 9):
            with pytest.raises(UserError):
                await restore_backup(machine, io.BytesIO(bad), replace=True, confirm=yes)
        assert [held.channel for held in await store.subscriptions.of_user(ALICE)] == [channel.id]


async def test_a_store_with_data_is_replaced_only_if_that_was_confirmed(machine: Settings) -> None:
    async with opened(machine) as store:
        channel = await make_channel(store)
        file = await saved(machine)
        await store.subscriptions.subscribe(ALICE, channel.id)
        with pytest.raises(UserError, match="not empty"):
            await restore_backup(machine, file, replace=False, confirm=yes)
        with pytest.raises(UserError, match="Nothing was changed"):
            await restore_backup(machine, file, replace=True, confirm=lambda _: False)
        assert await store.subscriptions.count(channel.id) == 1
        await store.redis.call("SET", "other:key", "of another program")
        assert "Restored the backup" in await restore_backup(machine, file, replace=True, confirm=yes)
        assert await store.subscriptions.count(channel.id) == 0
        assert await store.redis.call("GET", "other:key") == b"of another program"


async def test_a_store_that_programs_use_is_not_replaced(machine: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.operations.restore._STOP_TIMEOUT_S", 0.6)
    async with opened(machine) as store:
        file = await saved(machine)
        me = await store.ring.join("worker-7", "", 60.0, lambda _: "a" * 40)
        await store.partition_leases.heartbeat("bot@localhost", "bot-process-1", 8, 60.0)
        with pytest.raises(UserError, match="worker worker-7, bot bot-process-1"):
            await restore_backup(machine, file, replace=True, confirm=yes)
        await store.ring.leave(me)
        await store.partition_leases.release("bot@localhost", "bot-process-1")
        await store.identity.refresh()
        with pytest.raises(UserError, match="such as the console"):
            await restore_backup(machine, file, replace=True, confirm=yes)


async def test_programs_that_used_a_newer_store_accept_a_restored_one(machine: Settings) -> None:
    async with opened(machine) as store:
        await store.identity.refresh()
        await make_channel(store)
        file = await saved(machine)
        identity = IdentityFile(Path(machine.store_identity_file))
        seen = store.redis.guard.trusted
        identity.write(TrustedIdentity(seen.fleet, 1_000, seen.at_ms + 50))
        await store.redis.call("FLUSHALL")
        await restore_backup(machine, file, replace=False, confirm=yes)
    other_machine = Settings(redis_url=machine.redis_url)
    for settings in (machine, other_machine):
        async with opened(settings) as store:
            await store.identity.refresh()
            store.identity.check()
            assert await count_channels(store) == 1


async def test_no_program_uses_a_store_whose_restoration_was_interrupted(machine: Settings) -> None:
    async with opened(machine) as store:
        await StoreRestoration(store).begin()
    with pytest.raises(StoreIdentityMismatch, match="coronet restore --replace"):
        async with opened(machine) as store:
            await count_channels(store)


async def test_erased_people_are_not_restored_after_an_interrupted_restoration(
    store: Store, settings: Settings
) -> None:
    await store.subscriptions.subscribe(ALICE, (await make_channel(store)).id)
    file = await saved(settings)
    await store.erasure.erase(ALICE)
    erased = await store.redis.call("ZSCORE", keys.ERASED_USERS, UID)
    earlier = KeyRecord(StoredKey(keys.ERASED_USERS, "zset", 0, "", [UID.encode(), b"7"]))
    writer = StoreRestoration(store)
    await writer.begin()
    await writer.write([earlier])
    assert await store.redis.call("ZSCORE", keys.ERASED_USERS, UID) == erased
    assert "Erased again" in await restore_backup(settings, file, replace=True, confirm=yes)
    assert await store.redis.call("EXISTS", keys.user(UID)) == 0


def content_of(*records: Record) -> io.BytesIO:
    file = io.BytesIO()
    writer = BackupFileWriter(file, "9", ORIGIN)
    for record in records:
        writer.add(record)
    writer.finish()
    file.seek(0)
    return file


@pytest.mark.parametrize(
    "record",
    [
        KeyRecord(StoredKey("other", "string", 0, "", [b"value"])),
        KeyRecord(StoredKey(keys.STORE_IDENTITY, "hash", 0, "", [b"refused", b""])),
        UserRecord(UID, [StoredKey(keys.user(OTHER), "hash", 0, "", [b"jid", b"a@b"])]),
        ChannelRecord("c" * 40, [StoredKey(keys.poll_results("c" * 40), "list", 0, "", [])]),
        ChannelRecord("c" * 40, []),
    ],
)
def test_a_backup_with_invalid_records_is_refused(record: Record) -> None:
    with pytest.raises(UserError, match="damaged"):
        check_file(content_of(record))


async def test_the_list_of_erased_people_outlives_the_store(machine: Settings) -> None:
    async with opened(machine) as store:
        channel = await make_channel(store)
        await store.subscriptions.subscribe(ALICE, channel.id)
        file = await saved(machine)
        await store.erasure.erase(ALICE)
        await store.identity.refresh()
        await store.redis.call("HINCRBY", keys.STORE_IDENTITY, "counter", 9)
        task = asyncio.create_task(store.identity.run(TickTimer(1.0)))
        path = ErasureFile(Path(machine.store_identity_file))
        await until_so(lambda: UID in path.read(), "the file has the erasure")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.redis.call("FLUSHALL")
        assert "Erased again" in await restore_backup(machine, file, replace=False, confirm=yes)
        assert await store.redis.call("EXISTS", keys.user(UID)) == 0


async def test_a_damaged_list_of_erased_people_does_not_stop_the_detection_of_lost_data(machine: Settings) -> None:
    path = ErasureFile(Path(machine.store_identity_file)).path
    path.write_text("no JSON", "utf-8")
    async with opened(machine) as store:
        channel = await make_channel(store)
        await store.subscriptions.subscribe(ALICE, channel.id)
        await store.erasure.erase(ALICE)
        await store.identity.refresh()
        await store.redis.call("HINCRBY", keys.STORE_IDENTITY, "counter", 9)
        task = asyncio.create_task(store.identity.run(TickTimer(1.0)))
        await until_so(Path(machine.store_identity_file).exists, "the identity is in its file")
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_restore_on_another_machine_warns_that_erasures_are_unknown(machine: Settings, tmp_path: Path) -> None:
    async with opened(machine) as store:
        await make_channel(store)
        file = await saved(machine)
        await store.identity.refresh()
        await store.redis.call("HINCRBY", keys.STORE_IDENTITY, "counter", 9)
        task = asyncio.create_task(store.identity.run(TickTimer(1.0)))
        await until_so(Path(machine.store_identity_file).exists, "the identity is in its file")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.redis.call("FLUSHALL")
    assert "No list of people" not in await restore_backup(machine, file, replace=False, confirm=yes)
    other = machine.model_copy(update={"store_identity_file": str(tmp_path / "other.json")})
    assert "No list of people" in await restore_backup(other, file, replace=True, confirm=yes)


async def test_a_backup_of_one_redis_is_restored_in_a_cluster_and_back(
    clean_redis: str, clean_cluster: RedisCluster
) -> None:
    one, cluster = Settings(redis_url=clean_redis), Settings(redis_url=clean_cluster.urls)
    async with opened(one) as store:
        channels = [await make_channel(store, f"https://example.org/{number}") for number in range(3)]
        await live(store, ALICE, channels)
        await live(store, BOB, channels[:2])
        before = await durable_values(store)
    await restore_backup(cluster, await saved(one), replace=False, confirm=yes)
    async with opened(cluster) as store:
        assert await durable_values(store) == before
        assert await store.channel_index.count([channel.id for channel in channels]) == [2, 2, 1]
    await restore_backup(one, await saved(cluster), replace=True, confirm=yes)
    async with opened(one) as store:
        assert await durable_values(store) == before


async def test_a_backup_is_read_from_a_pipe(machine: Settings) -> None:
    content = (await saved(machine)).getvalue()
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as sender:
        sender.write(content)
    with os.fdopen(reading, "rb") as pipe, seekable(pipe) as file:
        check_file(file)
        assert "Restored" in await restore_backup(machine, file, replace=True, confirm=yes)


async def test_a_backup_in_a_newer_format_is_refused_with_its_version() -> None:
    packed = msgspec.msgpack.encode(["coronet backup", FORMAT + 1, "9.0", {"other": "fields"}, 5])
    with pytest.raises(UserError, match=r"Coronet 9\.0 in format 2"):
        check_file(io.BytesIO(gzip.compress(len(packed).to_bytes(4) + packed)))


async def test_a_backup_of_newer_data_is_refused(machine: Settings) -> None:
    file = io.BytesIO()
    BackupFileWriter(file, "9.0", BackupOrigin("f", 1, SCHEMA_VERSION + 1, 1e10)).finish()
    with pytest.raises(UserError, match="does not know"):
        await restore_backup(machine, file, replace=False, confirm=yes)


async def test_data_that_requires_a_newer_program_is_refused_and_cannot_be_accepted(machine: Settings) -> None:
    async with opened(machine) as store:
        await store.identity.refresh()
        assert await store.redis.call("HMGET", keys.STORE_IDENTITY, "schema", "needs") == [b"1", b"1"]
        await store.redis.call("HSET", keys.STORE_IDENTITY, "needs", SCHEMA_VERSION + 1)
        await store.identity.refresh()
        with pytest.raises(StoreIdentityMismatch, match="newer version of Coronet"):
            await count_channels(store)
        with pytest.raises(StoreIdentityMismatch, match="newer version of Coronet"):
            await store.identity.accept()
    async with opened_without_check(machine) as store:
        assert await store.redis.call("HEXISTS", keys.STORE_IDENTITY, "refused") == 0, "newer programs use it"
    assert not (await check(machine)).ok


@pytest.mark.parametrize(
    ("stored", "stored_needs", "known", "needs", "ok", "text"),
    [
        (0, 0, 1, 1, True, "does not record"),
        (1, 1, 1, 1, True, "No migration is needed"),
        (1, 1, 2, 1, True, "A rolling restart is possible"),
        (1, 1, 2, 2, True, "A rolling restart is not possible"),
        (1, 1, 2, 2, True, "migrates the data"),
        (2, 1, 1, 1, True, "No migration is needed"),  # back to the previous version
        (2, 2, 1, 1, False, "Install a newer Coronet"),
    ],
)
def test_the_upgrade_check_compares_the_data_versions_of_store_and_program(
    *, stored: int, stored_needs: int, known: int, needs: int, ok: bool, text: str
) -> None:
    result = judge(stored, stored_needs, known, needs)
    assert result.ok == ok
    assert text in " ".join(result.lines)
