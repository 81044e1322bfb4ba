"""The ring of nodes, as a picture and as a table."""

from aiohttp import web

from service.console.ring_svg import regions, ring_svg
from service.console.site import STORE, render


async def page(request: web.Request) -> web.Response:
    """Show who is on the ring and what part of the id space each owns."""
    nodes = await request.app[STORE].ring.view()
    shares: dict[str, float] = {}
    for owner, start, end in regions(nodes):
        shares[owner] = shares.get(owner, 0.0) + end - start
    return render(request, "nodes.html", nodes=nodes, shares=shares, picture=ring_svg(nodes))
