"""Keys under which handlers find shared values, such as the store and the settings, in the application or request."""

from typing import Final

from aiohttp import web
from jinja2 import Environment

from service.console.auth.passwords import Passwords
from service.console.auth.permissions import Principal
from service.console.queries.channel_cache import ChannelCache
from service.console.queries.channel_search import ChannelSearch
from service.console.queries.metrics_scraper import MetricsScraper
from service.feeds.sandbox.parser_client import OpmlParserClient
from service.settings import Settings
from service.store import Store

SETTINGS: Final = web.AppKey("settings", Settings)
STORE: Final = web.AppKey("store", Store)
CHANNEL_CACHE: Final = web.AppKey("cache", ChannelCache)
CHANNEL_SEARCH: Final = web.AppKey("search", ChannelSearch)
METRICS: Final = web.AppKey("metrics", MetricsScraper)
OPML_PARSER_CLIENT: Final = web.AppKey("opml_parser_client", OpmlParserClient)
TEMPLATES: Final = web.AppKey("templates", Environment)
PRINCIPAL: Final = web.RequestKey("principal", Principal)
"""The sender of the request; set by the authorization middleware, except on routes that need no login."""
CSRF: Final = web.RequestKey("csrf", str)
"""The CSRF token that forms of the page must send back."""


def local_path(request: web.Request) -> str:
    """Return the path of a request without the prefix that the setting ``console_base_path`` defines."""
    return request.path.removeprefix(request.app[SETTINGS].console_base_path)


def time_zone(request: web.Request) -> str:
    """Return the time zone for times in the response: the account's zone if set, else the console's default."""
    principal = request.get(PRINCIPAL)
    return (principal.zone if principal else "") or request.app[SETTINGS].console_zone


PASSWORDS: Final = web.AppKey("passwords", Passwords)
