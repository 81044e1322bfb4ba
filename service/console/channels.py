"""Channels come, are listed, and go."""

from aiohttp import web

from service.console.catalogue import existing
from service.console.failures import in_plain_words, status_of
from service.console.site import STORE, render
from service.errors import CoronetError, StoreUnavailable
from service.feeds.urls import MAX_SELECTOR_CHARS, MAX_URL_CHARS, page_url


async def add_form(request: web.Request) -> web.Response:
    """Ask for a URL; or, if one stands in the query, which part of that page is to be watched."""
    if url := request.query.get("url", "")[:MAX_URL_CHARS]:
        selector = request.query.get("selector", "")[:MAX_SELECTOR_CHARS]
        return render(request, "channel_page.html", url=url, selector=selector, chosen=True, error="")
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
        said = in_plain_words(error)
        return render(request, asking, status_of(error), url=url, selector=selector, chosen=as_page, error=said)
    if probed.page:
        return render(request, "channel_page.html", url=url, selector="", chosen=False, error="")
    message, trouble = "", ""
    if probed.channel is not None:
        try:
            message = await request.app[STORE].rehearsals.draft(probed.channel.id)
        except StoreUnavailable:
            raise
        except CoronetError as error:
            trouble = in_plain_words(error)
    return render(request, "channel_preview.html", url=url, probed=probed, message=message, trouble=trouble)


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
