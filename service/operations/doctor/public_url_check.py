"""The check that the console can be reached at its public URL."""

from typing import Final

from yarl import URL

from service.embedded.ports import is_ready
from service.errors import Unreachable
from service.net.internal_clients import send_request
from service.operations.doctor.report import CheckResult
from service.settings import Settings

_URL_TIMEOUT_S: Final = 10.0
_PROXY_WITHOUT_CONSOLE: Final = range(502, 505)


async def check_public_url(settings: Settings) -> list[CheckResult]:
    """Check that a proxy responds at the console's public URL. The console itself need not be running yet.

    The result is empty if no public URL is set. It is also empty if the URL's host is ``localhost``, because this
    check may run in a container, where ``localhost`` is not the machine on which people use their browsers.
    """
    url = settings.console_public_url
    if not url or URL(url).host == "localhost":
        return []
    try:
        status, _, _ = await send_request(
            "GET", f"{url.rstrip('/')}/livez", query={}, headers={}, body=None, within_s=_URL_TIMEOUT_S
        )
    except Unreachable as error:
        advice = "Check DNS, the certificate, and that the proxy runs: docs/proxy.md has its configuration."
        return [CheckResult("Public URL", ok=False, details=f"{url}: {error}", advice=advice)]
    if status in _PROXY_WITHOUT_CONSOLE and not await is_ready(settings.console_port):
        details = f"{url}: a proxy answers; the console does not run yet"
        return [CheckResult("Public URL", ok=True, details=details)]
    ok = status == 200  # noqa: PLR2004 - HTTP's OK
    advice = f"Have the proxy pass requests on to 127.0.0.1:{settings.console_port} as docs/proxy.md shows."
    return [CheckResult("Public URL", ok=ok, details=f"{url}: status {status}", advice=advice)]
