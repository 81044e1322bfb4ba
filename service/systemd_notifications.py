"""Notifications to systemd, if it started this process, using the protocol of sd_notify(3).

systemd passes the address of a socket in ``NOTIFY_SOCKET``. If this variable is not set, nothing is sent.

- ``READY=1`` states that the process has started (``Type=notify``).
- ``WATCHDOG=1`` states that the process still works (``WatchdogSec=``). If this signal does not arrive in time, systemd
  restarts the unit. The event loop sends the signal, so that a process whose event loop hangs is restarted.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Final

from service.asyncio_tasks import cancel_and_wait
from service.errors import CoronetError
from service.net.health_endpoints import ReadinessCheck
from service.settings import read_notify_socket

_CHECK_INTERVAL_S: Final = 0.2
"""Interval in seconds at which a starting process checks whether it is ready."""
_STATUS_INTERVAL_S: Final = 5.0
_LONGEST_SIGNAL_INTERVAL_S: Final = 5.0
_START_EXTENSION_S: Final = 30
"""Seconds by which each signal extends the start timeout; Redis and the XMPP server may be unavailable at first."""


class SystemdNotifier:
    """Sends notifications to systemd if systemd started this process; otherwise does nothing."""

    def __init__(self) -> None:
        """Read the address of systemd's socket from the environment."""
        self._address, watchdog_s = read_notify_socket()
        self._signal_interval_s = min(watchdog_s / 2, _LONGEST_SIGNAL_INTERVAL_S)
        self._is_ready = False
        self._status = ""

    @contextlib.asynccontextmanager
    async def notifying(self, check_ready: ReadinessCheck) -> AsyncIterator[None]:
        """Keep systemd informed about the state of the process during this context.

        While the process cannot do its work, ``check_ready`` must raise a :class:`CoronetError` that states the reason.
        When the context ends, systemd is told that the process is stopping.
        """
        if not self._address:
            yield
            return
        tasks = [asyncio.create_task(self._send_signals()), asyncio.create_task(self._report_status(check_ready))]
        try:
            yield
        finally:
            self._send("STOPPING=1", "STATUS=Stopping.")
            await cancel_and_wait(*tasks)

    async def _send_signals(self) -> None:
        """Send watchdog signals until cancelled.

        Until the process is ready, each signal also extends the unit's start timeout.
        """
        while True:
            extension = () if self._is_ready else (f"EXTEND_TIMEOUT_USEC={_START_EXTENSION_S}000000",)
            self._send("WATCHDOG=1", *extension)
            await asyncio.sleep(self._signal_interval_s)

    async def _report_status(self, check_ready: ReadinessCheck) -> None:
        """Send ``READY=1`` once the process is ready.

        Whenever the process is not ready, send the reason as its status.
        """
        while True:
            try:
                await check_ready()
            except CoronetError as error:
                self._send_status(str(error))
            else:
                self._is_ready = self._send_status("Ready.", "READY=1") or self._is_ready
            await asyncio.sleep(_STATUS_INTERVAL_S if self._is_ready else _CHECK_INTERVAL_S)

    def _send_status(self, status: str, *more: str) -> bool:
        """Send a new status to systemd, together with the ``NAME=value`` lines in ``more``.

        Return whether they were sent. Nothing is sent if ``status`` is the status that was sent last.
        """
        if status == self._status or not self._send(f"STATUS={status}".replace("\n", " "), *more):
            return False
        self._status = status
        return True

    def _send(self, *assignments: str) -> bool:
        """Send ``NAME=value`` lines in one datagram; return whether the service manager's socket accepted it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            try:
                sender.sendto("\n".join(assignments).encode(), self._address)
            except OSError:
                return False
            return True
