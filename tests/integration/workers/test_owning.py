"""A node's own channels, whatever other nodes believe to own."""

import pytest

from service.clock import SystemClock
from service.corona.events import Event, PublishRefused
from service.model import Change, Delta, Entry
from service.store import Store, keys
from tests.support.channels import SNAPSHOT, make_channel
from tests.support.waiting import until_so
from workers.owning import Owning
from workers.tasks import Tasks

ALICE = "alice@localhost"
US, OTHER = "a" * 40, "b" * 40


@pytest.mark.parametrize("adopted_meanwhile", [True, False])
async def test_a_fan_out_that_another_owner_interrupts_is_asked_for_again(
    store: Store, *, adopted_meanwhile: bool
) -> None:
    """The other may have been wrong about the ring, or be dead by now: whoever owns the channel has to find out."""
    happened: list[Event] = []

    async def note(*events: Event) -> None:
        happened.extend(events)

    tasks = Tasks()
    owning = Owning(US, store, clock=SystemClock(), happened=note, tasks=tasks)
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ALICE, channel.id)
    (state,) = await store.channels.adopt([channel.id], US)
    assert state is not None
    owning._epochs[channel.id] = state.epoch
    delta = Delta(channel.id, 1, 0, 2_000.0, (Change("addition", Entry("x")),))
    await store.channels.publish(delta, SNAPSHOT, state.epoch, silent=False)
    if adopted_meanwhile:
        await store.channels.adopt([channel.id], OTHER)
    owning._fan_out_soon(channel.id)
    await until_so(lambda: not tasks._running, "the fan-out has ended")
    assert happened == ([PublishRefused(channel.id)] if adopted_meanwhile else [])
    assert await store.outbox.waiting() == ([] if adopted_meanwhile else [keys.user_id(ALICE)])
