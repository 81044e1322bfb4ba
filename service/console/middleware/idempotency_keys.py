"""Idempotency keys: a POST request with an Idempotency-Key is executed only once, even if the client sends it again.

When a request is sent again, the client gets the stored response to the first one. The rules are those of
draft-ietf-httpapi-idempotency-key: a different request with the same key is refused, and so is a repetition while the
first request is still in progress. Responses to failed requests are not stored, so that the client can try again. If a
response contains a secret or is too large, only its status is stored.
"""

import hashlib
from functools import wraps
from http import HTTPStatus
from typing import Final

import structlog
from aiohttp import hdrs, web

from service.console.app_keys import PRINCIPAL, STORE
from service.console.route_rules import Handler
from service.errors import StoreUnavailable, UserError
from service.store.console.idempotency_store import StoredResponse

RESPONSE_IS_SECRET: Final = web.RequestKey("response is secret", bool)
"""Set by handlers whose response contains a secret."""

_KEY_HEADER: Final = "Idempotency-Key"
_REPLAYED_HEADER = "Idempotency-Replayed"
_MAX_KEY_CHARS = 255
_MAX_STORED_BYTES = 64 * 1024

log = structlog.get_logger(__name__)


def make_idempotent(handler: Handler) -> Handler:
    """Return a handler that executes a request only once, even if it is sent again with the same Idempotency-Key.

    A repeated request gets the stored response. Requests without a key are always executed.
    """

    @wraps(handler)
    async def handle(request: web.Request) -> web.StreamResponse:
        key, principal = request.headers.get(_KEY_HEADER), request[PRINCIPAL]
        if key is None:
            return await handler(request)
        if not 0 < len(key) <= _MAX_KEY_CHARS or not key.isprintable():
            raise UserError(f"{_KEY_HEADER} must have 1 to {_MAX_KEY_CHARS} printable characters.")
        # With the key, which is not stored: otherwise a password in the body could be guessed from the digest.
        head = f"{key}\n{request.path_qs}\n".encode()
        request_digest = hashlib.sha256(head + await request.read()).hexdigest()
        client, store = f"{principal.name}/{principal.key}", request.app[STORE].idempotency
        earlier = await store.begin(client, key, request_digest)
        if earlier is not None:
            return _replay(earlier, request_digest)
        record = None
        try:
            response = await handler(request)
            record = _make_record(request, response, request_digest)
        finally:
            try:
                await store.end(client, key, record)
            except StoreUnavailable as error:
                log.warning("storing response for idempotency key failed", path=request.path, error=str(error))
        return response

    return handle


def _replay(earlier: StoredResponse, request_digest: str) -> web.Response:
    if earlier.request != request_digest:
        raise UserError(f"This {_KEY_HEADER} was already used for a different request. Use a new key for each request.")
    if not earlier.status:
        raise web.HTTPConflict(text="The first request with this key is still in progress. Try again in a moment.")
    if not earlier.media_type and earlier.status != HTTPStatus.NO_CONTENT:
        raise web.HTTPConflict(
            text="The request was executed. Its response was not stored: it contained a secret or was too large."
        )
    media_type = earlier.media_type or None
    response = web.Response(status=earlier.status, body=earlier.body, content_type=media_type)
    response.headers[_REPLAYED_HEADER] = "true"
    if earlier.location:
        response.headers[hdrs.LOCATION] = earlier.location
    return response


def _make_record(request: web.Request, response: web.StreamResponse, request_digest: str) -> StoredResponse | None:
    """Return the record of a response, which is stored to answer the same request if it is sent again.

    ``request_digest`` is a hash of the request. The record has no body if the response contains a secret or is too
    large. The result is None for a server error, so that a repeated request is executed again.
    """
    if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return None
    body = response.body if isinstance(response, web.Response) else None
    if request.get(RESPONSE_IS_SECRET) or not isinstance(body, bytes) or len(body) > _MAX_STORED_BYTES:
        return StoredResponse(request_digest, response.status)
    location = response.headers.get(hdrs.LOCATION, "")
    return StoredResponse(request_digest, response.status, response.content_type, location, body)
