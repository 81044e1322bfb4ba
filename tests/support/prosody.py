"""Variants of the private Prosody."""

from pathlib import Path
from typing import Final

from service.embedded.prosody import PrivateProsody

STRANGERS: Final = "strangers.localhost"
"""A component whose connection may speak for any name in it, as another server could."""
ELSEWHERE: Final = "elsewhere.example"
"""The same, under a domain that is not the server's."""
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
    """One that archives no messages (XEP-0313): writing its files takes longer than everything else."""

    def _configuration(self) -> str:
        return super()._configuration().replace('"mam", ', "")


class ArchivingProsody(PrivateProsody):
    """One that keeps nothing for who is away but in archives."""

    def _configuration(self) -> str:
        return (
            super()
            ._configuration()
            .replace('"offline", ', "")
            .replace("modules_disabled = { ", 'modules_disabled = { "offline", ')
        )


class ProsodyWithStrangers(PrivateProsody):
    """One with two components of strangers."""

    def _configuration(self) -> str:
        components = (f'Component "{each}"\n  component_secret = "{SECRET}"\n' for each in (STRANGERS, ELSEWHERE))
        return "\n".join((super()._configuration(), *components))
