"""The synthetic sets for offline trials."""

from msbp.tasks.synthetic import parallel_text, treebank
from msbp.tasks.treebanks.conll import read_conll


def test_sentences_depend_on_the_seed_alone():
    assert treebank(20, seed=1) == treebank(20, seed=1) != treebank(20, seed=2)


def test_sentences_are_well_formed_trees_with_one_root_that_ends_in_punctuation(tmp_path):
    result = treebank(100, seed=0)
    columns = "{}\t{}\t_\t{}\t{}\t_\t{}\t{}\t_\t_\n".format
    rows = [zip(range(1, 99), s.words, s.upos, s.tags, s.heads, s.labels) for s in result]  # noqa: B905
    text = "\n".join("".join(columns(*row) for row in sentence) for sentence in rows)
    (tmp_path / "a.conllu").write_text(text, encoding="utf-8")
    assert read_conll(tmp_path / "a.conllu") == result
    assert all(sentence.heads.count(0) == 1 and sentence.upos[-1] == "PUNCT" for sentence in result)


def test_modifiers_depend_on_the_words_that_they_modify():
    for sentence in treebank(100, seed=0):
        for tag, head in zip(sentence.tags, sentence.heads, strict=True):
            above = sentence.tags[head - 1] if head else "root"
            assert above in {"DT": ["NN"], "JJ": ["NN"], "IN": ["NN"], "VBD": ["root"]}.get(
                tag, ["VBD", "NN"]
            )


def test_the_synthetic_target_language_spells_words_backwards_and_has_the_verb_last():
    text = parallel_text(30, 0)
    for source, target in zip(text.source, text.references[0], strict=True):
        *words, mark = target.split()
        assert sorted(word[::-1] for word in words) == sorted(source.split()[:-1])
        assert mark == source.split()[-1]
        assert words[-1][::-1] in "found moved carried painted saw lost opened drew".split()
    assert parallel_text(30, 0) == text != parallel_text(30, 1)
