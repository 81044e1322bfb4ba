"""Stored imports: each feed is counted once, nothing is lost, and one console at a time carries out an import."""

import asyncio

import pytest

from service.errors import HostNotFound, LimitReached
from service.feeds.opml_import import FailedFeed, QueuedFeed
from service.feeds.opml_writer import OpmlDocument, OpmlSubscription
from service.store import Store
from service.store.client import keys
from service.store.subscriptions.opml_imports import MAX_CONSOLE_IMPORTS, MAX_QUEUED_FEEDS, UserImports

ALICE, BOT = "alice@localhost", "bot@localhost"
UID = keys.user_id(ALICE)


def listed(count: int, first: int = 0, problems: tuple[str, ...] = ()) -> OpmlDocument:
    """Return a list of feeds, one on each line from line 1."""
    feeds = tuple(OpmlSubscription(f"https://example.org/{number}") for number in range(first, first + count))
    return OpmlDocument(feeds, problems, tuple(range(1, count + 1)))


async def counts(imports: UserImports) -> tuple[int, int, int, int]:
    progress = await imports.progress(UID)
    assert progress is not None
    assert progress.total == progress.done + progress.pending
    return progress.new, progress.existing, progress.failed, progress.pending


async def test_outcomes_are_counted_and_failures_kept_with_their_lines(store: Store) -> None:
    imports = store.user_imports
    assert await imports.progress(UID) is None
    await imports.add(ALICE, listed(3, problems=("Line 9: names no feed.",)), BOT)
    assert await imports.users(BOT) == [UID]
    assert await imports.users("another@localhost") == []
    assert await counts(imports) == (0, 0, 1, 3)
    first, second, third = await imports.pending(UID)
    assert (await imports.pending(UID))[second] == QueuedFeed("https://example.org/1", line=2)
    assert await imports.record(UID, second, HostNotFound("example.org has no address."))
    assert await imports.record(UID, third, outcome=False)
    assert await imports.record(UID, first, outcome=True)
    assert await counts(imports) == (1, 1, 2, 0)
    problem, failed = await imports.failed(UID)
    assert (problem.url, problem.fault.detail) == ("", "Line 9: names no feed.")
    assert (failed.url, failed.line, failed.fault.code) == ("https://example.org/1", 2, "host-not-found")
    await imports.end(UID, BOT)
    assert await imports.progress(UID) is None
    assert await imports.users(BOT) == []


async def test_an_outcome_is_recorded_once_even_if_two_processes_record_it(store: Store) -> None:
    imports = store.user_imports
    await imports.add(ALICE, listed(20), BOT)
    recorded = [imports.record(UID, packed, outcome=True) for packed in await imports.pending(UID) for _ in range(3)]
    assert sum(await asyncio.gather(*recorded)) == 20
    assert await counts(imports) == (20, 0, 0, 0)


async def test_a_second_list_joins_the_import_up_to_the_limit(store: Store) -> None:
    imports = store.user_imports
    await imports.add(ALICE, listed(MAX_QUEUED_FEEDS - 1), BOT)
    before = await imports.progress(UID)
    with pytest.raises(LimitReached, match="still being imported"):
        await imports.add(ALICE, listed(2, first=50_000), BOT)
    await imports.add(ALICE, listed(1, first=50_000), BOT)
    after = await imports.progress(UID)
    assert before is not None
    assert after is not None
    assert (after.pending, after.id) == (MAX_QUEUED_FEEDS, before.id)
    assert len(await imports.pending(UID)) == MAX_QUEUED_FEEDS


async def test_an_import_does_not_end_while_feeds_are_queued(store: Store) -> None:
    imports = store.user_imports
    await imports.add(ALICE, listed(1), BOT)
    await imports.end(UID, BOT)
    assert await counts(imports) == (0, 0, 0, 1)
    assert await imports.users(BOT) == [UID]


async def test_a_stopped_import_has_no_queued_feeds_and_takes_no_outcome(store: Store) -> None:
    imports = store.user_imports
    assert not await imports.stop(UID)
    assert await imports.progress(UID) is None
    await imports.add(ALICE, listed(2), BOT)
    first, _ = await imports.pending(UID)
    assert await imports.stop(UID)
    assert not await imports.has_pending(UID)
    assert not await imports.record(UID, first, outcome=True)
    assert await counts(imports) == (0, 0, 0, 0)


async def test_the_first_message_about_the_progress_is_marked_once(store: Store) -> None:
    await store.user_imports.add(ALICE, listed(1), BOT)
    assert [await store.user_imports.mark_shown(UID) for _ in range(3)] == [True, False, False]


async def test_feeds_that_the_previous_version_has_queued_are_imported(store: Store) -> None:
    old = b"\x82\xa3url\xb5https://example.org/1\xa4tags\x91\xa4News"
    await store.redis.call("HSET", keys.USERS_WITH_IMPORTS, UID, BOT)
    await store.redis.call("RPUSH", keys.pending_imports(UID), old)
    assert await store.user_imports.pending(UID) == {old: QueuedFeed("https://example.org/1")}
    assert await counts(store.user_imports) == (0, 0, 0, 1)
    assert await store.user_imports.record(UID, old, outcome=True)
    assert await counts(store.user_imports) == (1, 0, 0, 0)


async def test_one_console_at_a_time_has_the_lease_on_an_import(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.store.subscriptions.opml_imports.IMPORT_LEASE_S", 1)
    imports = store.console_imports
    assert await imports.claim() is None
    ident = await imports.start(listed(2))
    assert [each for each in await asyncio.gather(*(imports.claim() for _ in range(3))) if each] == [ident]
    await imports.renew(ident)
    assert await imports.claim() is None
    await asyncio.sleep(1.1)
    assert await imports.claim() == ident


async def test_the_result_of_an_import_is_kept_until_it_expires(store: Store) -> None:
    imports = store.console_imports
    ident = await imports.start(listed(1))
    (packed,) = await imports.pending(ident)
    await imports.record(ident, packed, LimitReached("Full."))
    await imports.end(ident)
    assert await imports.claim() is None
    (ended,) = await imports.all()
    assert (ended.id, ended.failed, ended.pending) == (ident, 1, 0)
    assert ended.ended_s >= ended.started_s
    assert isinstance((await imports.failed(ident))[0], FailedFeed)
    _, *kept = keys.console_import(ident)
    assert all([await store.redis.call("TTL", key) > 0 for key in kept])


async def test_the_number_of_imports_that_have_not_ended_is_limited(store: Store) -> None:
    idents = [await store.console_imports.start(listed(1)) for _ in range(MAX_CONSOLE_IMPORTS)]
    with pytest.raises(LimitReached, match="imports are running"):
        await store.console_imports.start(listed(1))
    await store.console_imports.end(idents[0])
    await store.console_imports.start(listed(1))


async def test_the_number_of_results_that_are_kept_is_limited(store: Store) -> None:
    for _ in range(30):
        await store.console_imports.end(await store.console_imports.start(listed(1)))
    assert 20 <= len(await store.console_imports.all()) <= 22
