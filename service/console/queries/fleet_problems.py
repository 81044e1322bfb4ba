"""Problems of the fleet that need an admin's attention: when the Overview page reports them, and in which words."""

from collections.abc import Mapping
from typing import Final

from service.console.formatting import count, is_success, outcome_label, percent

_FAILURE_ALERT_SHARE: Final = 0.2
"""If at least this share of the polls fails, a problem is shown."""
_WAITING_ALERT_USERS: Final = 100
"""If at least this number of people have undelivered messages, a problem is shown."""


def list_problems(
    *, nodes: int, outbox_users: int, polls_per_minute: Mapping[str, float], overdue: int, example: str
) -> tuple[str, ...]:
    """Return a sentence for each problem of the fleet, most urgent first; empty if there are none.

    ``nodes`` is the number of workers, and ``outbox_users`` the number of people with undelivered messages.
    ``polls_per_minute`` maps the outcomes of polls to their rates. ``overdue`` is the number of channels that have not
    been polled for three poll intervals, and ``example`` the title of one of these channels.
    """
    messages = []
    if not nodes:
        messages.append("No worker is running, so nothing is polled. Start one with “coronet worker”.")
    elif nodes == 1:
        messages.append("Only one worker is running, and none takes over if it stops. Start a second one.")
    if outbox_users >= _WAITING_ALERT_USERS:
        waiting = count(outbox_users, "person is", "people are")
        messages.append(
            f"{waiting} waiting for messages. Check that the bot is running and that its XMPP server responds."
        )
    polls = sum(polls_per_minute.values())
    failed = {outcome: rate for outcome, rate in polls_per_minute.items() if not is_success(outcome)}
    if polls and sum(failed.values()) >= _FAILURE_ALERT_SHARE * polls:
        worst = outcome_label(max(failed, key=failed.__getitem__))
        share = sum(failed.values()) / polls
        messages.append(f"{percent(share)} of the polls fail, mostly with “{worst}”. Check the failing channels.")
    if nodes and overdue:
        channels = count(overdue, "channel has", "channels have")
        messages.append(
            f"{channels} not been polled for three poll intervals, for example “{example}”. Open its page to see"
            " which worker owns it, and restart that worker."
        )
    return tuple(messages)
