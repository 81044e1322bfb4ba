"""Rendering of pages from templates.

Pages are not compressed: they contain secrets as well as parts of their URL, so the size of a compressed page could
reveal the secrets (BREACH).
"""

import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from service.console.app_keys import CSRF, PRINCIPAL, SETTINGS, TEMPLATES, local_path, time_zone
from service.console.formatting import (
    ago,
    clock,
    count,
    differences,
    duration,
    format_duration,
    instant,
    is_success,
    keep_units,
    outcome_label,
    percent,
    requests,
    short_id,
    web_address,
)
from service.console.polling_descriptions import (
    bound_label,
    describe_bound,
    describe_bounds,
    describe_polling_hints,
    describe_schedule,
    level,
)
from service.feeds.canonical_urls import reader_of, selector_of, without_selector
from service.operations.poll_constraints import bound_shares
from service.store.console.accounts import Role

_FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    function.__name__: function
    for function in (
        *(count, duration, ago, percent, requests, instant, clock, short_id, is_success, outcome_label),
        *(web_address, differences, describe_polling_hints, describe_schedule, bound_label),
        *(
            reader_of,
            selector_of,
            without_selector,
            describe_bound,
            describe_bounds,
            keep_units,
            level,
            format_duration,
        ),
        bound_shares,
    )
}
"""The functions that templates use as Jinja filters."""

_TEMPLATES: Final = Path(__file__).parent / "templates"


@cache
def load_templates(base_path: str = "") -> Environment:
    """Return the Jinja environment for the console's templates, whose links begin with ``base_path``.

    Values are escaped, and undefined names are errors. Each template is compiled once.
    """
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # else every use of a template asks the file system for its age
    )
    environment.filters.update(_FILTERS)
    environment.globals |= {"base": base_path, "error": ""}
    return environment


def render(request: web.Request, template: str, status: int = 200, **values: object) -> web.Response:
    """Return the HTML page that ``template`` produces from ``values``.

    The template also has access to the request, the path on this console, the settings, the current time, the account's
    name, time zone and rights, and the CSRF token.
    """
    principal = request.get(PRINCIPAL)
    text = (
        request.app[TEMPLATES]
        .get_template(template)
        .render(
            values,
            request=request,
            settings=request.app[SETTINGS],
            path=local_path(request),
            now_s=time.time(),
            zone=time_zone(request),
            account_name=principal.name if principal else "",
            can_operate=principal is not None and principal.role.covers(Role.OPERATOR),
            can_administer=principal is not None and principal.role.covers(Role.ADMIN),
            csrf=request.get(CSRF, ""),
        )
    )
    return web.Response(status=status, text=text, content_type="text/html")
