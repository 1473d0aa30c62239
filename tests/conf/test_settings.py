"""Settings of every task and model out of their range are refused by the key as typed, before any work."""

import pytest
from overridden import overridden

from msbp.config import build, compose

TASKS = {
    "mnist": [
        ("task.batch_size=0", "must be greater than or equal to 1, got 0"),
        ("task.batch_size=2.5", "must be a whole number, got 2.5"),
        ("task.sample=half", "must be 'full' or 'tiny', got 'half'"),
        ("task.offline=1", "must be true or false, got 1"),
        ("task.name=''", "must have at least 1 character, got ''"),
    ],
    "parsing_ewt": [
        ("task.batch_size=0", "must be greater than or equal to 1"),
        ("task.cutoff=-1", "must be greater than or equal to 0, got -1"),
        ("task.sample=small", "must be 'full' or 'tiny'"),
        ("+task.corpus.punctuation=dots", "must be one of tags, upos, got 'dots'"),
    ],
    "pos_ewt": [
        ("task.batch_size=0", "must be greater than or equal to 1"),
        ("task.bucket=1.5", "must be a whole number, got 1.5"),
        ("task.bucket=9223372036854775807", "must be less than or equal to 2147483647, got 92"),
        ("task.tags=pos", "must be 'xpos' or 'upos', got 'pos'"),
        ("task.features=[prefixes]", "must be 'capitals' or 'suffixes', got 'prefixes'"),
        ("task.features=[1]", "must be 'capitals' or 'suffixes', got 1"),
        ("task.sample=small", "must be 'full' or 'tiny'"),
    ],
    "polarity": [
        ("task.batch_size=0", "must be greater than or equal to 1"),
        ("task.batch_size=2.5", "must be a whole number"),
        ("task.sample=half", "must be 'full' or 'tiny'"),
        ("task.protocol=leave_one_out", "must be 'cross_validation' or 'fixed_split'"),
        ("task.files=[]", "must name two files or more"),
        ("task.files=[neg.txt]", "must name two files or more"),
        ("task.files=[neg.txt,neg.txt]", "must name two files or more"),
        ("task.files=[neg.txt,null]", "must be text, got None"),
    ],
    "multi30k": [
        ("task.beam=0", "must be greater than or equal to 1, got 0"),
        ("task.beam=1001", "must be less than or equal to 1000"),
        ("task.dev_beam=true", "must be a whole number, got True"),
        ("task.dev_beam=9223372036854775807", "must be less than or equal to 1000"),
        ("task.source_words=3", "must be greater than or equal to 10, got 3"),
        ("task.tokens=bpe", "must be 'spaces' or 'edges', got 'bpe'"),
        ("task.lower=target", "must be 'none', 'source' or 'both'"),
        ("task.alpha=-1", "must be greater than or equal to 0, got -1"),
        ("task.alpha=nan", "must be"),
        ("task.alpha=inf", "must be"),
        ("task.alpha=1000", "must be less than or equal to 5"),
        ("task.alpha=1e308", "must be less than or equal to 5"),
        ("task.alpha=x", "must be a number, got 'x'"),
        ("task.sample=half", "must be 'full' or 'tiny'"),
        ("task.bleu.score=bleu", "must be 'tokenised' or 'detokenised'"),
        ("task.bleu.tokenizer=14a", "must be '13a', 'zh', 'intl', 'char' or 'none'"),
        ("task.bleu.tokenizer=spm", "must be '13a', 'zh', 'intl', 'char' or 'none'"),
    ],
}
SIZES = {
    "mnist": {"inputs": 6, "outputs": 3},
    "parsing_ewt": {"words": 9, "tags": 5, "labels": 3},
    "pos_ewt": {"vocabulary": 9, "features": {"length": 3}, "outputs": 3, "vectors": None},
    "polarity": {"vocabulary": 9, "outputs": 2, "vectors": None},
    "multi30k": {"source_words": 9, "target_words": 9},
}
MODELS = {
    "mnist": [
        ("model.hidden=0", "must be greater than or equal to 1, got 0"),
        ("model.layers=0", "must be greater than or equal to 1"),
        ("model.hidden=2.5", "must be a whole number, got 2.5"),
        ("model.dropout=1", "must be less than 1, got 1"),
        ("model.dropout=-0.1", "must be greater than or equal to 0"),
    ],
    "parsing_ewt": [
        ("model.hidden=0", "must be greater than or equal to 1"),
        ("model.layers=0", "must be greater than or equal to 1"),
        ("model.embedding=2.5", "must be a whole number"),
        ("model.activation=tanh", "must be 'relu' or 'cube', got 'tanh'"),
        ("model.dropout=1.0", "must be less than 1"),
        ("model.init=-1.0", "must be greater than or equal to 0"),
        ("model.init=inf", "must be"),
    ],
    "pos_ewt": [
        ("model.hidden=0", "must be greater than or equal to 1"),
        ("model.hidden_is=both", "must be 'per_direction' or 'total', got 'both'"),
        ("model.dropout=1", "must be less than 1"),
        ("model.embedding=non_static", "non_static needs word vectors: name them in task.vectors"),
        ("model.width=0", "must be greater than or equal to 1, got 0"),
        ("+model.widths.length=0", "must be greater than or equal to 1"),
        ("model.widths={capitals: 5}", " has no length: give the width of its embedding"),
    ],
    "polarity": [
        ("model.hidden=0", "must be greater than or equal to 1"),
        ("model.windows=[]", "must have at least 1 item"),
        ("model.windows=[0]", "must be greater than or equal to 1, got 0"),
        ("model.windows=[true]", "must be a whole number, got True"),
        ("model.width=0", "must be greater than or equal to 1"),
        ("model.embedding=fixed", "must be 'random', 'static' or 'non_static', got 'fixed'"),
        ("model.dropout=1.0", "must be less than 1"),
        ("model.max_norm=0", "must be greater than 0, got 0"),
        ("model.max_norm=nan", "must be"),
    ],
    "multi30k": [
        ("model.embedding=0", "must be greater than or equal to 1"),
        ("model.layers=1.5", "must be a whole number"),
        ("model.directions=both", "must be 'sum' or 'concatenate', got 'both'"),
        ("model.attention=bahdanau", "must be 'general', 'dot' or 'luong_gate'"),
        ("model.dropout=1.0", "must be less than 1"),
        ("model.label_smoothing=-0.1", "must be greater than or equal to 0"),
        ("model.init=nan", "must be"),
    ],
}


def cases(table):
    return [(task, word, says) for task, words in table.items() for word, says in words]


@pytest.mark.parametrize(("task", "word", "says"), cases(TASKS))
def test_settings_of_tasks_are_refused_by_their_key(task, word, says):
    key = word.lstrip("+").partition("=")[0]
    with pytest.raises(ValueError) as refusal:
        build(overridden(f"task={task}", word).task)
    assert str(refusal.value).startswith(key) and says in str(refusal.value)


@pytest.mark.parametrize(("task", "word", "says"), cases(MODELS))
def test_settings_of_models_are_refused_by_their_key(task, word, says):
    key = word.lstrip("+").partition("=")[0]
    words = [f"task={task}", *["model.embedding=random"] * (task in ("pos_ewt", "polarity")), word]
    with pytest.raises(ValueError) as refusal:
        build(overridden(*words).model, **SIZES[task])
    assert key in str(refusal.value).partition(" must ")[0] and says in str(refusal.value)


@pytest.mark.parametrize(
    ("task", "words", "says"),
    [
        ("multi30k", ["model.directions=concatenate", "model.hidden=7"], "must be even, got 7"),
        ("multi30k", ["model.hidden=6", "model.embedding=5"], "embedding=5 .* hidden=6: make them equal"),
        ("pos_ewt", ["model.hidden_is=total", "model.hidden=7"], "must be even, got 7"),
    ],
)
def test_settings_of_models_that_contradict_one_another_are_refused(task, words, says):
    with pytest.raises(ValueError, match=says):
        build(compose([f"task={task}", *words]).model, **SIZES[task])
