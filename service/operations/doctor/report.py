"""The output of ``coronet doctor``: check results as text or JSON, and the table of settings."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec
from rich.table import Table

from service.observability.secret_redaction import redacted
from service.settings import Settings


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check.

    ``ok`` is true if the check found no problem. If it is false, ``advice`` states how to fix the problem.
    """

    name: str
    ok: bool
    details: str
    advice: str = ""

    @property
    def severity(self) -> "Severity":
        """``ok``, ``warning`` or ``error``. A warning means that there is a problem, but all programs still work."""
        return "ok" if self.ok else "warning" if self.name in _WARNINGS else "error"


Severity = Literal["ok", "warning", "error"]
_WARNINGS: Final = frozenset(("Redis latency", "Clocks", "Open files", "Polls", "Public URL"))
"""The checks whose failure is only a warning, because all programs still work."""
_MARKS: Final[Mapping[Severity, str]] = {"ok": "ok ", "warning": "!! ", "error": "BAD"}
EXIT_CODES: Final[Mapping[Severity, int]] = {"ok": 0, "error": 1, "warning": 3}


def worst_severity(results: Sequence[CheckResult]) -> Severity:
    """Return the highest severity of the results; ``ok`` if there are no results."""
    return max((result.severity for result in results), key=list(_MARKS).index, default="ok")


def as_json(results: Sequence[CheckResult]) -> bytes:
    """Return the results as a JSON object.

    ``severity`` is the highest severity of all results. ``checks`` lists the results in the given order, each with
    ``id``, ``severity``, ``details`` and ``advice``. An id, such as ``redis-memory``, does not change between versions
    of Coronet. If several servers are checked, an id occurs several times.
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
    """Return the results as text, one line each. The line of a failed check is followed by its advice."""
    lines = []
    for result in results:
        lines.append(f"{_MARKS[result.severity]}  {result.name:<18}{result.details}")
        if not result.ok:
            lines.append(f"     {'':<18}→ {result.advice}")
    return "\n".join(lines)


def settings_table(settings: Settings, origins: Mapping[str, str]) -> Table:
    """Return a table of all settings with their effective values and sources. Secrets are hidden.

    ``origins`` maps the name of each setting to the source of its value.
    """
    table = Table("Setting", "Value", "From", box=None)
    for name, value in settings:
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        table.add_row(name, redacted(shown, ()), origins[name])
    return table
