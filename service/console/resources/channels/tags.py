"""Tags of channels: their rules, and the parser for the tags in a form."""

from typing import Final

from service.errors import UserError

MAX_TAGS: Final = 20
_MAX_TAG_CHARS: Final = 40


def parse_tag(text: str) -> str:
    """Return a tag in its stored form: stripped and case-folded. Raises :class:`UserError`."""
    tag = text.strip().casefold()
    if not tag or len(tag) > _MAX_TAG_CHARS or len(tag.split()) > 1 or not tag.isprintable():
        raise UserError(f"A tag is a single word of at most {_MAX_TAG_CHARS} characters.")
    return tag


def parse_tags(text: str) -> list[str]:
    """Return the sorted tags in a text that separates them with spaces. Raises :class:`UserError`."""
    tags = sorted({parse_tag(word) for word in text.split()})
    if len(tags) > MAX_TAGS:
        raise UserError(f"A channel can have at most {MAX_TAGS} tags.")
    return tags
