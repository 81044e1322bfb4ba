"""The limit on the size of request bodies."""

from aiohttp import web

from service.console.route_rules import Handler, rules_of


@web.middleware
async def limit_body_size(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request body that exceeds the limit of the request's handler.

    The ``Content-Length`` header is checked first. Without it, the body is refused while it is read.
    """
    largest_bytes = rules_of(request).largest_bytes
    if (request.content_length or 0) > largest_bytes:
        raise web.HTTPRequestEntityTooLarge(largest_bytes, request.content_length or 0)
    # The public way is request.clone(), which would lose the files of a multipart form.
    request._client_max_size = largest_bytes  # noqa: SLF001 - see above
    return await handler(request)
