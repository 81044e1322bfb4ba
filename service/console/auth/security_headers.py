"""The security headers that every response has: the content security policy, HSTS, and others."""

from typing import Final

from aiohttp import hdrs, web

from service.console.app_keys import SETTINGS
from service.console.auth.authentication import is_https

_POLICY: Final = "Content-Security-Policy"
_CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; "
    "img-src 'self' data:; "  # the stylesheet's icons are data: images
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
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
    """Add the security headers to a response; aiohttp calls this for every response (``on_response_prepare``).

    Handlers redirect to paths without the prefix ``console_base_path``. Therefore this function also adds the prefix to
    the header ``Location`` if its value is a path.
    """
    location = response.headers.get(hdrs.LOCATION, "")
    if location.startswith("/"):
        response.headers[hdrs.LOCATION] = f"{request.app[SETTINGS].console_base_path}{location}"
    policy = response.headers.get(_POLICY, _CONTENT_SECURITY_POLICY)
    response.headers.update(_HEADERS)
    response.headers[_POLICY] = policy
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
    if is_https(request):
        response.headers["Strict-Transport-Security"] = "max-age=31536000"
