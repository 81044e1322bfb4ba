"""Why stanzas come back. Pure."""

from typing import Final
from xml.etree.ElementTree import Element

_ERRORS: Final = "{urn:ietf:params:xml:ns:xmpp-stanzas}"


def condition_of(stanza: Element) -> str:
    """Return the condition of a stanza of the type error (RFC 6120 §8.3.3)."""
    error = stanza.find("{*}error")
    named = [child.tag for child in (error if error is not None else ()) if child.tag.startswith(_ERRORS)]
    return named[0].removeprefix(_ERRORS) if named else "undefined-condition"
