"""The pages about one channel: add it, look at it, poll, list and remove it."""

from aiohttp import web

from service.console.catalogue import detail, existing
from service.console.failures import in_plain_words, status_of
from service.console.ring_svg import ring_svg
from service.console.site import STORE, render
from service.errors import CoronetError, StoreUnavailable
from service.feeds.urls import page_url


async def add_form(request: web.Request) -> web.Response:
    """Ask for a URL."""
    return render(request, "channel_add.html", url="", error="")


async def add(request: web.Request) -> web.Response:
    """Have a worker look at the URL, and show what it read before the channel is kept.

    What is a page without a feed, or given as one (``as_page``), can be watched itself.
    """
    form = await request.post()
    url, selector = (str(form.get(name, "")).strip() for name in ("url", "selector"))
    as_page = form.get("as_page") == "1"
    asking = "channel_page.html" if as_page else "channel_add.html"
    try:
        probed = await request.app[STORE].requests.probe(page_url(url, selector), as_page=as_page)
    except StoreUnavailable:
        raise
    except CoronetError as error:
        return render(request, asking, status_of(error), url=url, selector=selector, error=in_plain_words(error))
    if probed.page:
        return render(request, "channel_page.html", url=url, selector="", error="")
    return render(request, "channel_preview.html", url=url, probed=probed)


async def one(request: web.Request) -> web.Response:
    """Show one channel."""
    return await _one(request, 200, polled="polled" in request.query, error="")


async def poll(request: web.Request) -> web.Response:
    """Have the channel polled at once, then show it."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    try:
        await request.app[STORE].requests.poll_now(channel.id)
    except StoreUnavailable:
        raise
    except CoronetError as error:
        return await _one(request, status_of(error), polled=False, error=in_plain_words(error))
    raise web.HTTPSeeOther(f"/channels/{channel.id}?polled=1")


async def set_listed(request: web.Request) -> web.Response:
    """Have the channel polled even without subscribers, or not."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    listed = (await request.post()).get("listed") == "1"
    await request.app[STORE].channels.set_listed(channel.id, listed=listed)
    raise web.HTTPSeeOther(f"/channels/{channel.id}")


async def remove_form(request: web.Request) -> web.Response:
    """Say what removing would do, and ask."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    subscribers = await request.app[STORE].subscriptions.count(channel.id)
    return render(request, "channel_remove.html", channel=channel, subscribers=subscribers)


async def remove(request: web.Request) -> web.Response:
    """Remove the channel and end all subscriptions to it."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    await request.app[STORE].remove_channel(channel.id)
    raise web.HTTPSeeOther("/channels?removed=1")


async def _one(request: web.Request, status: int, *, polled: bool, error: str) -> web.Response:
    store = request.app[STORE]
    about = await detail(store, request.match_info["cid"])
    moved_to = about.channel.moved_to
    successor = await store.channels.get(moved_to) if moved_to else None
    nodes = await store.ring.view()
    names = {node.id: node.name for node in nodes}
    picture = ring_svg(nodes, about.channel.id, [node.id for node in about.polling_set])
    return render(
        request,
        "channel.html",
        status,
        about=about,
        channel=about.channel,
        successor=successor,
        names=names,
        picture=picture,
        polled=polled,
        error=error,
    )
