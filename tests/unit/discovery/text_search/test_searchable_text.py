"""The words by which a document is found, and their weights."""

from hypothesis import given
from hypothesis import strategies as st

from service.discovery.content_names import entry_text
from service.discovery.queries.query import WordCondition
from service.discovery.text_search.searchable_text import MAX_TEXT_STEMS, MAX_TITLE_STEMS, SearchableText
from service.discovery.word_analysis import fold, query_stems
from service.model import Entry


def weights(title: str = "", text: str = "", tags: tuple[str, ...] = ()) -> dict[str, int]:
    return entry_text(Entry("1", title, summary=text, tags=tags), "en").weights()


def test_a_word_of_the_title_weighs_more_than_one_of_the_text() -> None:
    found = weights("Volcanoes", "Ash covers the island", ("geology",))
    assert found["volcano"] > found["geolog"] > found["ash"] > 0


def test_a_word_weighs_more_in_a_short_text_and_if_it_is_repeated() -> None:
    short, long = weights(text="ash"), weights(text=f"ash {'filler ' * 80}")
    assert short["ash"] > long["ash"]
    assert weights(text="ash ash lava")["ash"] > weights(text="ash lava lava")["ash"]


def test_the_number_of_words_is_bounded_and_function_words_are_dropped_first() -> None:
    many = " ".join(f"w{n:03}" for n in range(200))
    found = weights(many, f"{many.replace('w', 'v')} about into without")
    assert len(found) == MAX_TITLE_STEMS + MAX_TEXT_STEMS
    assert not {"about", "into"} & found.keys()
    assert all(0 < weight <= 255 for weight in found.values())


def test_registered_words_have_the_stems_of_the_name() -> None:
    text = entry_text(Entry("1", "Volcanoes of Iceland", summary="Node.js"), "en")
    assert text.registered_words() == {
        "volcanoes": "volcano",
        "iceland": "iceland",
        "node.js": "node.js",
        "node": "node",
        "js": "js",
    }


WORDS = st.sampled_from(
    [
        "cry",
        "cries",
        "cried",
        "uber",
        "ueber",
        "über",
        "laufen",
        "lauft",
        "läuft",
        "nation",
        "national",
        "node.js",
        "node",
        "js",
        "news",
        "neues",
        "new",
        "2024",
        "日本",
    ]
)


@given(st.lists(WORDS, max_size=5), WORDS, st.sampled_from(["", "en", "de", "fr", "nl"]))
def test_a_text_has_the_same_words_with_and_without_its_source(title: list[str], word: str, language: str) -> None:
    quick = entry_text(Entry("1", " ".join(title)), language)
    analysed = SearchableText(lambda: quick.fields, language)
    condition = WordCondition(fold(word))
    assert quick.satisfies(condition) == analysed.satisfies(condition)
    assert analysed.satisfies(condition) or not quick.has_title_word(condition.word)
    assert all(quick.has_stem(each) is (each in analysed.stems) for each in query_stems(condition.word))
