"""Detection of a document's encoding, whatever its publisher declares."""

import pytest

from service.feeds.parsing.charset import decode_document

_DECLARED = '<?xml version="1.0" encoding="{}"?>'


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b"", "", ""),
        (b"plain", "text/xml; charset=nonsense", "plain"),
        ("\ufeffZoë".encode(), "text/xml; charset=iso-8859-1", "Zoë"),
        ("Zoë".encode(), "text/xml; charset=iso-8859-1", "Zoë"),
        ("Zoë".encode("latin-1"), "", "Zoë"),
        ("“Zoë”".encode("cp1252"), "text/xml; charset=iso-8859-1", "“Zoë”"),
        ("こんにちは".encode("iso-2022-jp"), "text/xml; charset=iso-2022-jp", "こんにちは"),
        ("鎔①".encode("cp932"), "text/xml; charset=Shift_JIS", "鎔①"),
        ("Zoë".encode("latin-1"), "text/xml; charset=idna", "Zoë"),
        ("Zoë".encode("latin-1"), "text/xml; charset=hex", "Zoë"),
        ("Zoë".encode("latin-1"), "text/xml; charset=utf-16", "Zoë"),
        ("<é".encode("utf-16-le"), "", "<é"),
        ("{é".encode("utf-32-be"), "", "{é"),
        ("<é".encode("utf-16") + b"\xd8", "", "<é\ufffd"),
    ],
)
def test_the_encoding_is_detected(body: bytes, content_type: str, text: str) -> None:
    assert decode_document(body, content_type) == text


def test_one_truncated_character_does_not_change_the_encoding() -> None:
    torn = "Zoë, мир, 世界".encode()[:-1]
    assert decode_document(torn, "") == "Zoë, мир, 世\ufffd"
    assert decode_document(_DECLARED.format("utf-8").encode() + torn, "text/xml; charset=iso-8859-1").endswith(
        "世\ufffd"
    )


def test_the_header_takes_precedence_over_the_declaration() -> None:
    text = _DECLARED.format("koi8-r") + "Привет"
    assert decode_document(text.encode("windows-1251"), "text/xml; charset=windows-1251") == text
