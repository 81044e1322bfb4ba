"""Strategies for hostile text, and the properties that every message must have."""

from xml.etree import ElementTree as ET

from hypothesis import strategies as st

from bots.replies.formatting import MAX_MESSAGE_BYTES
from bots.xmpp import stanzas

hostile = st.text(max_size=400) | st.sampled_from(
    ["</body></message>", "\x00\x0b\x1b[0m", "\u202eevil\u2066", "\ud800", "a\n> b\n```", "é" * 5000, "👩‍👩‍👧" * 900]
)


def safe(text: str) -> bool:
    """Whether it is valid XML 1.0, short enough, and free of bidi overrides."""
    element = ET.fromstring(stanzas.body(text))  # noqa: S314 - we wrote it
    return element.text == text and len(text.encode()) <= MAX_MESSAGE_BYTES and not set(text) & set("\u202e\u2066")
