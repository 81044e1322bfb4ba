"""The words for on and off, in each of the languages we speak. Pure."""

from typing import Final

ON: Final = frozenset(("on", "yes", "true", "an", "ein", "ja", "oui", "activer", "activé", "sí", "si", "activar"))
OFF: Final = frozenset(
    ("off", "none", "no", "never", "stop", "aus", "nein", "nie", "non", "jamais", "arrêt", "nunca", "desactivar")
)
