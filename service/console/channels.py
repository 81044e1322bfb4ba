"""Channels come, are listed, and go."""

from aiohttp import web

from service.console.adding import AddChannel, looked_at, previewed
from service.console.audited import DETAIL
from service.console.catalogue import existing
from service.console.failures import in_plain_words, status_of
from service.console.site import STORE, render
from service.errors import CoronetError, StoreUnavailable
from service.feeds.urls import MAX_SELECTOR_CHARS, MAX_URL_CHARS


async def add_form(request: web.Request) -> web.Response:
    """Ask for a URL; or, if one stands in the query, which part of that page is to be watched."""
    if url := request.query.get("url", "")[:MAX_URL_CHARS]:
        selector = request.query.get("selector", "")[:MAX_SELECTOR_CHARS]
        return render(request, "channel_page.html", url=url, selector=selector, chosen=True, error="")
    return render(request, "channel_add.html", url="", error="")


async def preview(request: web.Request) -> web.Response:
    """Have a worker look at a URL, and show what it read and what people would be told; nothing is kept.

    What is a page without a feed, or given as one (``as_page``), can be watched itself.
    """
    return await _look(request, keep=False)


async def keep(request: web.Request) -> web.Response:
    """Have a URL's channel polled from now on, even without subscribers."""
    return await _look(request, keep=True)


async def _look(request: web.Request, *, keep: bool) -> web.Response:
    form = await request.post()
    url, selector = (str(form.get(name, "")).strip() for name in ("url", "selector"))
    asked = AddChannel(url, form.get("as_page") == "1", selector)
    request[DETAIL] = f"{url} {selector}".strip()
    asking = "channel_page.html" if asked.as_page else "channel_add.html"
    store = request.app[STORE]
    try:
        probed = await looked_at(store, asked, keep=keep)
    except StoreUnavailable:
        raise
    except CoronetError as error:
        said = in_plain_words(error)
        return render(request, asking, status_of(error), url=url, selector=selector, chosen=asked.as_page, error=said)
    if probed.page:
        return render(request, "channel_page.html", url=url, selector="", chosen=False, error="")
    if probed.channel is None:
        return render(request, "channel_choices.html", url=url, choices=probed.choices)
    if keep:
        await store.channels.set_listed(probed.channel.id, listed=True)
        raise web.HTTPSeeOther(f"/channels/{probed.channel.id}")
    seen = await previewed(store, probed.channel, probed)
    return render(request, "channel_preview.html", asked=asked, seen=seen)


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
