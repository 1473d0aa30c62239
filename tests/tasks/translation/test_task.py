"""The translation task: its training pairs, batches and scores."""

import math
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from msbp.models.seq2seq import Seq2Seq
from msbp.optim import Adam
from msbp.sparse import convert
from msbp.tasks.translation.bitext import EnglishGerman, read_texts
from msbp.tasks.translation.encoding import BOS, EOS, PAD, SPECIAL, UNK, Words
from msbp.tasks.translation.task import SOURCE_WORDS, TARGET_WORDS, Translation


class Given:
    """A corpus of given lines: of each split a source and references."""

    folder: Path

    def __init__(self, **splits):
        self.texts = {split: [self.write(split, i, lines) for i, lines in enumerate(sides)]
                      for split, sides in splits.items()}  # fmt: skip

    def write(self, split, i, lines):
        path = self.folder / f"{id(self)}.{split}.{i}"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    def files(self):
        return {split: [paths] for split, paths in self.texts.items()}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(Given, "folder", tmp_path, raising=False)


TRAIN = (["A b c", "", "b", "x x x x x", "b b"], ["eins zwei drei", "leer", "zwei", "lang", ""])
TEST = (["b b", "", "B zebra"], ["zwei zwei", "nichts", "Zwei , Zebra"], ["zwei", "leer", "zwei Zebra"])


def task(**choices) -> Translation:
    corpus = Given(train=TRAIN, dev=(["b"], ["zwei"]), test=TEST)
    return Translation("made", corpus, **{"batch_size": 2, "longest": 4} | choices)


def tiny(**choices) -> Translation:
    return task(sample="tiny", **{"batch_size": 16, "longest": 50} | choices)


class Copier(nn.Module):
    """Translates a sentence of n words by n times the word numbered `word`."""

    def __init__(self, word: int = len(SPECIAL)):
        super().__init__()
        self.word, self.unused = word, nn.Parameter(torch.zeros(1))
        self.seen: list[int] = []

    def encode(self, source, lengths):
        self.seen += lengths.tolist()
        return Left(lengths)

    def step(self, tokens, state):
        wished = torch.where(state.words > 0, self.word, EOS)
        logits = nn.functional.one_hot(wished, 20) * 50.0
        return logits.log_softmax(1), Left(state.words - 1)

    def loss(self, source, lengths, given, expected):
        return self.unused + (expected != PAD).sum()


class Left:
    """The number of words that each row still lacks."""

    def __init__(self, words):
        self.words = words

    def select(self, index):
        return Left(self.words[index])


def test_pairs_that_cannot_be_learnt_from_are_left_out_and_counted():
    splits = task().splits(0)
    assert len(splits.train) == 2 and len(splits.test) == 3
    assert splits.notes[0] == "train: left out 2 pairs with an empty side and 1 of more than 4 words"
    assert splits.notes[3] == "test: 3 pairs, 4 words (2 unknown) to 6 (4 unknown)"
    with pytest.raises(ValueError, match="no training pair has 1 to 1 words on both sides: task.longest"):
        Translation("made", Given(train=(["a b"], ["c d"])), 2, longest=1).splits(0)


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("blank", [(["b", ""], ["", "b"]), ([""], ["b"]), (["b"], [""])])
def test_a_split_that_cannot_be_scored_is_refused_before_training(split, blank):
    texts = {"train": TRAIN, "dev": TEST, "test": TEST, split: blank}
    with pytest.raises(ValueError, match=f"no {split} pair of {len(blank[0])} has words on both sides"):
        Translation("made", Given(**texts), 2).splits(0)


@pytest.mark.parametrize("alpha", [0, 5, 5.0])
def test_any_alpha_that_is_allowed_scores(alpha):
    translation = task(alpha=alpha)
    splits = translation.splits(0)
    copier = Copier(splits.train.known.numbers["zwei"])
    with torch.no_grad():
        assert translation.score(copier, splits.test).texts[0] == "zwei zwei"


def test_a_batch_has_inputs_with_the_start_and_targets_with_the_end():
    splits = task().splits(0)
    known = splits.train.known
    source, lengths, given, expected = splits.train.batch(torch.tensor([1, 0]))
    assert lengths.tolist() == [1, 3] and source[0, 1:].tolist() == [PAD, PAD]
    eins, zwei, drei = known.encode("eins zwei drei".split())
    assert given.tolist() == [[BOS, zwei, PAD, PAD], [BOS, eins, zwei, drei]]
    assert expected.tolist() == [[zwei, EOS, PAD, PAD], [eins, zwei, drei, EOS]]
    assert {tensor.dtype for tensor in (source, lengths, given, expected)} == {torch.int64}
    assert splits.sizes == {"source_words": 4 + 3, "target_words": 4 + 3}


def test_every_pair_is_in_one_batch_with_pairs_of_similar_length():
    translation = tiny(bucket=4)
    train = translation.splits(0).train
    rows = []
    for source, lengths, _, expected in translation.batches(train, 0, 0):
        assert lengths.tolist() == sorted(lengths.tolist(), reverse=True)
        rows += [(tuple(s[s != PAD].tolist()), tuple(w[w != PAD].tolist()))
                 for s, w in zip(source, expected, strict=True)]  # fmt: skip
    ends, numbers = train.source.lengths.cumsum(0), train.source.words
    whole = [tuple(numbers[e - n : e].tolist()) for e, n in zip(ends, train.source.lengths, strict=True)]
    assert sorted(source for source, _ in rows) == sorted(whole)
    assert all(len(expected) == len(source) + 1 and expected[-1] == EOS for source, expected in rows)

    def padding(bucket: int) -> int:
        return sum(int((batch[0] == PAD).sum()) for batch in train.batches(16, bucket, 0, 0))

    assert padding(20) < padding(1) / 3


def test_the_order_depends_on_seed_and_epoch_alone():
    translation = tiny()
    train = translation.splits(0).train

    def first(seed, epoch):
        return [batch[0].tolist() for batch in translation.batches(train, seed, epoch)]

    assert first(1, 2) == first(1, 2)
    assert first(1, 2) != first(1, 3) != first(2, 3)


def test_translations_are_scored_against_the_lines_of_the_files():
    translation = task(beam=3)
    splits = translation.splits(0)
    model = Copier(splits.train.known.numbers["zwei"])
    with torch.no_grad():
        score = translation.score(model, splits.test)
    assert list(score.texts) == ["zwei zwei", "", "zwei zwei"] and model.seen == [2, 2]
    assert "nrefs:2" in score.signature and score.signature.endswith("; beam:3|dev_beam:1|alpha:1|unk:never")
    assert {"loss", "bleu_tokenised", "bleu_detokenised"} == score.others.keys()
    assert splits.keep["references.0.txt"] == ["zwei zwei", "nichts", "Zwei, Zebra"]
    assert len(splits.keep["references.1.txt"]) == 3


def test_the_loss_of_a_split_is_a_mean_over_words():
    translation = task()
    splits = translation.splits(0)
    with torch.no_grad():
        result = translation.mean_loss(Copier(), splits.test)  # each batch's loss is its number of words
    words = [int((batch[-1] != PAD).sum()) for batch in translation.batches(splits.test, 0, 0)]
    assert math.isclose(result, sum(n * n for n in words) / sum(words)) and sum(words) == 3 + 4


def test_words_are_lower_cased_by_key_and_rare_ones_unknown():
    assert "A" in task().splits(0).keep[SOURCE_WORDS]
    assert "a" in task(lower="source").splits(0).keep[SOURCE_WORDS]
    few = task(min_count=2).splits(0)
    assert few.keep[SOURCE_WORDS] == [*SPECIAL, "b"] and few.keep[TARGET_WORDS] == [*SPECIAL, "zwei"]
    assert few.train.source.words.tolist() == [UNK, 4, UNK, 4]


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_min_count_that_makes_all_words_unknown_is_refused(side):
    lines = (["a b c d"], ["a a a"]) if side == "source" else (["a a a"], ["a b c d"])
    with pytest.raises(ValueError, match=rf"task\.min_count=2 makes every {side} word unknown: .* lower it"):
        Translation("made", Given(train=lines, dev=lines, test=lines), 2, min_count=2).splits(0)


def test_lines_are_translated_in_their_order_by_the_words_of_the_run():
    translation = task(beam=2)
    keep = translation.splits(0).keep
    source, target = Words(keep[SOURCE_WORDS]), Words(keep[TARGET_WORDS])
    copier = Copier(target.numbers["drei"])
    lines = translation.translate(copier, ["b", "", "b b b", "zebra b"], source, target)
    assert lines == ["drei", "", "drei drei drei", "drei drei"]


@pytest.mark.data
def test_two_hundred_real_pairs_are_memorized():
    whole = read_texts(EnglishGerman(os.environ["MSBP_DATA_DIR"], offline=True).files())["train"]
    few = whole.source[:200], whole.references[0][:200]
    corpus = Given(train=few, dev=few, test=few)
    translation = Translation("few", corpus, batch_size=20, tokens="edges", lower="source", beam=5)
    splits = translation.splits(0)
    torch.manual_seed(0)
    model = Seq2Seq(**splits.sizes, embedding=128, hidden=128, layers=1, dropout=0.0)
    convert(model, r=1 / 16, gamma=0.05, layers=["encoder", "decoder"])
    optimizer = Adam(model.parameters(), lr=3e-3)
    for epoch in range(60):
        for batch in translation.batches(splits.train, 0, epoch):
            optimizer.zero_grad()
            translation.loss(model, batch).backward()
            optimizer.step()
    with torch.no_grad():
        assert translation.score(model.eval(), splits.test).value > 90
