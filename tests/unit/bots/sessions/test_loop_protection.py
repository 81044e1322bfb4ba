"""Protection against endless loops of two programs."""

from bots.dialogue.reply import CommandOutcome, Reply
from bots.i18n.translator import get_translator
from bots.sessions.loop_protection import MAX_MISUNDERSTOOD, LoopProtection
from service.clock import SystemClock

NONSENSE = Reply("I don't understand that.", CommandOutcome.MISUNDERSTOOD)
ENGLISH = get_translator("en")


def texts(protection: LoopProtection, *replies: Reply, occupant: str = "") -> list[str]:
    return [protection.filter_reply("alice@example.org", occupant, reply, ENGLISH).text for reply in replies]


def test_after_a_notice_the_bot_is_silent_until_the_next_command() -> None:
    protection, done = LoopProtection(SystemClock()), Reply("Done.")
    *answered, notice, silent = texts(protection, *[NONSENSE] * (MAX_MISUNDERSTOOD + 1))
    assert answered == [NONSENSE.text] * (MAX_MISUNDERSTOOD - 1)
    assert "I'll be quiet" in notice
    assert silent == ""
    assert texts(protection, done, NONSENSE) == [done.text, NONSENSE.text]


def test_each_occupant_of_a_room_is_counted_separately() -> None:
    protection = LoopProtection(SystemClock())
    texts(protection, *[NONSENSE] * (MAX_MISUNDERSTOOD + 1), occupant="parrot")
    assert texts(protection, NONSENSE, occupant="alice") == [NONSENSE.text]
