"""Parallel text: lines stay paired, whatever is in them, and become words and text again."""

import gzip
from pathlib import Path

import pytest

from msbp.tasks.parallel import ParallelText, made_up, merged, read_lines, read_parallel
from msbp.tasks.tokens import TOKENS

SOURCE = (
    b"one\xe2\x80\xa8two .\nthree\xc2\x85four .\nfive\x0bsix\x1cseven .\neight\x00nine .\nten\xe2\x80\xa9 .\n"
    b"last line .\n"
)
TARGET = b"mot hai .\nba bon .\nnam sau bay .\ntam chin .\nmuoi .\ndong cuoi .\n"


def files(folder: Path, *contents: bytes) -> list[Path]:
    paths = [folder / f"{i}.txt" for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def test_only_a_line_feed_ends_a_line(tmp_path):
    text = read_parallel(*files(tmp_path, SOURCE, TARGET))
    assert len(text) == 6 and text.source[0] == "one two ." and text.source[3] == "eight nine ."
    assert (text.source[5], text.references[0][5]) == ("last line .", "dong cuoi .")


def test_byte_order_marks_carriage_returns_and_a_missing_last_line_feed_are_no_words(tmp_path):
    (path,) = files(tmp_path, b"\xef\xbb\xbfT\xc3\xb4i \t kh\xc3\xb4ng\r\n\r\nc\xc3\xb3")
    assert read_lines(path) == ["Tôi không", "", "có"]


def test_gzip_is_read_as_it_lies(tmp_path):
    path = tmp_path / "a.en.gz"
    path.write_bytes(gzip.compress(b"a dog\n\na cat\n"))
    assert read_lines(path) == ["a dog", "", "a cat"]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"a\.en\.gz is no whole gzip file"):
        read_lines(path)


def test_unequal_line_counts_are_refused_with_both(tmp_path):
    with pytest.raises(ValueError, match=r"0\.txt has 6 lines and .*1\.txt has 5: line n of one must"):
        read_parallel(*files(tmp_path, SOURCE, TARGET[10:]))


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"fine\ncaf\xe9\n", r"0\.txt, line 2: not UTF-8"), (b"", r"0\.txt is empty")],
)
def test_a_file_that_is_no_text_is_refused_by_name(tmp_path, content, said):
    with pytest.raises(ValueError, match=said):
        read_lines(*files(tmp_path, content))


def test_texts_with_as_many_references_become_one():
    one, two = ParallelText(["a", "b"], [["1", "2"], ["3", "4"]]), ParallelText(["c"], [["5"], ["6"]])
    assert merged([one, two]) == ParallelText(["a", "b", "c"], [["1", "2", "5"], ["3", "4", "6"]])
    with pytest.raises(ValueError, match="texts with 2, 1 references"):
        merged([one, made_up(2, 0)])


def test_the_made_up_language_turns_words_around_and_has_the_verb_last():
    text = made_up(30, 0)
    for source, target in zip(text.source, text.references[0], strict=True):
        *words, mark = target.split()
        assert sorted(word[::-1] for word in words) == sorted(source.split()[:-1])
        assert mark == source.split()[-1]
        assert words[-1][::-1] in "found moved carried painted saw lost opened drew".split()
    assert made_up(30, 0) == text != made_up(30, 1)


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


def test_tokenised_text_reads_as_usual_again():
    words = "He said &quot; I don &apos;t know ( yet ) , Tim &apos;s here . &quot; AT &amp; T !".split()
    assert TOKENS["spaces"].join(words) == "He said \"I don't know (yet), Tim's here.\" AT & T!"
