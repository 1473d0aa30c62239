"""The Penn Treebank: bracketed trees, the locations and the cutting of its files, NLTK's sample."""

import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from msbp.tasks.treebanks import TreebankError, penn
from msbp.tasks.treebanks.penn import PennSample, PennTreebank, read_mrg

PARTS = {"train": "0001-0160", "dev": "0161-0180", "test": "0181-0199"}
TREE = "( (S (NP-SBJ (NNP {})) (VP (VBD poured)) (. .)) )\n"
LAYOUTS = """\
( (S
    (NP-SBJ (DT The) (NN kettle) )

    (VP (VBD boiled) )
    (. .) ))
( (S (NP-SBJ (PRP It)) (VP (VBD hissed)) (. .)) )
(S (NP-SBJ (NNP Ida)) (VP (VBD poured)) (. .))
( (NP (DT No) (NN milk)) (. .) )
(TOP (S
(VP (VB Sit) (PRT (RP down)))
(. !)))
"""


def read(folder, text: str):
    (folder / "a.mrg").write_text(text, encoding="utf-8", errors="surrogateescape")
    return read_mrg(folder / "a.mrg")


def words(tree) -> list[str]:
    return [leaf.word for leaf in tree.leaves()]


def test_blank_lines_top_nodes_without_label_and_spacing_do_not_split_trees(tmp_path):
    trees = read(tmp_path, LAYOUTS)
    assert [len(words(tree)) for tree in trees] == [4, 3, 3, 3, 3]
    assert [tree.label for tree in trees] == ["S", "S", "S", "", "TOP"]
    assert words(trees[4]) == ["Sit", "down", "!"]


@pytest.mark.parametrize(
    "change", [str.split, lambda text: text.replace("(", "( ").replace(")", " )\r\n").split(" ")]
)
def test_line_breaks_do_not_matter(tmp_path, change):
    assert [words(tree) for tree in read(tmp_path, " ".join(change(LAYOUTS)))] == [
        words(tree) for tree in read(tmp_path, LAYOUTS)
    ]


def test_traces_and_the_phrases_that_hold_nothing_else_are_removed_and_counted(tmp_path, caplog):
    caplog.set_level("INFO")
    (tree,) = read(
        tmp_path,
        """( (SBAR (WHNP-1 (-NONE- 0)) (S (NP-SBJ (-NONE- *T*-1) (-NONE- *)) (VP (VBD fell)))) )
           ( (NP (-NONE- *)) )""",
    )
    assert words(tree) == ["fell"] and [child.label for child in tree.children] == ["S"]
    assert [child.label for child in tree.children[0].children] == ["VP"]
    assert "a.mrg: left out 1 trees of empty elements alone" in caplog.text


def test_function_tags_are_stripped_and_brackets_stay_tokens(tmp_path):
    (tree,) = read(tmp_path, "(NP-SBJ-TPC-1 (-LRB- -LRB-) (NP=2 (NN x)) (PRT|ADVP (RP up)) (-RRB- -RRB-))")
    assert (tree.category, tree.functions) == ("NP", ["SBJ", "TPC"])
    assert [child.category for child in tree.children] == ["-LRB-", "NP", "PRT", "-RRB-"]
    assert words(tree) == ["-LRB-", "x", "up", "-RRB-"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("(S (NN a))\n(S\n(NN b)\n", 2, "never closed"),
        ("(S (NN a)))\n", 1, "')' outside of all brackets"),
        ("(S (NN a))\nword\n", 2, "'word' outside of all brackets"),
        ("(S\n(NN a b))\n", 2, "'b' where a bracket is expected"),
        ("(S (NN a) b)\n", 1, "'b' where a bracket is expected"),
        ("(S (NN))\n", 1, "(NN) holds nothing"),
        ("(S (NN a (NN b)))\n", 1, "a bracket after the word 'a'"),
        ("(S\n(NN a\udce9))\n", 2, "byte 0xe9 is not UTF-8"),
        ("(S " * 5000 + "(NN a)" + ")" * 5000, 1, "brackets are open here"),
        ("\n", 1, "no tree with a word in the whole file"),
        ("( (NP (-NONE- *)) )\n", 1, "no tree with a word in the whole file"),
    ],
)
def test_malformed_trees_are_refused_with_file_and_line(tmp_path, text, line, message):
    with pytest.raises(TreebankError) as refusal:
        read(tmp_path, text)
    assert f"a.mrg:{line}: " in str(refusal.value) and message in str(refusal.value)


def wsj(root: Path, numbers: list[int], name: str = "wsj_{:04}.mrg", folder: str = "{:02}") -> None:
    for number in numbers:
        path = root / folder.format(number // 100) / name.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TREE.format(f"W{number:04}"), encoding="utf-8")


def treebank(root: Path, train="02-03", dev="22", test="23") -> PennTreebank:
    return PennTreebank(root, "parsing_ewt", train=train, dev=dev, test=test)


def firsts(corpus, split: str) -> list[str]:
    return [sentence.words[0] for path in corpus.files()[split] for sentence in corpus.read(path)]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("wsj_{:04}.mrg", "wsj/{:02}"),
        ("WSJ_{:04}.MRG", "TREEBANK_3/PARSED/MRG/WSJ/{:02}"),
        ("wsj_{:04}.mrg", "parsed/mrg/wsj/{:02}"),
        ("wsj_{:04}.mrg", "."),
    ],
)
def test_sections_are_read_in_the_usual_layouts(tmp_path, name, folder):
    wsj(tmp_path, [199, 200, 299, 301, 2200, 2301, 2400], name, folder)
    (tmp_path / "README").write_text("not a tree")
    corpus = treebank(tmp_path)
    assert firsts(corpus, "train") == ["W0200", "W0299", "W0301"]
    assert (firsts(corpus, "dev"), firsts(corpus, "test")) == (["W2200"], ["W2301"])


def test_a_missing_penn_treebank_is_an_error_with_source_folder_and_open_task(tmp_path):
    with pytest.raises(FileNotFoundError) as refusal:
        treebank(tmp_path / "ptb").files()
    for part in ("LDC99T42", str(tmp_path / "ptb"), "wsj/00 to wsj/24", "paths.ptb", "task=parsing_ewt"):
        assert part in str(refusal.value)


def test_a_treebank_with_a_section_missing_is_refused(tmp_path):
    wsj(tmp_path, [200, 2200, 2300])
    with pytest.raises(FileNotFoundError, match="section 03 under"):
        treebank(tmp_path).files()


def test_two_files_of_one_number_are_refused(tmp_path):
    for folder in ("combined/{:02}", "parsed/{:02}"):
        wsj(tmp_path, [200], folder=folder)
    with pytest.raises(ValueError, match=r"two files of one number, .*combined.* and .*parsed"):
        treebank(tmp_path).files()


def test_a_section_may_be_given_as_a_number(tmp_path):
    wsj(tmp_path, [1300, 2200, 2300])
    assert firsts(treebank(tmp_path, 13, 22, 23), "dev") == ["W2200"]


@pytest.mark.parametrize("part", ["2", 2, "2-21", "002", "a", "02-21-22", ""])
def test_a_part_that_is_no_section_or_file_is_refused(tmp_path, part):
    with pytest.raises(ValueError, match="is named like"):
        treebank(tmp_path, train=part).files()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"train": "03-02"}, "task.corpus.train names no file of the treebank, got '03-02'"),
        ({"dev": "03"}, r"wsj_0300\.mrg is in several of train=02-03, dev=03, test=23"),
        ({"dev": "23"}, r"wsj_2300\.mrg is in several of"),
    ],
)
def test_parts_without_a_file_or_with_a_common_one_are_refused(tmp_path, parts, message):
    wsj(tmp_path, [200, 300, 2200, 2300])
    with pytest.raises(ValueError, match=message):
        treebank(tmp_path, **parts).files()


def test_the_sample_is_cut_by_file(tmp_path):
    wsj(tmp_path, list(range(1, 200)), folder="ptb_sample/corpora/treebank/combined")
    files = PennSample(tmp_path, **PARTS, offline=True).files()
    assert {split: len(paths) for split, paths in files.items()} == {"train": 160, "dev": 20, "test": 19}


def test_an_incomplete_sample_is_refused_offline(tmp_path):
    wsj(tmp_path, [1, 161, 181], folder="ptb_sample/corpora/treebank/combined")
    with pytest.raises(FileNotFoundError, match=r"wsj_0005.mrg and 192 more .*paths\.offline=false"):
        PennSample(tmp_path, **PARTS, offline=True).files()


@pytest.fixture
def archive(web, monkeypatch) -> Path:
    """A small archive like NLTK's, served from a file."""
    numbers = [1, 2, 161, 181]
    texts = {f"treebank/combined/wsj_{n:04}.mrg": TREE.format(f"W{n:04}") for n in numbers}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, text in {"treebank/README": "read me", **texts}.items():
            file.writestr(name, text)
    path = web.folder / "treebank.zip"
    path.write_bytes(packed.getvalue())
    monkeypatch.setattr(penn, "SAMPLE", web.url + "treebank.zip")
    monkeypatch.setattr(penn, "SAMPLE_FILES", numbers)
    monkeypatch.setattr(penn, "SAMPLE_MD5", hashlib.md5("".join(texts.values()).encode()).hexdigest())
    return path


def test_a_missing_sample_is_fetched_completely_and_once(tmp_path, archive, web, caplog):
    corpus = PennSample(tmp_path / "data", **PARTS)
    assert firsts(corpus, "dev")[0] == "W0161"
    assert firsts(corpus, "train") == ["W0001", "W0002"] and "not the files" not in caplog.text
    assert len(web.requests) == 1


def test_existing_files_of_the_sample_stay_when_others_are_fetched(tmp_path, archive, caplog):
    wsj(tmp_path / "data", [161], folder="ptb_sample/corpora/treebank/combined")
    (mine,) = tmp_path.glob("data/**/*.mrg")
    mine.write_text(TREE.format("Mine"), encoding="utf-8")
    corpus = PennSample(tmp_path / "data", **PARTS)
    assert (firsts(corpus, "dev"), firsts(corpus, "train")) == (["Mine"], ["W0001", "W0002"])
    assert "not the files of NLTK's treebank sample, by md5" in caplog.text


def test_an_answer_that_is_no_archive_is_refused_and_not_kept(tmp_path, archive):
    archive.write_bytes(b"<html>log in first</html>")
    with pytest.raises(FileNotFoundError, match=r"wsj_0001\.mrg, .*answered with no archive .*: put"):
        PennSample(tmp_path / "data", **PARTS).files()
    assert not list(tmp_path.glob("data/**/*.mrg"))


def test_a_sample_with_other_content_is_not_kept(tmp_path, archive, monkeypatch):
    monkeypatch.setattr(penn, "SAMPLE_MD5", "0" * 32)
    with pytest.raises(FileNotFoundError, match="have md5 [0-9a-f]*, not 000"):
        PennSample(tmp_path / "data", **PARTS).files()
    assert not list(tmp_path.glob("data/**/*.mrg"))
