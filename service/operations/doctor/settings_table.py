"""The table of effective settings that ``coronet doctor --settings`` prints."""

from collections.abc import Mapping

from rich.table import Table

from service.observability.secret_redaction import redacted
from service.settings import Settings


def settings_table(settings: Settings, origins: Mapping[str, str]) -> Table:
    """Return a table of every setting's effective value and its source; secrets are hidden.

    ``origins`` has the source of each setting's value, by the setting's name.
    """
    table = Table("Setting", "Value", "From", box=None)
    for name, value in settings:
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        table.add_row(name, redacted(shown, ()), origins[name])
    return table
