"""What people say waits to be stored, within bounds that nobody can use up for all others."""

from typing import Any, cast

from bots.hearing import Hearing
from bots.link import Said
from service.clock import SystemClock


def test_no_server_fills_the_queue_with_addresses_that_it_invents() -> None:
    nothing = cast("Any", None)
    hearing = Hearing(nothing, nothing, nothing, desk=nothing, orders=nothing, clock=SystemClock())
    senders = [f"{number}@{number % 7}.invented.example" for number in range(12_000)]
    for jid in (*senders, "alice@home.example"):
        hearing.said(Said(jid, f"{jid}/phone", "1", "list", "", wants_receipt=False))
    waiting = [each.jid for each in hearing._said]
    assert waiting == [*senders[:5_000], "alice@home.example"]
