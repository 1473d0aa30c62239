"""Labelled sentences: files in old encodings, folds, batches, and the tasks that read them."""

import gzip
import os
import subprocess
import sys
import types
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from msbp.tasks.sentences import (
    SentenceClassification,
    Sentences,
    cross_validation,
    fixed_split,
    read_corpus,
    read_lines,
    stratified_folds,
)

NEGATIVE = (
    b"a clich\xe9 from start to end .\n\n"
    b"too long \x97 and too loud .\n"
    b"wait \x85 what was that ?\n"
    b"no wit , no heart\r\n"
)
POSITIVE = b"a gem with d\xe9cor to match .\nna\xefve but charming .\nsimply good fun .\n"
FILES = ["neg.txt", "pos.txt"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    folder.mkdir()
    for name, words in zip(FILES, ("bad", "good"), strict=True):
        lines = [f"{words} film number {i}" for i in range(30)]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def task(data: Path, **changes) -> SentenceClassification:
    settings = {"batch_size": 4, "folder": "set", "files": FILES, "hub": "owner/set"}
    return SentenceClassification(
        "made", data=data, **settings | {"vectors": None, "offline": True} | changes
    )


def hub(monkeypatch: pytest.MonkeyPatch, answer) -> None:
    """Replace the package that fetches by a stand-in."""
    fetcher = types.ModuleType("datasets")
    fetcher.load_dataset = answer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", fetcher)


def test_latin_1_is_detected_and_its_control_characters_do_not_split_lines(tmp_path):
    for name, content in zip(FILES, (NEGATIVE, POSITIVE), strict=True):
        (tmp_path / name).write_bytes(content)
    negative, positive = (read_lines(tmp_path / name) for name in FILES)
    assert (len(negative.sentences), len(positive.sentences)) == (4, 3)
    assert negative.sentences[0][1] == "cliché" and positive.sentences[0][3] == "décor"
    assert positive.sentences[1][0] == "naïve"
    assert negative.sentences[2] == "wait what was that ?".split()
    assert negative.sentences[3] == ["no", "wit", ",", "no", "heart"]
    assert (negative.encoding, negative.blank, negative.controls) == ("Latin-1", 1, 2)


def test_the_contents_of_the_files_are_reported(tmp_path):
    (tmp_path / "neg.txt").write_bytes(NEGATIVE)
    (tmp_path / "pos.txt").write_bytes("décor\n\ndécor\n".encode())
    notes = read_corpus([tmp_path / name for name in FILES]).notes
    assert "4 sentences in Latin-1; 1 blank lines left out, 2 control characters" in notes[0]
    assert "2 sentences in UTF-8; 1 blank lines" in notes[1] and notes[2].startswith("1 repeated lines")


def test_a_file_without_sentences_is_refused(tmp_path):
    (tmp_path / "pos.txt").write_bytes(b"\n \n")
    with pytest.raises(ValueError, match="holds no sentence"):
        read_lines(tmp_path / "pos.txt")


@pytest.mark.parametrize(
    "content", ["a film\n".encode("utf-16"), gzip.compress(b"a film\n", mtime=0), b"good\n\0"]
)
def test_files_that_hold_no_text_are_refused_by_line(tmp_path, content):
    (tmp_path / "pos.txt").write_bytes(content)
    with pytest.raises(ValueError, match=r"pos\.txt:[12]: a NUL character; expected text in UTF-8"):
        read_lines(tmp_path / "pos.txt")


def test_a_class_with_fewer_sentences_than_folds_is_refused_by_file(data):
    (data / "set" / "pos.txt").write_bytes(b"good film\n" * 9)
    with pytest.raises(ValueError, match=r"pos\.txt holds 9 sentences, at least 10 are needed"):
        task(data).splits(0)


def test_the_c_locale_reads_the_same(tmp_path):
    (tmp_path / "pos.txt").write_bytes("naïve — déjà vu\n".encode())
    program = "import sys; from pathlib import Path; from msbp.tasks.sentences import read_lines;"
    program += "print(ascii(read_lines(Path(sys.argv[1])).sentences))"
    plain = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", program, str(tmp_path / "pos.txt")]
    done = subprocess.run(command, env=os.environ | plain, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ascii([["naïve", "—", "déjà", "vu"]])


def test_ten_folds_cover_every_line_once_and_share_the_classes_evenly():
    labels = [1] * 11 + [0] * 10
    tests = [cross_validation(labels, seed)[2] for seed in range(10)]
    assert sorted(int(i) for part in tests for i in part) == list(range(21))
    for part in tests:
        counts = Counter(labels[i] for i in part)
        assert counts[1] in (1, 2) and counts[0] == 1


@pytest.mark.parametrize("protocol", [cross_validation, fixed_split])
def test_train_dev_and_test_are_disjoint_and_complete(protocol):
    labels = [0, 1] * 50 + [1] * 7
    for seed in (0, 3, 12):
        train, dev, test = (set(part.tolist()) for part in protocol(labels, seed))
        assert train | dev | test == set(range(107)) and len(train) + len(dev) + len(test) == 107
        assert 9 <= len(dev) <= 11 and 10 <= len(test) <= 11


def test_folds_change_with_the_seed_and_shuffle_anew_after_ten():
    labels = [0, 1] * 40
    first, second, eleventh = (set(cross_validation(labels, seed)[2].tolist()) for seed in (0, 1, 10))
    assert not first & second and first != eleventh
    assert (stratified_folds(labels, 10, 0) == stratified_folds(labels, 10, 0)).all()


def test_a_fixed_split_is_the_same_for_every_seed():
    assert all(
        (a == b).all() for a, b in zip(fixed_split([0, 1] * 30, 0), fixed_split([0, 1] * 30, 7), strict=True)
    )


def test_a_batch_is_words_end_to_end_with_the_offsets_of_sentences():
    split = Sentences(
        [torch.tensor([1, 2, 3]), torch.tensor([4]), torch.tensor([5, 6])], torch.tensor([0, 1, 1])
    )
    words, offsets, labels = split.batch(torch.tensor([2, 0]))
    assert words.tolist() == [5, 6, 1, 2, 3]
    assert offsets.tolist() == [0, 2, 5]
    assert labels.tolist() == [1, 0]


def test_batches_depend_on_seed_and_epoch_alone(data):
    result = task(data)
    train = result.splits(0).train
    order = [
        torch.cat([y for *_, y in result.batches(train, seed, epoch)])
        for seed, epoch in ((0, 0), (0, 0), (0, 1))
    ]
    assert torch.equal(order[0], order[1]) and not torch.equal(order[0], order[2])
    assert len(order[0]) == len(train)


def test_all_words_of_a_sentence_are_kept_and_unknown_ones_are_zero(data):
    """Without vectors only words of the training part have a number."""
    splits = task(data).splits(3)
    assert all(len(words) == 4 for part in (splits.train, splits.dev, splits.test) for words in part.words)
    assert all((words > 0).all() for words in splits.train.words)
    assert 0 < splits.sizes["vocabulary"] <= 4 + 30


def test_a_word_of_the_test_part_may_use_its_vector(data):
    folder = data / "vectors"
    folder.mkdir()
    words = ["film", "bad", *map(str, range(30))]
    (folder / "some.txt").write_text("".join(f"{word} 1 2 3\n" for word in words), encoding="utf-8")
    splits = task(data, vectors="vectors").splits(3)
    assert splits.sizes["vectors"].shape == (splits.sizes["vocabulary"], 3)
    assert all((words[[1, 3]] > 0).all() for words in splits.test.words)
    assert "32 of 34 words have a vector of width 3, 0 lines left out" in splits.notes


def test_scores_are_in_percent_with_the_protocol_in_their_signature(data):
    class Positive(nn.Linear):
        def forward(self, words, offsets):
            return torch.tensor([0.0, 1.0]).expand(len(offsets) - 1, 2)

    result = task(data)
    score = result.score(Positive(1, 1), result.splits(0).test)
    assert score.value == 50.0 and score.signature == "accuracy, cross_validation"


def test_missing_files_are_named_with_the_remedy(data):
    (data / "set" / "pos.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"no pos\.txt under .*set, and paths\.offline=true: put the"):
        task(data).splits(0)


def test_files_can_come_from_the_hub(data, monkeypatch):
    rows = [
        {"text": f"{'bad' if i % 2 else 'good'} — number {i}\u2028x", "label": (i + 1) % 2} for i in range(40)
    ]
    hub(monkeypatch, lambda name: {"train": rows[:30], "test": rows[30:]})
    for name in FILES:
        (data / "set" / name).unlink()
    splits = task(data, offline=False).splits(0)
    assert sum(map(len, (splits.train, splits.dev, splits.test))) == 40
    lines = (data / "set" / "neg.txt").read_bytes().decode().split("\n")
    assert len(lines) == 21 and lines[0] == "bad — number 1 x"


def test_an_unreachable_hub_is_reported_with_the_remedy(data, monkeypatch):
    def fails(name):
        raise ConnectionError("no network")

    hub(monkeypatch, fails)
    (data / "set" / "pos.txt").unlink()
    with pytest.raises(OSError, match=r"no pos\.txt .*, and owner/set could not be fetched \(no network\)"):
        task(data, offline=False).splits(0)


@pytest.mark.data
@pytest.mark.parametrize(
    ("folder", "files", "size"),
    [
        ("mr", ["rt-polarity.neg", "rt-polarity.pos"], 10662),
        ("subj", ["plot.tok.gt9.5000", "quote.tok.gt9.5000"], 10000),
    ],
)
def test_the_real_corpora_are_read_completely(folder, files, size):
    corpus = read_corpus([Path(os.environ["MSBP_DATA_DIR"], folder, name) for name in files])
    assert len(corpus.sentences) == size and corpus.notes[-1].startswith("0 repeated lines")
