"""Full texts of the entries in a new version."""

from service.feeds.canonical_urls import channel_id
from service.model import Change, Channel, Delta, Entry
from workers.ownership.full_texts import add_full_texts

ARTICLE = "The whole article. " * 50


class Web:
    """Pages with articles; records which pages are read."""

    def __init__(self, *missing: str) -> None:
        self.missing = missing
        self.read: list[Channel] = []

    async def article(self, page: Channel) -> str:
        self.read.append(page)
        return "" if page.url in self.missing else f"{page.url}: {ARTICLE}"


def url(number: int) -> str:
    return f"https://example.org/{number}"


def delta(*changes: Change) -> Delta:
    return Delta("c" * 40, 1, 0, 1e9, changes)


def added(number: int, summary: str = "Own text.") -> Change:
    return Change("addition", Entry(str(number), "Title", url(number), summary))


async def full_texts(web: Web, *changes: Change, is_private: bool = False) -> list[str]:
    found = await add_full_texts(delta(*changes), web.article, is_private=is_private)
    assert [change.entry.summary for change in found.changes] == [change.entry.summary for change in changes]
    return [change.entry.full_text.partition(": ")[0] for change in found.changes]


async def test_entries_get_the_articles_to_which_they_link() -> None:
    edited = Change("replacement", Entry("2", "Title", url(2)))
    assert await full_texts(Web(), added(1), edited) == [url(1), url(2)]


async def test_at_most_five_articles_of_a_version_are_read() -> None:
    web = Web()
    assert await full_texts(web, *map(added, range(8))) == [*map(url, range(5)), "", "", ""]
    assert len(web.read) == 5


async def test_an_article_that_is_missing_or_shorter_than_the_own_text_is_left_out() -> None:
    long = "word " * 350
    assert await full_texts(Web(url(1)), added(1), added(2), added(3, long)) == ["", url(2), ""]


async def test_the_title_of_the_entry_is_not_repeated() -> None:
    async def article(_page: Channel) -> str:
        return f"Title {ARTICLE}"

    found = await add_full_texts(delta(added(1)), article, is_private=False)
    assert found.changes[0].entry.full_text == ARTICLE


async def test_the_article_of_an_entry_with_a_long_text_is_not_read() -> None:
    web = Web()
    assert await full_texts(web, added(1, "x" * 2_000)) == [""]
    assert not web.read


async def test_a_page_is_read_once_without_its_fragment() -> None:
    web = Web()
    link = "https://example.org/news#part"
    assert (
        await full_texts(web, *(Change("addition", Entry(key, link=link)) for key in "ab"))
        == ["https://example.org/news"] * 2
    )
    assert [page.id for page in web.read] == [channel_id("https://example.org/news")]


async def test_changed_lines_of_pages_and_entries_without_links_have_no_article() -> None:
    web = Web()
    line = Change("addition", Entry("1", link=url(1), summary="A line."), line=3)
    assert await full_texts(web, line, Change("addition", Entry("2")), Change("omission", Entry("3", link=url(3)))) == [
        *("", "", "")
    ]
    assert not web.read


async def test_only_a_private_feed_may_link_to_private_addresses() -> None:
    for is_private in (False, True):
        web = Web()
        await full_texts(web, added(1), is_private=is_private)
        (page,) = web.read
        assert (bool(page.created_s), page.private) == (not is_private, False)
