"""Similar words: the fast test for letters leaves out no word that a full comparison finds."""

from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from service.discovery.text_search.vocabulary import MIN_TWO_TYPOS_CHARS, MIN_TYPO_CHARS, Vocabulary

words = st.text("abcdefg", min_size=MIN_TYPO_CHARS - 2, max_size=MIN_TWO_TYPOS_CHARS + 2)


@given(st.sets(words, max_size=30), words.filter(lambda word: len(word) >= MIN_TYPO_CHARS), st.data())
def test_similar_words_are_those_of_a_full_comparison(known: set[str], word: str, data: st.DataObject) -> None:
    letters = list(word)
    for _ in range(data.draw(st.integers(0, 2))):  # a misspelling of the word, which most random words are not
        letters[data.draw(st.integers(0, len(letters) - 1))] = data.draw(st.sampled_from(["", "x", "yz"]))
    known = {each for each in known | {"".join(letters)} if each}
    tolerated = 1 + (len(word) >= MIN_TWO_TYPOS_CHARS)
    expected = {each for each in known - {word} if OSA.distance(word, each) <= tolerated}
    found = Vocabulary((each, each) for each in known).similar(word, 100)
    assert {each.word for each in found} == expected
    assert [each.distance for each in found] == sorted(OSA.distance(word, each.word) for each in found)
