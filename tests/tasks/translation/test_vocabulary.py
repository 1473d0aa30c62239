"""Tokenisation: from lines to words and back."""

import pytest

from msbp.tasks.translation.vocabulary import TOKENS


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
