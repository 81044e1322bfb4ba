"""The inbound log: messages are stored once, in order, until they are answered; home addresses are remembered."""

from collections.abc import Sequence

from service.store import Store
from service.store.client import keys
from service.store.coordination.bot_messages import BotNotice
from service.store.delivery.inbound_log import MAX_UNANSWERED, TOKEN_TTL_S, InboundMessage
from tests.support.waiting import until

ALICE, BOB = "alice@localhost", "bob@localhost"
UID = keys.user_id(ALICE)
HERE, THERE = "one@feeds.localhost", "two@feeds.localhost"


async def say(store: Store, *texts: str, jid: str = ALICE, token: str = "", address: str = HERE) -> list[bool]:
    return await store.inbound_log.add([InboundMessage(jid, token, text.encode(), address) for text in texts])


async def unanswered(store: Store, *uids: str) -> Sequence[bytes]:
    return [each.payload for each in await store.inbound_log.read_unanswered(uids or (UID,))]


async def test_messages_stay_in_order_until_they_are_answered(store: Store) -> None:
    assert await say(store, "one", "two", "three") == [True, True, True]
    await say(store, "other", jid=BOB)
    assert await unanswered(store) == [b"one", b"two", b"three"]
    assert set(await store.inbound_log.unanswered_users()) == {UID, keys.user_id(BOB)}
    first, second, third = await store.inbound_log.read_unanswered([UID])
    await store.inbound_log.remove_answered([(UID, first.entry_id), (UID, third.entry_id)])
    assert await unanswered(store) == [b"two"]
    await store.inbound_log.remove_answered([(UID, second.entry_id), (UID, second.entry_id)])
    assert await store.inbound_log.unanswered_users() == [keys.user_id(BOB)]


async def test_a_message_received_by_two_bots_is_stored_once(store: Store) -> None:
    assert await say(store, "list", token="m1") == [True]
    assert await say(store, "list", token="m1") == [False]
    assert await say(store, "list", token="m2") == [True], "somebody may say the same again"
    (first, _) = await store.inbound_log.read_unanswered([UID])
    await store.inbound_log.remove_answered([(UID, first.entry_id)])
    assert await say(store, "list", token="m1") == [False], "also when it is answered"


async def test_deduplication_tokens_are_kept_until_their_ttl_expires(store: Store) -> None:
    await say(store, "list", token="m1")
    known = keys.inbound_tokens(UID)
    await store.redis.call("ZINCRBY", known, 5 - TOKEN_TTL_S, "m1")
    assert await say(store, "list", token="m1") == [False]
    assert await store.redis.call("TTL", known) > TOKEN_TTL_S - 60
    await store.redis.call("ZINCRBY", known, -10, "m1")
    await say(store, "list", token="m2")
    assert await store.redis.call("ZRANGE", known, 0, -1) == [b"m2"], "and then forgotten"


async def test_an_older_message_with_the_same_token_is_a_different_message(store: Store) -> None:
    await say(store, "list", token="m1")
    heard_s = float(await store.redis.call("ZSCORE", keys.inbound_tokens(UID), "m1"))
    same, other = (InboundMessage(ALICE, "m1", b"list", HERE, since_s) for since_s in (heard_s, heard_s + 1))
    assert await store.inbound_log.add([same, other]) == [False, True]


async def test_the_checkpoint_of_an_account_is_stored(store: Store) -> None:
    assert await store.inbound_log.caught_up_until_s(HERE) == 0.0
    await store.inbound_log.record_caught_up(HERE, 1_767_225_600.5)
    assert (await store.inbound_log.caught_up_until_s(HERE), await store.inbound_log.caught_up_until_s(THERE)) == (
        1_767_225_600.5,
        0.0,
    )


async def test_above_the_limit_the_oldest_messages_are_dropped(store: Store) -> None:
    await say(store, *(f"number {n}" for n in range(MAX_UNANSWERED + 10)))
    said = await unanswered(store)
    assert (len(said), said[0]) == (MAX_UNANSWERED, b"number 10")


async def test_replies_in_progress_are_available_to_the_next_process(store: Store) -> None:
    await say(store, "list", "help")
    first, second = await store.inbound_log.read_unanswered([UID])
    await store.inbound_log.record_reply(UID, first.entry_id, ("<message/>", "<message/>"))
    again = await store.inbound_log.read_unanswered([UID])
    assert [each.reply for each in again] == [("<message/>", "<message/>"), ()]
    await store.inbound_log.remove_answered([(UID, first.entry_id), (UID, second.entry_id)])
    assert await store.redis.call("EXISTS", keys.inbound_replies(UID)) == 0


async def test_the_home_address_is_the_first_one_used_and_is_permanent_after_admission(store: Store) -> None:
    await say(store, "hello", address=THERE)
    await say(store, "hello", address=HERE)
    assert await store.home_addresses.of_users([UID, "nobody"]) == [THERE, ""]
    assert await store.redis.call("TTL", keys.home_address(UID)) > 0
    await store.home_addresses.keep(ALICE)
    assert await store.redis.call("TTL", keys.home_address(UID)) == -1


async def test_bots_notify_each_other_of_messages(store: Store) -> None:
    after = await store.bot_messages.newest_notice_id()
    sent = [BotNotice(UID), BotNotice(UID, b"subscribe", "bot/a")]
    await store.bot_messages.notify(sent)
    notices = await store.bot_messages.read_notices(after)
    assert list(notices.values()) == sent
    assert await store.bot_messages.newest_notice_id() == list(notices)[-1]
    await store.bot_messages.remove_notices(list(notices))
    assert await store.redis.call("XLEN", keys.BOT_NOTICES) == 0


async def test_stanzas_for_another_session_are_queued_until_sent(store: Store) -> None:
    await store.bot_messages.queue_stanzas("bot/a", ["<iq id='1'/>", "<iq id='2'/>"])

    async def found() -> dict[str, str]:
        return await store.bot_messages.read_stanzas("bot/a")

    await until(found, "it is there")
    written = await found()
    assert list(written.values()) == ["<iq id='1'/>", "<iq id='2'/>"]
    await store.bot_messages.remove_stanzas("bot/a", list(written)[:1])
    assert list((await found()).values()) == ["<iq id='2'/>"]


async def test_erasure_deletes_a_users_messages(store: Store) -> None:
    await say(store, "forget me", token="m1")
    await store.bot_messages.notify([BotNotice(UID)])
    await store.erasure.erase(ALICE)
    assert [key for key in await store.redis.call("KEYS", "*") if UID.encode() in key] == []
    assert await store.inbound_log.unanswered_users() == []
    assert await store.redis.call("XLEN", keys.BOT_NOTICES) == 0
