"""The fleet at a glance."""

from aiohttp import web

from service.console.attention import Overview, needs_attention
from service.console.poll_rate import polls_per_minute, silence_s
from service.console.site import CLOCK, SETTINGS, STORE, render
from service.settings import Settings
from service.store import Store
from service.store.channels import POLLS_KEPT
from service.store.keys import REGISTRY_BUCKETS

_COUNTED_AT_ONCE = 1_000
_SAMPLED = 250


async def overview(store: Store, settings: Settings, now_s: float) -> Overview:
    """Return the fleet in numbers. Raises :class:`StoreUnavailable`."""
    nodes = len(await store.ring.view())
    ids = await store.channels.registered(REGISTRY_BUCKETS)
    subscriptions = 0
    for start in range(0, len(ids), _COUNTED_AT_ONCE):
        subscriptions += sum(await store.subscriptions.counts(ids[start : start + _COUNTED_AT_ONCE]))
    waiting = await store.outbox.depth()
    # Ids are hashes of URLs, so that the first ones are as good a sample as any.
    sample = await store.channels.polls_of(ids[:_SAMPLED], POLLS_KEPT)
    rates = polls_per_minute(sample, POLLS_KEPT, len(ids), now_s)
    return Overview(
        nodes=nodes,
        channels=len(ids),
        subscriptions=subscriptions,
        users=await store.users.count(),
        outbox_users=waiting,
        polls_per_minute=rates,
        attention=needs_attention(
            nodes=nodes,
            subscriptions=subscriptions,
            outbox_users=waiting,
            polls_per_minute=rates,
            silence_s=silence_s(sample, now_s),
            poll_interval_s=max(settings.poll_interval_s, 3600 / settings.max_polls_per_hour),
        ),
    )


async def page(request: web.Request) -> web.Response:
    """Show the fleet in numbers and what needs attention."""
    fleet = await overview(request.app[STORE], request.app[SETTINGS], request.app[CLOCK].wall_s())
    return render(request, "overview.html", fleet=fleet)
