"""What an admin should do something about: one sentence each, with the action. Pure."""

from collections.abc import Mapping

import msgspec

from service.console.figures import Delays
from service.console.phrases import count, duration, outcome_words, percent, went_well

_FAILING_SHARE = 0.2
_WAITING_USERS = 100


class Overview(msgspec.Struct, frozen=True):
    """The fleet in numbers. ``polls_per_minute`` is by outcome; ``budget_polls_per_minute`` is null if there is none.

    Of the last minutes: ``detection`` is from an entry's publication to its detection, ``delivery`` from there to
    the XMPP server, ``receipt`` from there to the client, where that says so; null if there was none.
    """

    nodes: int
    channels: int
    subscriptions: int
    users: int
    outbox_users: int
    polls_per_minute: dict[str, float]
    budget_polls_per_minute: float | None
    failing: int
    messages_per_minute: float
    detection: Delays | None
    delivery: Delays | None
    receipt: Delays | None
    attention: tuple[str, ...]


def needs_attention(
    *,
    nodes: int,
    subscriptions: int,
    outbox_users: int,
    polls_per_minute: Mapping[str, float],
    silence_s: float,
    poll_interval_s: float,
    unpolled: int,
    unpolled_example: str,
) -> tuple[str, ...]:
    """Return the sentences, most urgent first; empty when all is well.

    ``silence_s`` is how long ago the newest poll was, ``poll_interval_s`` the longest time between two
    polls of one channel when all goes well. ``unpolled`` channels were not polled for three times their interval, among
    them that of the name ``unpolled_example``.
    """
    said = []
    if not nodes:
        said.append("No worker runs, so nothing is polled: start one with “coronet worker”.")
    elif nodes == 1:
        said.append("Only one worker runs, and nobody takes over if it stops: start a second one.")
    if outbox_users >= _WAITING_USERS:
        waiting = count(outbox_users, "person waits", "people wait")
        said.append(f"{waiting} for messages: check that the bot runs and that its XMPP server answers.")
    polls = sum(polls_per_minute.values())
    failed = {outcome: rate for outcome, rate in polls_per_minute.items() if not went_well(outcome)}
    if polls and sum(failed.values()) >= _FAILING_SHARE * polls:
        worst = outcome_words(max(failed, key=failed.__getitem__))
        share = sum(failed.values()) / polls
        said.append(f"{percent(share)} of the polls fail, mostly with “{worst}”: look for failing channels.")
    if nodes and subscriptions and silence_s > 2 * poll_interval_s:
        said.append(f"Nothing was polled for {duration(silence_s)}: see whether the logs of the workers say why.")
    elif nodes and unpolled:
        late = count(unpolled, "channel was", "channels were")
        said.append(
            f"{late} not polled for three times their interval, for example “{unpolled_example}”: open it, see which"
            " worker owns it, and start that one again."
        )
    return tuple(said)
