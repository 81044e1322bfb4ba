"""Extraction of a page's main content as lines of text."""

import pytest

from service.errors import EmptyBody, FeedError, NotAFeed
from service.feeds.pages.content_extraction import parse_page
from service.feeds.pages.page_lines import LINE_CHARS, MAX_LINES, MAX_TEXT_BYTES
from service.model import ParsedPage
from tests.support.page_reader import parsed

AROUND = "<header>Shop of Example</header><nav><a>Home</a> <a>Cart</a></nav>{}<footer>Imprint</footer>"


def lines(markup: str, selector: str = "") -> list[str]:
    return list(parse_page(markup.encode(), headers={"content-type": "text/html"}, selector=selector).lines)


def test_blocks_are_lines_and_white_space_collapses() -> None:
    markup = "<div> One\n <b>bold</b>\tword <p>two<br>three</div>four<ul><li>five<li><p>six</p></ul>"
    assert lines(markup) == ["One bold word", "two", "three", "four", "five", "six"]


def test_a_row_of_a_table_is_one_line() -> None:
    markup = "<table><tr><th>Item<th>Price<tr><td><p>Large <i>box</i></p><td></td><td>5&nbsp;&euro;</table>"
    assert lines(markup) == ["Item | Price", "Large box | 5 €"]


def test_rows_of_a_layout_table_are_not_joined() -> None:
    inner = "<table><tr><td>1.<td>A story</table><table><tr><td>2.<td>Another</table>"
    assert lines(f"<table><tr><td>Top<td>{inner}</table>") == ["Top", "1. | A story", "2. | Another"]
    long = ("word " * 50).strip()
    assert lines(f"<table><tr><td>Left<td><p>{long}<p>{long}</table>") == ["Left", long, long]


def test_line_breaks_in_preformatted_text_are_kept() -> None:
    assert lines("<pre>a  b\n\n  c</pre><p>d\ne") == ["a b", "c", "d e"]


def test_the_alternative_text_of_an_image_is_extracted() -> None:
    assert lines("<p>API <img src=green.png alt='operational'></p>") == ["API operational"]


@pytest.mark.parametrize(
    "unseen",
    [
        "<script>var x = 'price'</script>",
        "<style>p {}</style>",
        "<noscript>Enable JavaScript</noscript>",
        "<template><p>row</template>",
        "<svg><title>logo</title><text>x</text></svg>",
        "<!-- 12:00:01 -->",
        "<p hidden>secret</p>",
        "<p style='color: red; DISPLAY : none'>secret</p>",
        "<dialog>Accept cookies?</dialog>",
        "<iframe>old browser</iframe>",
    ],
)
def test_invisible_content_is_omitted(unseen: str) -> None:
    assert lines(f"<body><p>Before{unseen}</p> after</body>") in (["Before", "after"], ["Before after"])


def test_a_body_hidden_until_a_script_runs_is_extracted() -> None:
    assert lines("<html style='visibility:hidden'><body style='display:none'><p>text") == ["text"]


def test_boilerplate_is_omitted() -> None:
    assert lines(AROUND.format("<div><p>Price list</div>" + "<p>Something to buy" * 5)) == [
        "Price list",
        *["Something to buy"] * 5,
    ]


def test_main_is_the_content_if_it_has_most_of_the_text() -> None:
    main = "<main><header><h1>Release 2</h1></header><p>It is out, with many changes.</p></main>"
    assert lines(AROUND.format(f"<div>We use cookies</div>{main}")) == ["Release 2", "It is out, with many changes."]
    assert lines(AROUND.format("<main>Hi</main><p>A longer text beside it")) == ["Hi", "A longer text beside it"]


def test_all_articles_of_an_index_are_content() -> None:
    markup = "<h1>News</h1>" + "".join(f"<article><header>Story {n}</header></article>" for n in range(3))
    assert lines(AROUND.format(markup)) == ["News", "Story 0", "Story 1", "Story 2"]


def test_the_headers_of_sections_are_content() -> None:
    markup = "<section><header><h2>Opening hours</h2></header><p>9 to 5, all days of the week</p></section>"
    assert lines(AROUND.format(markup)) == ["Opening hours", "9 to 5, all days of the week"]


def test_a_form_around_the_whole_page_is_content() -> None:
    markup = "<form><nav>Menu</nav><p>The whole page stands in one form</p></form><footer>Imprint</footer>"
    assert lines(markup) == ["The whole page stands in one form"]


def test_a_page_of_boilerplate_only_is_extracted_completely() -> None:
    assert lines("<header>Soon</header><footer>Here</footer>") == ["Soon", "Here"]


def test_headings_and_title_are_extracted() -> None:
    page = parsed("<title> My\n page </title><body><h1>Prices</h1><p>5<h2>Hours</h2><p>9 to 5")
    assert page == ParsedPage("My page", ("Prices", "5", "Hours", "9 to 5"), (0, 2))


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("#prices", ["Item | 5 €"]),
        ("td.new", ["5 €"]),
        ("h1, tr", ["Shop", "Item | 5 €"]),
        ("table, td", ["Item | 5 €"]),  # no match within another one counts twice
        ("nav", ["Menu"]),
        ("div > :nth-child(2)", ["Item | 5 €"]),
    ],
)
def test_a_selector_limits_the_content(selector: str, found: list[str]) -> None:
    markup = "<nav>Menu</nav><div><h1>Shop</h1><table id=prices><tr><td>Item<td class=new>5 €</table></div>"
    assert lines(markup, selector) == found


def test_a_selector_without_match_raises_empty_body() -> None:
    with pytest.raises(EmptyBody, match="Nothing on the page matches `#prices`"):
        lines("<p>x", "#prices")


@pytest.mark.parametrize(
    "selector", ["[", "p::before", "a{}", "@media", ":not(" * 40, ":nonsense(3)", "[a='\x00']", "\ud800"]
)
def test_an_invalid_selector_raises_empty_body(selector: str) -> None:
    with pytest.raises(EmptyBody, match="matches"):
        lines("<p>x", selector)


@pytest.mark.parametrize("body", ["", "   \n", "<!-- nothing -->", "<html><body></body></html>"])
def test_an_empty_page_raises_empty_body(body: str) -> None:
    with pytest.raises(EmptyBody, match="page is empty"):
        parsed(body)


def test_a_page_that_needs_javascript_raises_empty_body() -> None:
    with pytest.raises(EmptyBody, match="without JavaScript"):
        parsed("<div id=app></div><script src=app.js></script>")


def test_plain_text_is_returned_line_by_line() -> None:
    page = parse_page(b"v2 <beta>\r\n\r\n  fixes\t1\n", headers={"Content-Type": "text/plain; charset=utf-8"})
    assert page.lines == ("v2 <beta>", "fixes 1")


def test_plain_text_is_limited_and_not_empty() -> None:
    page = parse_page(b"a line\n" * 30_000, headers={"content-type": "application/json"})
    assert len(page.lines) == MAX_LINES
    with pytest.raises(EmptyBody, match="empty"):
        parse_page(b" \n", headers={"content-type": "text/plain"})


@pytest.mark.parametrize("body", [b"%PDF-1.7\n" + bytes(range(256)) * 20, b"\x89PNG\r\n\x1a\n" + bytes(500)])
def test_a_binary_document_raises_not_a_feed(body: bytes) -> None:
    with pytest.raises(NotAFeed, match="no page of text"):
        parse_page(body, headers={})


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("<p>Käse".encode("latin-1"), "text/html"),
        ("<p>Käse".encode("latin-1"), "text/html; charset=ISO-8859-1"),
        ("<meta charset=iso-8859-5><p>Käse".encode("iso-8859-1"), "text/html; charset=iso-8859-1"),
        ("<meta charset='macintosh'><p>Käse".encode("mac-roman"), "text/html"),
        ("<meta http-equiv=Content-Type content='text/html; charset=cp437'><p>Käse".encode("cp437"), "text/html"),
        ("\ufeff<p>Käse".encode("utf-16-le"), "text/html; charset=utf-8"),
        ("<p>Käse".encode(), "text/html; charset=no-such"),
        ("<?xml version='1.0' encoding='utf-16'?><p>Käse".encode(), "application/xhtml+xml"),
    ],
)
def test_declared_encodings_are_decoded(body: bytes, content_type: str) -> None:
    assert parse_page(body, headers={"content-type": content_type}).lines == ("Käse",)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a million unclosed elements", b"x" + b"<div>" * 1_000_000 + b"x"),
        ("a million unclosed paragraphs", b"<p>x" * 1_000_000),
        ("40,000 attributes", b"<p " + b" ".join(b"a%d=1" % n for n in range(40_000)) + b">x</p>"),
        ("tables in tables", b"<table><tr><td>x" * 100_000),
        ("impossible characters", b"<p>&#x110000;&#xd800;&#0;&nosuch;x"),
        ("5 MB of title", b"<title>" + b"x " * 2_500_000 + b"</title><p>x"),
        ("one line of 5 MB", b"<p>" + b"x " * 2_500_000),
        ("5 MB of white space", b"<p>" + b" \n" * 2_500_000 + b"x"),
        ("incompressible", b"".join(b"<p>%x" % (n * 0x9E3779B97F4A7C15) * 4 for n in range(20_000))),
        ("an unclosed comment", b"<p>x<!--" + b"- " * 1_000_000),
        ("an unclosed attribute", b"<p>x<p a='" + b"<p " * 1_000_000),
    ],
)
def test_crafted_input_stays_within_limits(name: str, body: bytes) -> None:
    page = parse_page(body, headers={"content-type": "text/html"})
    assert 0 < len(page.lines) <= MAX_LINES, name
    assert max(map(len, page.lines)) <= LINE_CHARS
    assert sum(len(line.encode()) for line in page.lines) <= MAX_TEXT_BYTES


def test_a_flood_of_empty_elements_raises_a_feed_error() -> None:
    with pytest.raises(FeedError):
        parse_page(b"<b></b>" * 400_000, headers={})


_PASSWORD = "<form><p>User <input name=user><p>Password <input type=PassWord><button>Log in</button></form>"


def test_a_login_page_raises_empty_body() -> None:
    with pytest.raises(EmptyBody, match="asks for a login"):
        lines(f"<title>Log in</title><body>{_PASSWORD}<a href=/lost>Lost your password?</a>")


def test_a_page_with_a_login_form_and_content_is_extracted() -> None:
    news = [f"Paragraph {number} tells a story that has many words." for number in range(20)]
    assert lines(f"<body>{_PASSWORD}{''.join(f'<p>{line}' for line in news)}")[-20:] == news
