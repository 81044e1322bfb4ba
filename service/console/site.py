"""What every handler of the console shares: typed keys, and how a template becomes a page."""

from functools import cache
from pathlib import Path
from typing import Final

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from service.clock import Clock
from service.console import phrases
from service.console.access import Visitor
from service.console.finding import Finder
from service.console.pulse import Pulse
from service.console.roster import Roster
from service.feeds.sandbox import OpmlReader
from service.settings import Settings
from service.store import Store
from service.store.accounts import Role

SETTINGS: Final = web.AppKey("settings", Settings)
STORE: Final = web.AppKey("store", Store)
CLOCK: Final = web.AppKey("clock", Clock)
ROSTER: Final = web.AppKey("roster", Roster)
PULSE: Final = web.AppKey("pulse", Pulse)
FINDER: Final = web.AppKey("finder", Finder)
OPML_READER: Final = web.AppKey("opml_reader", OpmlReader)
TEMPLATES: Final = web.AppKey("templates", Environment)

VISITOR: Final = web.RequestKey("visitor", Visitor)
"""Who is asking; set by the guard on closed routes."""
CSRF: Final = web.RequestKey("csrf", str)
"""The token this visitor's forms must send back."""

_ROOM = Path(__file__).parent
STATIC: Final = _ROOM / "static"


@cache
def templates() -> Environment:
    """Return the templates' environment: everything is escaped, an unknown name is an error. Each is compiled once."""
    environment = Environment(
        loader=FileSystemLoader(_ROOM / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(phrases.FILTERS)
    return environment


def zone_of(request: web.Request) -> str:
    """Return the time zone by whose clocks the visitor is shown times."""
    visitor = request.get(VISITOR)
    return (visitor.zone if visitor else "") or request.app[SETTINGS].console_zone


def render(request: web.Request, template: str, status: int = 200, **values: object) -> web.Response:
    """Return a page made from a template, which also knows who is asking, what they may do, and what time they have."""
    visitor = request.get(VISITOR)
    text = (
        request.app[TEMPLATES]
        .get_template(template)
        .render(
            values,
            path=request.path,
            now_s=request.app[CLOCK].wall_s(),
            zone=zone_of(request),
            visitor=visitor.name if visitor else "",
            operates=visitor is not None and visitor.role.covers(Role.OPERATOR),
            administers=visitor is not None and visitor.role.covers(Role.ADMIN),
            csrf=request.get(CSRF, ""),
            chats=bool(request.app[SETTINGS].chat_websocket_url),
        )
    )
    return web.Response(status=status, text=text, content_type="text/html")
