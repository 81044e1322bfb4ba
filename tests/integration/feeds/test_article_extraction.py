"""Articles are extracted in confined parser processes that have loaded trafilatura."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from service.errors import ParseKilled
from service.feeds.sandbox.parser_client import ParserClient
from service.feeds.sandbox.protocol import DetectChanges, Document

URL = "https://example.org/article"
SENTENCE = "Größere Wörter stehen in Absatz 7, damit er lang genug für einen Artikel ist."
PARAGRAPHS = "".join(f"<p>{SENTENCE.replace('7', str(number))}</p>" for number in range(50))
ARTICLE = (
    "<html><head><title>Title</title></head><body><nav><a href='/'>Home</a> <a href='/all'>All articles</a></nav>"
    f"<main><article><h1>A heading</h1>{PARAGRAPHS}</article></main>"
    "<aside>Read also: another article</aside><div id='comments'><p>First!</p></div><footer>Imprint</footer>"
    "</body></html>"
)


@pytest.fixture
async def parser() -> AsyncIterator[ParserClient]:
    async with ParserClient(0, "trafilatura") as parser:
        yield parser


async def article(parser: ParserClient, body: bytes, content_type: str = "text/html") -> str:
    request = DetectChanges((Document(body, URL, {"content-type": content_type}),), b"", URL, "article", 0.0)
    return (await parser.detect_changes(request)).article


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1"])
async def test_the_beginning_of_an_article_is_extracted_without_the_rest_of_its_page(
    parser: ParserClient, encoding: str
) -> None:
    text = await article(parser, ARTICLE.encode(encoding), f"text/html; charset={encoding}")
    assert parser.confinement == "seccomp"
    assert SENTENCE in text
    assert 1_900 < len(text) <= 2_000
    assert text.endswith("…")
    assert not any(other in text for other in ("Home", "First!", "Imprint", "another article", "\n"))


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "text/html"),
        (b"<html><body></body></html>", "text/html"),
        (b"\x00\xff" * 1_000, "text/html"),
        (b"<html><body><noscript>You need to enable JavaScript to run this app.</noscript></body></html>", "text/html"),
        (
            b"<html><body><h1>Log in</h1><p>To read on.</p><form><input type='password'></form></body></html>",
            "text/html",
        ),
        (ARTICLE.encode(), "application/pdf"),
        (b'{"article": "text"}', "application/json"),
    ],
)
async def test_other_documents_have_no_article(parser: ParserClient, body: bytes, content_type: str) -> None:
    assert await article(parser, body, content_type) == ""


async def test_characters_that_could_deceive_readers_are_removed(parser: ParserClient) -> None:
    body = ARTICLE.replace("Größere", "\u202eGrößere\u200b\x07").encode()
    assert not set("\u202e\u200b\x07") & set(await article(parser, body))


HOSTILE = {
    "a million unclosed tags": b"<html><body>" + b"<a>" * 1_000_000,
    "100,000 nested elements": b"<html><body>" + b"<div><p>text" * 100_000,
    "5 MB of text": b"<html><body><article><p>" + b"word " * 1_000_000,
    "a large table": b"<html><body><table>" + b"<tr><td>cell</td><td>cell</td></tr>" * 50_000 + b"</table>",
    "many lists": b"<html><body><article>" + b"<ul><li>item</li></ul>" * 50_000,
    "many attributes": b"<html><body><p " + b" ".join(b'a%d="1"' % number for number in range(100_000)) + b">text",
}


async def test_the_article_after_a_hostile_page_is_extracted() -> None:
    async def read(hostile: bytes) -> str:
        async with ParserClient(0, "trafilatura") as parser:
            with contextlib.suppress(ParseKilled):
                await article(parser, hostile)
            return await article(parser, ARTICLE.encode())

    for text in await asyncio.gather(*map(read, HOSTILE.values())):
        assert SENTENCE in text
