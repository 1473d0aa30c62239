"""The parsing task as a whole: its training data, scores and notes."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from msbp.config import ROOT
from msbp.tasks.parsing.task import Parsing
from msbp.tasks.parsing.transitions import SHIFT
from msbp.tasks.treebanks.conll import ConllFiles, EnglishEwt
from msbp.tasks.treebanks.penn import PennSample

NON_PROJECTIVE = """\
1	Cats	_	NOUN	NNS	_	2	nsubj	_	_
2	sleep	_	VERB	VBP	_	0	root	_	_

1	A	_	DET	DT	_	2	det	_	_
2	tune	_	NOUN	NN	_	3	nsubj	_	_
3	played	_	VERB	VBD	_	0	root	_	_
4	yesterday	_	NOUN	NN	_	3	obl:tmod	_	_
5	by	_	ADP	IN	_	6	case	_	_
6	ear	_	NOUN	NN	_	2	nmod	_	_

1	Dogs	_	NOUN	NNS	_	2	nsubj	_	_
2	bark	_	VERB	VBP	_	0	root	_	_
3	loudly	_	ADV	RB	_	2	advmod	_	_

"""
UNSEEN_LABELS = """\
1	Cats	_	NOUN	NNS	_	2	new	_	_
2	sleep	_	VERB	VBP	_	0	root	_	_

1	Cats	_	NOUN	NNS	_	2	root	_	_
2	sleep	_	VERB	VBP	_	0	det	_	_

"""


class Constant(nn.Module):
    """A model that prefers lower transitions, SHIFT first, for all inputs, which it stores."""

    def __init__(self, transitions: int):
        super().__init__()
        self.logits = nn.Parameter(-torch.arange(transitions, dtype=torch.float32), requires_grad=False)
        self.seen = 0

    def forward(self, tokens):
        self.seen += len(tokens)
        return self.logits.expand(len(tokens), -1)


def task(folder: Path, text: str, **settings) -> Parsing:
    path = folder / "a.conllu"
    path.write_text(text, encoding="utf-8")
    return Parsing("parsing_test", ConllFiles(path, path, path), batch_size=4, cutoff=0, **settings)


def transitions(splits) -> int:
    return 1 + 2 * splits.sizes["labels"]


def test_non_projective_sentences_are_left_out_of_training_and_counted_but_scored(tmp_path):
    parsing = task(tmp_path, NON_PROJECTIVE)
    splits = parsing.splits(seed=0)
    assert len(splits.train.transitions) == 10
    assert "1 non-projective sentence left out of training" in splits.notes
    assert "train: 3 sentences, 11 words, 10 transitions" in splits.notes
    model = Constant(transitions(splits))
    parsing.score(model, splits.test)
    assert model.seen == 22  # 2 configurations a word, of all 11 words


def test_ranges_and_empty_nodes_change_no_count(tmp_path, ranges_and_empty_nodes):
    parsing = task(tmp_path, ranges_and_empty_nodes)
    splits = parsing.splits(seed=0)
    assert splits.test.nodes.lengths.tolist() == [3, 6, 1] and splits.test.nodes.counted.sum() == 10
    assert len(splits.train.transitions) == 20


def test_sentences_with_several_roots_are_left_out_and_counted(tmp_path):
    text = NON_PROJECTIVE.replace("Dogs\t_\tNOUN\tNNS\t_\t2", "Dogs\t_\tNOUN\tNNS\t_\t0")
    assert "1 many-rooted sentence left out of training" in task(tmp_path, text).splits(seed=0).notes


def test_a_training_set_with_nothing_to_learn_from_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no training sentence is a projective tree"):
        task(tmp_path, NON_PROJECTIVE.split("\n\n")[1] + "\n").splits(seed=0)


def test_a_word_without_a_head_is_refused_with_file_and_line(tmp_path):
    text = NON_PROJECTIVE.replace("VBP\t_\t0\troot\t_\t_\n3", "VBP\t_\t_\t_\t_\t_\n3")
    with pytest.raises(ValueError, match=r"a\.conllu:11: a word without a head"):
        task(tmp_path, text).splits(seed=0)


def test_labels_that_training_lacks_are_scored_but_never_trained_on(tmp_path):
    parsing = task(tmp_path, NON_PROJECTIVE)
    parsing.corpus = ConllFiles(tmp_path / "a.conllu", tmp_path / "b.conllu", tmp_path / "b.conllu")
    (tmp_path / "b.conllu").write_text(UNSEEN_LABELS)
    splits = parsing.splits(seed=0)
    for _, legal, target in parsing.batches(splits.dev, seed=0, epoch=0):
        assert legal.gather(1, target[:, None]).all()
    assert splits.dev.transitions.tolist() == [SHIFT, SHIFT]  # of the second sentence, but for its labels
    assert parsing.score(Constant(transitions(splits)), splits.dev).others["las"] < 100


def test_a_test_file_of_punctuation_alone_is_refused_before_training(tmp_path):
    parsing = task(tmp_path, NON_PROJECTIVE)
    (tmp_path / "b.conllu").write_text("1\t.\t_\tPUNCT\t.\t_\t0\troot\t_\t_\n")
    parsing.corpus = ConllFiles(tmp_path / "a.conllu", tmp_path / "a.conllu", tmp_path / "b.conllu")
    with pytest.raises(ValueError, match="no word to score in test: all are punctuation"):
        parsing.splits(seed=0)


def test_a_model_that_knows_the_oracle_scores_100(tmp_path):
    parsing = Parsing("parsing_test", ConllFiles("", "", ""), batch_size=8, sample="tiny", cutoff=0)
    splits = parsing.splits(seed=0)
    known = dict(zip(map(tuple, splits.dev.tokens.tolist()), splits.dev.transitions.tolist(), strict=True))

    class Knows(Constant):
        def forward(self, tokens):
            target = torch.tensor([known[tuple(row)] for row in tokens.tolist()])
            return nn.functional.one_hot(target, len(self.logits)).float()

    score = parsing.score(Knows(transitions(splits)), splits.dev)
    assert score.value > 99 and score.others["las"] > 99  # equal features may need different transitions


def test_the_signature_names_the_punctuation_rule_and_the_tags(tmp_path):
    marked = NON_PROJECTIVE.replace("loudly\t_\tADV", "loudly\t_\tPUNCT")
    for text, rule in ((marked, "left out"), (NON_PROJECTIVE, "none found")):
        parsing = task(tmp_path, text)
        splits = parsing.splits(seed=0)
        score = parsing.score(Constant(transitions(splits)), splits.test)
        assert score.signature == f"uas|punctuation:{rule} by upos PUNCT|tags:gold"


def test_the_order_of_batches_depends_on_seed_and_epoch_alone(tmp_path):
    parsing = task(tmp_path, NON_PROJECTIVE)
    split = parsing.splits(seed=0).train

    def order(seed, epoch):
        torch.manual_seed(seed + 7 * epoch)
        return [batch[0].tolist() for batch in parsing.batches(split, seed, epoch)]

    assert order(0, 0) == order(0, 0) and len({str(order(s, e)) for s in (0, 1) for e in (0, 1)}) == 4


def test_a_batch_has_tokens_legal_transitions_and_the_oracles_which_is_legal(tmp_path):
    parsing = task(tmp_path, NON_PROJECTIVE)
    splits = parsing.splits(seed=0)
    batches = list(parsing.batches(splits.train, seed=0, epoch=0))
    assert [len(batch[2]) for batch in batches] == [4, 4, 2]
    for tokens, legal, target in batches:
        assert tokens.shape[1] == 48 and legal.shape[1] == transitions(splits)
        assert legal.gather(1, target[:, None]).all()
        assert tokens.max() < splits.sizes["words"] + splits.sizes["tags"] + splits.sizes["labels"] + 1
    assert torch.cat([batch[2] for batch in batches]).eq(SHIFT).sum() == 5


def test_the_cache_gives_the_same_splits_and_follows_the_file(tmp_path, ranges_and_empty_nodes):
    fresh = task(tmp_path, NON_PROJECTIVE).splits(seed=0)
    kept = task(tmp_path, NON_PROJECTIVE, cache=tmp_path / "cache")
    for _ in range(2):
        splits = kept.splits(seed=0)
        assert torch.equal(splits.train.tokens, fresh.train.tokens) and splits.notes == fresh.notes
        assert splits.dev.vocabulary == fresh.dev.vocabulary and splits.sizes == fresh.sizes
    assert len(list((tmp_path / "cache").iterdir())) == 1
    changed = task(tmp_path, ranges_and_empty_nodes, cache=tmp_path / "cache").splits(seed=0)
    assert len(changed.train.nodes.lengths) == 3 and len(changed.train.transitions) == 20


def test_no_task_name_leads_the_cache_to_another_folder(tmp_path):
    parsing = task(tmp_path, NON_PROJECTIVE, cache=tmp_path / "a/b/cache")
    parsing.name = "../../x"
    parsing.splits(seed=0)
    assert len(list((tmp_path / "a/b/cache").iterdir())) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.conllu"]


def data() -> Path:
    return Path(os.environ.get("MSBP_DATA_DIR") or ROOT / "data")


@pytest.mark.data
def test_english_ewt_has_the_published_counts():
    splits = Parsing("parsing_ewt", EnglishEwt(data(), offline=True), 1024).splits(seed=0)
    assert [len(part.nodes.lengths) for part in (splits.train, splits.dev, splits.test)] == [
        12544,
        2001,
        2077,
    ]
    assert [part.nodes.lengths.sum() for part in (splits.train, splits.dev, splits.test)] == [
        204577,
        25147,
        25094,
    ]
    assert (len(splits.train.transitions), splits.sizes["labels"]) == (392214, 36)
    assert "288 non-projective sentences left out of training" in splits.notes


@pytest.mark.data
def test_the_sample_of_the_penn_treebank_has_its_known_counts():
    corpus = PennSample(data(), offline=True, train="0001-0160", dev="0161-0180", test="0181-0199")
    splits = Parsing("parsing_ptb_sample", corpus, 1024).splits(seed=0)
    parts = (splits.train, splits.dev, splits.test)
    assert [len(part.nodes.lengths) for part in parts] == [3401, 276, 237]
    assert sum(int(part.nodes.lengths.sum()) for part in parts) == 94084
    assert all(len(part.transitions) == 2 * part.nodes.lengths.sum() for part in parts)
    assert transitions(splits) == 25
    assert np.mean(splits.test.nodes.counted) < 0.9
