"""OPML files of other programs, and malformed and hostile ones."""

import contextlib

import pytest
from lxml import etree

from service.errors import UserError
from service.feeds.opml_parser import MAX_DEPTH, parse
from service.feeds.opml_writer import MAX_OUTLINES, OpmlDocument, OpmlSubscription, write

CATS = "https://cats.example/feed"


def _opml(body: str, version: str = "2.0") -> bytes:
    return f'<?xml version="1.0"?>\n<opml version="{version}"><head/><body>\n{body}\n</body></opml>'.encode()


def _error_of(body: bytes) -> str:
    with pytest.raises(UserError) as refusal:
        parse(body)
    return str(refusal.value)


def test_the_innermost_named_outline_is_the_folder_of_a_feed() -> None:
    body = """
      <outline text="News"><outline text="Daily"><outline>
        <outline type="rss" text="Cats!" xmlUrl="https://cats.example/feed" htmlUrl="https://cats.example/"/>
      </outline></outline></outline>
      <outline text="Pets"><outline text="Felines" xmlUrl="HTTPS://Cats.Example:443/feed"/></outline>
      <outline text="Dogs" title="Dogs, daily" xmlUrl="https://dogs.example/"/>"""
    cats = OpmlSubscription(CATS, "Cats!", folder="Daily")
    assert parse(_opml(body)).feeds == (cats, OpmlSubscription("https://dogs.example/", "Dogs, daily"))


@pytest.mark.parametrize("category", ["/Pets/Furry,Daily", "Furry", " Furry/ ,Daily"])
def test_the_first_category_is_the_folder_of_a_feed_outside_of_folders(category: str) -> None:
    feed = f'<outline text="Cats" xmlUrl="{CATS}" category="{category}"/>'
    assert parse(_opml(feed)).feeds == (OpmlSubscription(CATS, "Cats", folder="Furry"),)
    assert parse(_opml(f'<outline text="News">{feed}</outline>')).feeds == (
        OpmlSubscription(CATS, "Cats", folder="News"),
    )


def test_a_feed_that_was_outside_of_folders_gets_the_folder_of_its_second_outline() -> None:
    feed = f'<outline text="Cats" xmlUrl="{CATS}"/>'
    (cats,) = parse(_opml(f'{feed}<outline text="Pets">{feed}</outline><outline text="News">{feed}</outline>')).feeds
    assert cats.folder == "Pets"


def test_pages_and_parts_of_pages_are_marked() -> None:
    pages = (
        OpmlSubscription("https://x.example/", page=True),
        OpmlSubscription("https://x.example/#div%20%3E%20a", "A", page=True),
    )
    assert parse(write("Ours", pages)).feeds == pages
    assert b"xmlUrl" not in write("Ours", pages)


def test_opml_1_and_unusual_spellings_are_parsed() -> None:
    body = f'<OUTLINE TITLE="Cats" XMLURL=" {CATS}&#10;"/>'
    whole = _opml(body, "1.0").replace(b"opml", b"OPML")
    assert parse(whole).feeds == (OpmlSubscription(CATS, "Cats"),)


def test_each_problem_has_its_line_and_other_feeds_are_returned() -> None:
    body = f"""<outline text="a" xmlUrl="ftp://example.org/"/>
<outline text="b" xmlUrl="https://user:secret@example.org/"/>
<outline text="c" type="link" url="https://example.org/"/>
<outline text="d" type="include" url="https://example.org/other.opml"/>
<outline text="Cats" xmlUrl="{CATS}"/>"""
    feeds, problems = parse(_opml(body)).feeds, parse(_opml(body)).problems
    assert feeds == (OpmlSubscription(CATS, "Cats"),)
    assert [problem.partition(":")[0] for problem in problems] == ["Line 3", "Line 4", "Line 5", "Line 6"]
    assert problems[3] == "Line 6: “d” names no feed."


def test_stray_ampersands_and_missing_end_tags_are_tolerated() -> None:
    body = f'<opml><body><outline text="Cats & Dogs" xmlUrl="{CATS}?a=1&b=2"/>\n<outline text="x"'.encode()
    outline = parse(body)
    assert [feed.url for feed in outline.feeds] == [f"{CATS}?a=1&b=2"]
    assert "not well-formed" in outline.problems[0]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "iso-8859-1"])
def test_the_encoding_is_detected_whatever_is_declared(encoding: str) -> None:
    text = _opml(f'<outline text="Kätzchen" xmlUrl="{CATS}"/>').decode()
    declared = text.replace('version="1.0"', 'version="1.0" encoding="iso-8859-1"')
    assert parse(declared.encode(encoding)).feeds == (OpmlSubscription(CATS, "Kätzchen"),)


def test_titles_and_folders_are_plain_short_lines() -> None:
    long = "x" * 5_000
    body = f'<outline text="a&#10;b&#x202e;"><outline text="{long}" xmlUrl="{CATS}"/></outline>'
    (feed,) = parse(_opml(body)).feeds
    assert feed.folder == "a b"
    assert len(feed.title) == 1_000


@pytest.mark.parametrize(
    "body",
    [b"", b"   ", b"hello", b"\0\1\2", b"<!-- only -->", b"{}", bytes(range(256)), b"<", b"<?xml version='1.0'?>"],
)
def test_a_file_that_is_not_xml_is_refused(body: bytes) -> None:
    assert "no tag" in _error_of(body)


def test_a_file_that_is_not_opml_is_refused() -> None:
    assert "<html>" in _error_of(b"<html><body><p>Log in</p></body></html>")


@pytest.mark.parametrize(
    "body",
    [
        '<!DOCTYPE o [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><opml><body><outline text="&b;"/></body></opml>',
        '<!DOCTYPE o [<!ENTITY x SYSTEM "file:///etc/passwd">]><opml><body>&x;</body></opml>',
        '<!DOCTYPE o [<!ENTITY % x SYSTEM "http://127.0.0.1:1/">%x;]><opml/>',
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_entities_are_not_expanded(body: str, encoding: str) -> None:
    assert "entities" in _error_of(body.encode(encoding))


def test_a_dtd_is_not_loaded() -> None:
    body = f'<!DOCTYPE opml SYSTEM "file:///etc/passwd"><opml><body><outline text="x" xmlUrl="{CATS}"/></body></opml>'
    assert parse(body.encode()) == OpmlDocument((OpmlSubscription(CATS, "x"),), lines=(1,))


def test_the_line_of_a_feed_is_where_it_occurs_first() -> None:
    dogs = '<outline text="Dogs" xmlUrl="https://dogs.example/"/>'
    body = f'<opml><body>\n<outline text="Cats" xmlUrl="{CATS}"/>\n\n{dogs}<outline text="Cats"\n xmlUrl="{CATS}"/>\n'
    outline = parse(body.encode())
    assert list(zip([feed.url for feed in outline.feeds], outline.lines, strict=True)) == [
        (CATS, 2),
        ("https://dogs.example/", 4),
    ]


def test_every_line_with_a_problem_is_reported() -> None:
    outline = parse(_opml("\n".join(f'<outline text="{n}" xmlUrl="ftp://example.org/{n}"/>' for n in range(500))))
    assert len(outline.problems) == 500


def test_nesting_of_folders_is_limited() -> None:
    depth = 100
    body = '<outline text="f">' * depth + f'<outline text="deep" xmlUrl="{CATS}"/>' + "</outline>" * depth
    outline = parse(_opml(f'{body}<outline text="flat" xmlUrl="https://flat.example/"/>'))
    assert [feed.title for feed in outline.feeds] == ["flat"]
    assert len(outline.problems) == depth - MAX_DEPTH + 1


def test_number_of_outlines_is_limited() -> None:
    lines = "\n".join(f'<outline text="{n}" xmlUrl="https://example.org/{n}"/>' for n in range(MAX_OUTLINES + 10))
    outline = parse(_opml(lines))
    assert len(outline.feeds) == MAX_OUTLINES
    assert outline.problems == ("Line 12003: only the first 12,000 outlines are read.",)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "body",
    [
        b"<opml>" + b"<a>" * 1_000_000,
        b"<opml><body><outline " + b" ".join(b'a%d="1"' % n for n in range(40_000)) + b"/></body></opml>",
        b"<opml><body>" + b"<outline/>" * 400_000,
        b"<opml><body>" + b"<o/>" * 1_000_000,
        b"<opml><body><outline text='" + b"x" * 5_000_000 + b"'/></body></opml>",
        b"<opml><body>" + b"&" * 5_000_000,
        b"<opml><body>" + b"<![CDATA[" * 500_000,
        b"<opml><body><outline text='a' xmlUrl='" + b"h" * 20_000 + b"'/></body></opml>",
        b"<opml xmlns:a='" + b"u" * 1_000_000 + b"'><body/></opml>",
    ],
    ids=["open tags", "attributes", "outlines", "elements", "title", "ampersands", "cdata", "address", "namespace"],
)
def test_hostile_files_are_parsed_in_bounded_time(body: bytes) -> None:
    with contextlib.suppress(UserError):
        assert parse(body).feeds == ()


def test_the_writer_produces_opml_2() -> None:
    written = write(
        "Ours <&>",
        [OpmlSubscription(CATS, "Cats & <dogs>", folder="Pets & <co>"), OpmlSubscription("https://x.example/")],
    )
    root = etree.fromstring(written)
    assert (root.tag, root.get("version"), root.findtext("head/title")) == ("opml", "2.0", "Ours <&>")
    outlines = list(root.iter("outline"))
    assert all(outline.get("text") for outline in outlines)
    assert [outline.get("xmlUrl") for outline in outlines] == ["https://x.example/", None, CATS]
    assert [each.get("xmlUrl") for each in root.findall("body/outline[@text='Pets & <co>']/outline")] == [CATS]


def test_folders_whose_names_differ_only_in_case_are_written_as_one() -> None:
    feeds = [OpmlSubscription(f"https://x.example/{n}", folder=name) for n, name in enumerate(("News", "b", "NEWS"))]
    assert [feed.folder for feed in parse(write("Mine", feeds)).feeds] == ["News", "News", "b"]


def test_the_length_of_folders_is_limited() -> None:
    folders = "".join(f"<outline text='{letter * 1_000}'>" for letter in "abcdefghijklmnopqrs")
    path = "p" * 1_000
    feeds = "".join(f"<outline text='{n}' xmlUrl='https://example.org/{path}{n}'/>" for n in range(4_900))
    outline = parse(f"<opml><body>{folders}{feeds}".encode())
    assert 1_000 < len(outline.feeds) < 4_000
    assert {feed.folder for feed in outline.feeds} == {"s" * 99 + "…"}
    assert "outlines are read" in outline.problems[0]
