"""Headers that tell the browser to trust nothing but our own files."""

from typing import Final

from aiohttp import hdrs, web

from service.console.guard import behind_tls

_POLICY: Final = "Content-Security-Policy"
_CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; "
    "img-src 'self' data:; "  # the stylesheet's icons are data: images
    "base-uri 'none'; frame-ancestors 'none'"
)

_ALWAYS: Final = {
    hdrs.SERVER: "coronet",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # "no-referrer" would make browsers send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Complete a response's headers; to be called for every response when it is prepared."""
    policy = response.headers.get(_POLICY, _CONTENT_SECURITY_POLICY)
    response.headers.update(_ALWAYS)
    response.headers[_POLICY] = policy
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
    if behind_tls(request):
        response.headers["Strict-Transport-Security"] = "max-age=31536000"
