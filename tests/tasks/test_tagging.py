"""Tagging: reading, numbers and batches, and the tagger on synthetic sentences."""

from pathlib import Path

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from msbp.config import build, compose
from msbp.models.bilstm import BiLSTM
from msbp.tasks.tagging import Tagging, capitals, suffix
from msbp.tasks.treebanks import Sentence


class Given:
    """A corpus of given sentences."""

    folder: Path
    punctuation = "upos"

    def __init__(self, **splits: list[Sentence]):
        self.splits = splits

    def files(self):
        files = {split: [self.folder / split] for split in self.splits}
        for split, (path,) in files.items():
            path.write_text(repr(self.splits[split]), encoding="utf-8")
        return files

    def read(self, path):
        return self.splits[path.name]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(Given, "folder", tmp_path, raising=False)


def sentence(text: str, source: str = "") -> Sentence:
    """From word/XPOS/UPOS, apart by spaces."""
    words, tags, upos = zip(*(token.split("/") for token in text.split()), strict=True)
    return Sentence(list(words), list(tags), list(upos), [0] * len(words), ["_"] * len(words), source)


TRAIN = [sentence("The/DT/DET Cats/NNS/NOUN sat/VBD/VERB"), sentence("the/DT/DET cat/NN/NOUN sat/VBD/VERB")]
TEST = [sentence("dogs/NNS/NOUN SAT/VBD/VERB !/./PUNCT")]


def tagging(**choices) -> Tagging:
    corpus = Given(train=TRAIN, dev=TEST, test=TEST)
    return Tagging("pos", corpus, **{"batch_size": 2, "vectors": None, "cutoff": 0} | choices)


def tiny(**choices) -> Tagging:
    return tagging(sample="tiny", batch_size=32, **choices)


def test_words_are_lower_cased_and_numbered_and_unknown_ones_are_zero():
    splits = tagging().splits(0)
    the, cats, sat, same, cat, sat_again = splits.train.words.tolist()
    assert the == same and sat == sat_again and cats != cat
    assert splits.test.words.tolist() == [0, sat, 0]
    assert splits.train.lengths.tolist() == [3, 3]
    assert splits.sizes["outputs"] == 5  # the tags of all splits, or a new one in test could not be counted
    assert "test: 1 sentences, 3 words, 2 unknown" in splits.notes


@pytest.mark.parametrize(("tags", "count"), [("xpos", 5), ("upos", 4)])
def test_the_tags_are_chosen_by_key(tags, count):
    assert tagging(tags=tags).splits(0).sizes["outputs"] == count


def test_a_word_without_a_tag_is_an_error_with_its_position():
    corpus = Given(train=[sentence("the/DT/_ cat/NN/_", "some.conllu:7")], dev=TEST, test=TEST)
    with pytest.raises(ValueError, match=r"some.conllu:7: a word without a tag; task.tags=upos"):
        Tagging("pos", corpus, 2, tags="upos", vectors=None).splits(0)


def test_rare_words_are_unknown_unless_they_have_a_vector(tmp_path):
    file = tmp_path / "glove_6b_100d" / "some.txt"
    file.parent.mkdir()
    file.write_text("cats 1 2\ndogs 3 4\nbirds 5 6\n", encoding="utf-8")
    splits = tagging(cutoff=1, vectors="glove_6b_100d", data=tmp_path).splits(0)
    vectors = splits.sizes["vectors"]
    the, cats, sat, _, cat, _ = splits.train.words.tolist()
    assert cat == 0 and len({0, the, cats, sat}) == 4
    assert vectors[cats].tolist() == [1, 2]
    assert vectors[splits.test.words[0]].tolist() == [3, 4]  # training does not show it
    assert len(vectors) == splits.sizes["vocabulary"] == 5  # no birds


def test_a_cutoff_that_makes_all_words_unknown_is_refused():
    with pytest.raises(ValueError, match=r"task\.cutoff=2 makes every word unknown: .* lower it"):
        tagging(cutoff=2).splits(0)


def test_missing_vectors_are_an_error_with_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"task.vectors=null model.embedding=random"):
        tagging(vectors="glove_6b_100d", data=tmp_path).splits(0)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("the", "none"), ("The", "first"), ("I", "first"), ("USA", "all"), ("McDonald", "some"), ("5", "none"),
     ("U.S.", "all"), ("iPhone", "some"), ("Él", "first"), ("-LRB-", "all")],
)  # fmt: skip
def test_capitalization_has_four_classes(word, kind):
    assert capitals(word) == kind


def test_a_suffix_is_lower_cased_and_has_digits_replaced():
    assert [suffix(word, 3) for word in ("Running", "USA", "a", "1987", "30th")] == [
        "ing",
        "usa",
        "a",
        "000",
        "0th",
    ]


def test_features_are_left_out_by_key():
    for features, count in ((["suffixes", "capitals"], 2), (["suffixes"], 1), ([], 0)):
        task = tiny(features=features)
        splits = task.splits(0)
        assert splits.train.features.shape == (len(splits.train.words), count)
        assert list(splits.sizes["features"]) == features
        model = BiLSTM(**splits.sizes, hidden=4, widths={"capitals": 2, "suffixes": 3})
        assert torch.isfinite(task.loss(model, next(iter(task.batches(splits.train, 0, 0)))))


def test_every_sentence_is_in_one_batch_once_with_its_tags():
    task = tiny(bucket=2)
    train = task.splits(0).train
    words = []
    for batch, _, sizes, tags in task.batches(train, 0, 0):
        columns = (batch, tags)
        padded = [pad_packed_sequence(PackedSequence(t, sizes), padding_value=-1)[0].T for t in columns]
        assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)
        words += [list(zip(*rows, strict=True)) for rows in zip(*(t.tolist() for t in padded), strict=True)]
    result = sorted([pair for pair in row if pair != (-1, -1)] for row in words)
    ends = train.lengths.cumsum(0).tolist()
    pairs = list(zip(train.words.tolist(), train.tags.tolist(), strict=True))
    assert result == sorted(pairs[end - n : end] for end, n in zip(ends, train.lengths.tolist(), strict=True))


def test_the_order_depends_on_seed_and_epoch_alone():
    task = tiny()
    train = task.splits(0).train

    def first(seed, epoch):
        torch.manual_seed(seed + 7 * epoch + torch.initial_seed() % 3)
        return [batch[0].tolist() for batch in task.batches(train, seed, epoch)]

    assert first(1, 2) == first(1, 2)
    assert first(1, 2) != first(1, 3) != first(2, 3)


def test_the_sentences_of_a_batch_are_of_about_one_length():
    def spread(bucket: int) -> int:
        """The words by which the longest sentences exceed the shortest of their batch."""
        batches = task.batches(train, 0, 0)
        return sum(len(sizes) - int((sizes == sizes[0]).sum()) for _, _, sizes, _ in batches)

    task = tiny()
    train = task.splits(0).train
    alone = spread(task.bucket)
    task.bucket = 1
    assert 2 * alone < spread(task.bucket)


def test_a_tagger_learns_the_synthetic_tags_and_is_scored_per_word():
    task = tiny()
    splits = task.splits(0)
    torch.manual_seed(0)
    model = BiLSTM(**splits.sizes, hidden=16, dropout=0.1, widths={"capitals": 2, "suffixes": 4})
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for epoch in range(5):
        for batch in task.batches(splits.train, 0, epoch):
            optimizer.zero_grad()
            task.loss(model, batch).backward()
            optimizer.step()
    score = task.score(model.eval(), splits.test)
    assert score.value > 95
    assert score.signature == "accuracy per word, xpos"
    right = 0
    for words, features, sizes, tags in task.batches(splits.test, 0, 0):
        right += int((model(words, features, sizes).argmax(1) == tags).sum())
    assert score.value == pytest.approx(100 * right / len(splits.test.words))


def test_the_hidden_size_is_of_each_direction_or_of_both():
    sizes = {"vocabulary": 9, "features": {}, "outputs": 3, "vectors": None, "embedding": "random"}
    assert BiLSTM(**sizes, hidden=6).lstm.hidden_size == 6
    assert BiLSTM(**sizes, hidden=6, hidden_is="total").lstm.hidden_size == 3
    with pytest.raises(ValueError, match="must be even, got 7"):
        BiLSTM(**sizes, hidden=7, hidden_is="total")


def test_the_licensed_corpus_is_an_error_that_names_what_is_open(tmp_path):
    cfg = compose(["task=pos", f"paths.ptb={tmp_path}"])
    with pytest.raises(FileNotFoundError, match=r"LDC99T42.*task=pos_ptb_sample"):
        build(cfg.task).splits(0)


@pytest.mark.data
@pytest.mark.parametrize(
    ("task", "words", "tags"),
    [("pos_ptb_sample", (81938, 6368, 5778), 45), ("pos_ewt", (204577, 25147, 25094), 17)],
)
def test_the_open_corpora_are_read_completely(task, words, tags):
    splits = build(compose([f"task={task}", "paths.offline=true"]).task).splits(0)
    assert tuple(len(part.words) for part in (splits.train, splits.dev, splits.test)) == words
    assert splits.sizes["outputs"] == tags
