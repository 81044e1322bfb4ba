"""The fleet at a glance."""

from aiohttp import web

from service.console.attention import Overview, needs_attention
from service.console.poll_rate import PollRate
from service.console.site import POLL_RATE, STORE, render
from service.store import Store
from service.store.keys import REGISTRY_BUCKETS

_COUNTED_AT_ONCE = 1_000


async def overview(store: Store, poll_rate: PollRate) -> Overview:
    """Return the fleet in numbers. Raises :class:`StoreUnavailable`."""
    nodes = len(await store.ring.view())
    ids = await store.channels.registered(REGISTRY_BUCKETS)
    subscriptions = 0
    for start in range(0, len(ids), _COUNTED_AT_ONCE):
        subscriptions += sum(await store.subscriptions.counts(ids[start : start + _COUNTED_AT_ONCE]))
    waiting = await store.outbox.depth()
    rates = poll_rate.per_minute()
    return Overview(
        nodes=nodes,
        channels=len(ids),
        subscriptions=subscriptions,
        users=await store.users.count(),
        outbox_users=waiting,
        polls_per_minute=rates,
        attention=needs_attention(nodes=nodes, channels=len(ids), outbox_users=waiting, polls_per_minute=rates),
    )


async def page(request: web.Request) -> web.Response:
    """Show the fleet in numbers and what needs attention."""
    fleet = await overview(request.app[STORE], request.app[POLL_RATE])
    return render(request, "overview.html", fleet=fleet)
