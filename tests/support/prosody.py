"""Variants of the private Prosody."""

from pathlib import Path
from typing import Final

from service.embedded.private_prosody import PrivateProsody

STRANGERS: Final = "strangers.localhost"
"""Domain of a component whose connection may send from any address in the domain, like another server."""
ELSEWHERE: Final = "elsewhere.example"
"""Domain of another such component, which is not a subdomain of the server's domain."""
SECRET: Final = "a stranger's secret"


class LimitedProsody(PrivateProsody):
    """A Prosody that limits its clients' bandwidth, like Debian's configuration."""

    def __init__(self, directory: Path, rate: str) -> None:
        """Limit each client to ``rate``, e.g. "10kb/s"."""
        super().__init__(directory)
        self._rate = rate

    def _configuration(self) -> str:
        limits = f'limits = {{ c2s = {{ rate = "{self._rate}" }} }}\n'
        return limits + super()._configuration().replace('"smacks",', '"smacks", "limits",')


class ForgetfulProsody(PrivateProsody):
    """A Prosody without a message archive (XEP-0313), because writing its files would dominate measurements."""

    def _configuration(self) -> str:
        return super()._configuration().replace('"mam", ', "")


class ArchivingProsody(PrivateProsody):
    """A Prosody that stores messages to offline accounts only in the archive (XEP-0313), not for later delivery."""

    def _configuration(self) -> str:
        return (
            super()
            ._configuration()
            .replace('"offline", ', "")
            .replace("modules_disabled = { ", 'modules_disabled = { "offline", ')
        )


class ProsodyWithStrangers(PrivateProsody):
    """A Prosody with the components ``STRANGERS`` and ``ELSEWHERE``, which act as other servers."""

    def _configuration(self) -> str:
        components = (f'Component "{each}"\n  component_secret = "{SECRET}"\n' for each in (STRANGERS, ELSEWHERE))
        return "\n".join((super()._configuration(), *components))
