"""Content for every page of the console."""

import time

from service.corona.fleet_policy import ChannelBounds, FleetObjective, Goal
from service.feeds.canonical_urls import channel_id
from service.feeds.entries.duplicate_articles import hash_version
from service.feeds.opml_writer import OpmlDocument
from service.model import Change, Channel, Entry, PollResult, Validators
from service.store import Store
from service.store.channels.channel_records import Snapshot
from service.store.client import keys
from service.store.coordination.host_blocklist import HostBlock
from service.store.delivery.announcements import Announcement
from tests.support.channels import change, make_channel, polled, register_names

HOSTILE = "<script>document.title = 'taken over'</script><img src=x onerror=alert(1)>"


async def fill_every_page(store: Store) -> list[str]:
    """Fill the store so that every page has content; return the paths of all pages."""
    now_s = time.time()
    good = await make_channel(store, "https://example.org/feed", listed=True)
    failing = await make_channel(store, "https://example.net/" + "long" * 60, listed=True)
    hostile = Channel(channel_id("https://example.com/x"), "https://example.com/x", created_s=now_s, listed=True)
    await store.channels.create(
        hostile, Snapshot(Validators(), b"", HOSTILE, ""), [Entry("k", HOSTILE, "", HOSTILE)], 1.0
    )
    await polled(store, good.id, PollResult("0" * 40, now_s - 5, "new", 200, "", 0.2, 4096))
    await polled(store, good.id, PollResult("0" * 40, now_s, "unchanged", 304))
    await polled(store, failing.id, PollResult("0" * 40, now_s, "bad-status", 404, HOSTILE + "x" * 300))
    edited = Change("replacement", Entry("first", "First", "https://example.org/1", "Said twice"), before="Said once")
    await store.subscriptions.subscribe("bob@example.org", good.id)
    added = Change("addition", Entry("two", HOSTILE, summary=HOSTILE, published=now_s - 60))
    delta = await change(store, good, edited, added)
    await register_names(store, [(good.id, 1), (failing.id, 0), (hostile.id, 0)])
    await store.admin_settings.set_tags([(good.id, ["daily"])])
    await store.admin_settings.pause([hostile.id], 7200.0)
    await store.poll_bounds.set(good.id, ChannelBounds(shortest_interval_s=600.0), by="ada")
    await store.subscriptions.subscribe("eve@example.org", failing.id)
    await store.people.set_suspended(keys.user_id("eve@example.org"), suspended=True)
    await store.fleet_policy.set(FleetObjective(goal=Goal.FAIR), by="ada")
    bob = keys.user_id("bob@example.org")
    await store.outbox.enqueue([bob], good.id, delta.version, now_s, hash_version(delta))
    batches = await store.outbox.claim([bob], 10, now_s)
    await store.outbox.move_to_dead_letters(bob, batches[bob].message_id, HOSTILE)
    await store.redis.call("XADD", keys.DEAD_LETTERS, "*", "why", HOSTILE)
    await store.blocked_hosts.add("news.example.org", HostBlock("ada", now_s, HOSTILE))
    await store.blocked_user_domains.add("spam.example", HostBlock("ada", now_s, HOSTILE))
    announcement = Announcement(1, HOSTILE, "all", "ada", now_s, 1.0)
    assert await store.announcements.start(announcement, [bob])
    imported = await store.console_imports.start(OpmlDocument((), (HOSTILE,)))
    await store.console_imports.end(imported)
    what_if = "goal=lite&longest_wait_s=1+h&demand_factor=1&delay_s=60&budget_polls_per_minute=9"
    return [
        *("/", "/channels", "/channels?state=failing&sort=-subscribers", "/channels?q=nowhere", "/channels/add"),
        *(f"/channels/{good.id}", f"/channels/{hostile.id}", f"/channels/{good.id}/versions"),
        *(f"/channels/{good.id}/content", f"/channels/{failing.id}", "/api"),
        *(f"/channels/{good.id}/remove", "/policy", f"/policy?{what_if}", "/policy?goal=x", "/hosts"),
        *("/hosts/example.org", "/nodes", "/shards", "/directory", "/directory?q=lang%3Den", "/directory/discover"),
        *("/people", "/blocked-domains", "/announcements", f"/imports/{imported}"),
        *(f"/people/{bob}", f"/people/{bob}/forget", "/delivery", "/settings", "/log", "/about", "/nowhere"),
    ]
