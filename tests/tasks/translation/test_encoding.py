"""Tokenisation, from lines to words and back, and the numbers of words."""

import pytest

from msbp.tasks.translation.encoding import EOS, PAD, SPECIAL, TOKENS, UNK, Words, count_words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Ein Mann, (alt), geht.", "Ein Mann ￭, (￭ alt ￭) ￭, geht ￭."),
        ("»Halt!« – T-Shirt's …", "»￭ Halt ￭! ￭« – T-Shirt's …"),
        ("", ""),
    ],
)
def test_punctuation_at_edges_is_cut_and_joined_again(line, words):
    split, join = TOKENS["edges"]
    assert split(line) == words.split() and join(split(line)) == line


def test_detokenised_text_has_the_usual_spaces():
    words = "He said &quot; I don &apos;t know ( yet ) , Tim &apos;s here . &quot; AT &amp; T !".split()
    assert TOKENS["spaces"].join(words) == "He said \"I don't know (yet), Tim's here.\" AT & T!"


def test_a_vocabulary_counts_like_the_published_lists_and_knows_no_marks_of_the_text():
    sentences = ["b b b a a </s> <unk> c".split()] * 2
    assert count_words(sentences).words == [*SPECIAL, "b", "a", "c"]
    assert count_words(sentences, most=5).words == [*SPECIAL, "b", "a"]
    assert count_words(sentences, min_count=4).words == [*SPECIAL, "b", "a"]
    assert count_words(sentences).encode(["a", "</s>", "<pad>", "zebra"]) == [5, UNK, UNK, UNK]
    assert count_words(sentences).decode([4, 5, EOS, 4, PAD]) == ["b", "a"]
    with pytest.raises(ValueError, match="a vocabulary begins with <pad>, <unk>"):
        Words(["a", "b"])
