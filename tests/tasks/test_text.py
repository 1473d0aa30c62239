"""Word vectors with unusual tokens, and vocabularies."""

import gzip
import os
import ssl
from pathlib import Path

import pytest
import torch

from msbp.tasks.text import UNKNOWN, WordVectors, find_vectors, vocabulary

ODD = (
    b"the 0.1 0.2 0.3 0.4 0.5\n"
    b". . -0.1 -0.2 -0.3 -0.4 -0.5\n"
    b"\xc2\x85 1 2 3 4 5\n"
    b"a\xc2\xa0b 5 4 3 2 1\n"
    b"0.5 0.5 0.5 0.5 0.5 0.5\n"
    b"to name@example.invalid 9 8 7 6 5\n"
    b"-lrb- 0 1 0 1 0\n"
    b"cat 0.7 0.7 0.7 0.7 0.7\n"
)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    path = tmp_path / "glove.5d.txt"
    path.write_bytes(ODD)
    return path


def test_tokens_with_spaces_and_line_ends_inside_are_read_whole(odd):
    vectors = WordVectors(odd)
    assert vectors.itos == ["the", ". .", "\x85", "a\xa0b", "0.5", "to name@example.invalid", "-lrb-", "cat"]
    assert (vectors.dim, len(vectors), vectors.skipped) == (5, 8, 0)
    torch.testing.assert_close(vectors["the"], torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5]))
    torch.testing.assert_close(vectors[". ."], torch.tensor([-0.1, -0.2, -0.3, -0.4, -0.5]))
    torch.testing.assert_close(vectors["0.5"], torch.full((5,), 0.5))


def test_lines_that_hold_no_vector_are_skipped_and_counted(odd):
    broken = b"short 1 2\nword 1 2 x 4 5\n\xff 1 2 3 4 5\n\nlow 1 nan 3 4 5\nhigh 1 1e40 3 4 5\n"
    odd.write_bytes(b"8 5\n" + ODD + broken)
    vectors = WordVectors(odd)
    assert (len(vectors), vectors.skipped) == (8, 7)
    assert vectors.note() == "8 words have a vector of width 5, 7 lines left out"


def test_a_gzip_file_is_read_and_only_requested_words_are_kept(odd, tmp_path):
    packed = tmp_path / "glove.txt.gz"
    packed.write_bytes(gzip.compress(ODD))
    assert WordVectors(packed, {"cat", "the", "nowhere"}).itos == ["the", "cat"]


def test_a_word_given_twice_keeps_its_first_vector(odd):
    odd.write_bytes(ODD + b"cat 9 9 9 9 9\n")
    torch.testing.assert_close(WordVectors(odd)["cat"], torch.full((5,), 0.7))


def test_spaces_at_the_end_of_lines_lose_no_word(odd):
    odd.write_bytes(ODD + b"dog 1 2 3 4 5 \ndog 9 9 9 9 9\n")
    assert WordVectors(odd)["dog"].tolist() == [1, 2, 3, 4, 5]
    odd.write_bytes(b"2 5\n" + b"cat 0 1 0 1 0 \ndog 1 2 3 4 5 \n")  # as word2vec writes them
    assert (WordVectors(odd).itos, WordVectors(odd).dim) == (["cat", "dog"], 5)


@pytest.mark.parametrize("end", [b"dog 1 2", b"dog 1 2 3 4 0.", b"dog", b"dog 1 2 3 4 5"])
@pytest.mark.parametrize("words", [None, {"the"}])
def test_a_file_that_ends_within_a_line_is_refused_with_its_line(odd, tmp_path, end, words):
    odd.write_bytes(ODD + end)
    with pytest.raises(ValueError, match=r"glove\.5d\.txt:9: the file ends within this line"):
        WordVectors(odd, words)
    packed = tmp_path / "glove.txt.gz"
    packed.write_bytes(gzip.compress(ODD + end))
    with pytest.raises(ValueError, match=r"glove\.txt\.gz:9: the file ends within this line"):
        WordVectors(packed, words)


def test_a_file_with_fewer_vectors_than_its_header_says_is_refused(odd):
    odd.write_bytes(b"9 5\n" + ODD)
    with pytest.raises(ValueError, match=r"glove\.5d\.txt:9: the file ends after 8 of 9 vectors"):
        WordVectors(odd)


@pytest.mark.parametrize("content", [b"", b"word\nother\n", bytes(100), b"a text without numbers\n"])
def test_a_file_without_vectors_is_refused(odd, content):
    odd.write_bytes(content)
    with pytest.raises(ValueError, match=r"glove\.5d\.txt holds no word vectors"):
        WordVectors(odd)


def test_a_file_without_a_vector_for_any_word_of_the_task_is_refused(odd):
    with pytest.raises(ValueError, match=r"glove\.5d\.txt holds no word vectors for the words of this task"):
        WordVectors(odd, {"nowhere"})


@pytest.mark.parametrize(
    "damage", [lambda packed: ODD, lambda packed: packed[:-20], lambda packed: packed[:-8] + bytes(8),
               lambda packed: packed[:20] + bytes(20) + packed[40:]],
    ids=["not packed", "cut", "wrong checksum", "overwritten"],
)  # fmt: skip
def test_a_damaged_packed_file_is_refused_by_name(tmp_path, damage):
    packed = tmp_path / "glove.txt.gz"
    packed.write_bytes(damage(gzip.compress(ODD)))
    with pytest.raises(ValueError, match=r"glove\.txt\.gz is damaged .*get it anew"):
        WordVectors(packed)


def test_reading_writes_nothing_and_leaves_tls_checks_on(odd):
    before = ssl._create_default_https_context
    WordVectors(odd)
    assert ssl._create_default_https_context is before
    assert list(odd.parent.iterdir()) == [odd]


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path):
    (tmp_path / "v.txt").write_bytes("\ufeffthe 1 2\ncat 3 4\n".encode())
    assert WordVectors(tmp_path / "v.txt").itos == ["the", "cat"]


def test_a_vocabulary_puts_frequent_words_first_and_unknown_ones_at_zero():
    words = vocabulary([["a", "cat"], ["a", "dog", "cat", "a"]])
    assert words.itos == [UNKNOWN, "a", "cat", "dog"]
    assert words["nowhere"] == 0 and words.vectors is None
    assert vocabulary([["a", "cat"], ["a", "dog"]], min_count=2).itos == [UNKNOWN, "a"]


def test_words_without_a_vector_get_one_that_depends_on_the_seed_alone(odd):
    result = [vocabulary([["the", "dog"]], WordVectors(odd), seed).vectors for seed in (1, 1, 2)]
    assert torch.equal(result[0], result[1]) and not torch.equal(result[0], result[2])
    torch.testing.assert_close(result[0][2], torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5]))
    assert result[0][1].abs().max() <= 0.25 and result[0][1].std() > 0


def test_full_vectors_are_preferred_to_reduced_ones_and_missing_ones_are_an_error(tmp_path):
    folder = tmp_path / "glove_6b_100d"
    with pytest.raises(FileNotFoundError, match="no word vectors .* put glove"):
        find_vectors(tmp_path)
    folder.mkdir()
    (folder / "a folder.txt").mkdir()
    for name in ("LICENSE.txt", "glove.6B.100d.reduced.txt.gz", "README.md", "glove.6B.100d.txt"):
        (folder / name).touch()
    assert find_vectors(tmp_path).name == "glove.6B.100d.txt"


@pytest.mark.data
def test_the_real_vectors_are_read_completely():
    vectors = WordVectors(find_vectors(os.environ["MSBP_DATA_DIR"]), {"the", "film", "'s"})
    assert len(vectors) == 3 and vectors.dim == 100 and vectors.skipped == 0
