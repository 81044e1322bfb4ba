"""The output of ``coronet doctor``: the results of checks as text or JSON, and the table of settings."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec
from rich.table import Table

from service.observability.secret_redaction import redacted
from service.settings import Settings


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check.

    If the result is not ``ok``, ``advice`` states how to fix the problem.
    """

    name: str
    ok: bool
    details: str
    advice: str = ""

    @property
    def severity(self) -> "Severity":
        """``ok``, ``warning`` if everything works for now, or ``error`` if something does not work."""
        return "ok" if self.ok else "warning" if self.name in _WARNINGS else "error"


Severity = Literal["ok", "warning", "error"]
_WARNINGS: Final = frozenset(("Redis latency", "Clocks", "Open files", "Polls"))
"""The checks whose failure is only a warning, because all programs still work."""
_MARKS: Final[Mapping[Severity, str]] = {"ok": "ok ", "warning": "!! ", "error": "BAD"}
EXIT_CODES: Final[Mapping[Severity, int]] = {"ok": 0, "error": 1, "warning": 3}


def worst_severity(results: Sequence[CheckResult]) -> Severity:
    """Return the severity of the most severe result; ``ok`` if there are no results."""
    return max((result.severity for result in results), key=list(_MARKS).index, default="ok")


def as_json(results: Sequence[CheckResult]) -> bytes:
    """Return the results as a JSON object: ``severity`` is the worst one, ``checks`` has each result in order.

    A check has ``id``, ``severity``, ``details`` and ``advice``. An id, such as ``redis-memory``, does not change
    between versions. It occurs several times if several servers are checked.
    """
    checks = [
        {
            "id": each.name.lower().replace(" ", "-"),
            "severity": each.severity,
            "details": each.details,
            "advice": each.advice if not each.ok else "",
        }
        for each in results
    ]
    return msgspec.json.encode({"severity": worst_severity(results), "checks": checks})


def as_text(results: Sequence[CheckResult]) -> str:
    """Return the results as text with one line each; the advice follows the line of a failed check."""
    lines = []
    for result in results:
        lines.append(f"{_MARKS[result.severity]}  {result.name:<18}{result.details}")
        if not result.ok:
            lines.append(f"     {'':<18}→ {result.advice}")
    return "\n".join(lines)


def settings_table(settings: Settings, origins: Mapping[str, str]) -> Table:
    """Return a table of every setting's effective value and its source; secrets are hidden.

    ``origins`` has the source of each setting's value, by the setting's name.
    """
    table = Table("Setting", "Value", "From", box=None)
    for name, value in settings:
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        table.add_row(name, redacted(shown, ()), origins[name])
    return table
