"""Where treebanks are looked for, how they are cut, what is fetched, and what is said when one is missing."""

import hashlib
import io
import shlex
import zipfile
from pathlib import Path

import pytest

from msbp.config import ROOT, build, compose
from msbp.tasks import corpora, download, penn
from msbp.tasks.corpora import ConllFiles, EnglishEwt
from msbp.tasks.penn import PennSample, PennTreebank

README = (ROOT / "data/README.md").read_text(encoding="utf-8")
PARTS = {"train": "0001-0160", "dev": "0161-0180", "test": "0181-0199"}
TREE = "( (S (NP-SBJ (NNP {})) (VP (VBD poured)) (. .)) )\n"


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
def test_sections_are_found_in_the_usual_layouts(tmp_path, name, folder):
    wsj(tmp_path, [199, 200, 299, 301, 2200, 2301, 2400], name, folder)
    (tmp_path / "README").write_text("not a tree")
    corpus = treebank(tmp_path)
    assert firsts(corpus, "train") == ["W0200", "W0299", "W0301"]
    assert (firsts(corpus, "dev"), firsts(corpus, "test")) == (["W2200"], ["W2301"])


def test_a_missing_penn_treebank_says_what_to_get_where_to_put_it_and_what_runs_now(tmp_path):
    with pytest.raises(FileNotFoundError) as refusal:
        treebank(tmp_path / "ptb").files()
    for part in ("LDC99T42", str(tmp_path / "ptb"), "wsj/00 to wsj/24", "paths.ptb", "task=parsing_ewt"):
        assert part in str(refusal.value)


def test_a_treebank_with_a_section_missing_is_refused(tmp_path):
    wsj(tmp_path, [200, 2200, 2300])
    with pytest.raises(FileNotFoundError, match="section 03 under"):
        treebank(tmp_path).files()


def test_two_copies_of_a_file_are_refused(tmp_path):
    for folder in ("combined/{:02}", "parsed/{:02}"):
        wsj(tmp_path, [200], folder=folder)
    with pytest.raises(ValueError, match=r"one file twice, .*combined.* and .*parsed"):
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


def test_a_sample_that_is_not_whole_is_refused_offline(tmp_path):
    wsj(tmp_path, [1, 161, 181], folder="ptb_sample/corpora/treebank/combined")
    with pytest.raises(FileNotFoundError, match=r"3 of 199 files .*paths\.offline=false"):
        PennSample(tmp_path, **PARTS, offline=True).files()


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """NLTK's archive, made up and served from a file."""
    numbers = [1, 2, 161, 181]
    texts = {f"treebank/combined/wsj_{n:04}.mrg": TREE.format(f"W{n:04}") for n in numbers}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, text in {"treebank/README": "read me", **texts}.items():
            file.writestr(name, text)
    (tmp_path / "treebank.zip").write_bytes(packed.getvalue())
    monkeypatch.setattr(penn, "SAMPLE", (tmp_path / "treebank.zip").as_uri())
    monkeypatch.setattr(penn, "SAMPLE_FILES", len(numbers))
    monkeypatch.setattr(penn, "SAMPLE_MD5", hashlib.md5("".join(texts.values()).encode()).hexdigest())


def test_a_missing_sample_is_fetched_whole_and_once(tmp_path, archive, monkeypatch, caplog):
    corpus = PennSample(tmp_path / "data", **PARTS)
    assert firsts(corpus, "dev")[0] == "W0161"
    monkeypatch.setattr(penn, "SAMPLE", "file:///nowhere")
    assert firsts(corpus, "train") == ["W0001", "W0002"] and not caplog.text


def test_files_of_the_sample_that_are_there_stay_when_others_are_fetched(tmp_path, archive, caplog):
    wsj(tmp_path / "data", [161], folder="ptb_sample/corpora/treebank/combined")
    (mine,) = tmp_path.glob("data/**/*.mrg")
    mine.write_text(TREE.format("Mine"), encoding="utf-8")
    corpus = PennSample(tmp_path / "data", **PARTS)
    assert (firsts(corpus, "dev"), firsts(corpus, "train")) == (["Mine"], ["W0001", "W0002"])
    assert "not the files of NLTK's treebank sample, by md5" in caplog.text


def test_an_answer_that_is_no_archive_is_said_and_not_kept(tmp_path, archive):
    (tmp_path / "treebank.zip").write_bytes(b"<html>log in first</html>")
    with pytest.raises(OSError, match="answered with no archive .* nothing was kept"):
        PennSample(tmp_path / "data", **PARTS).files()
    assert not list(tmp_path.glob("data/**/*.mrg"))


def test_a_sample_with_other_content_is_not_kept(tmp_path, archive, monkeypatch):
    monkeypatch.setattr(penn, "SAMPLE_MD5", "0" * 32)
    with pytest.raises(OSError, match="nothing was kept"):
        PennSample(tmp_path / "data", **PARTS).files()
    assert not list(tmp_path.glob("data/**/*.mrg"))


def test_missing_ewt_files_are_fetched_and_present_ones_left_alone(tmp_path, monkeypatch, caplog):
    asked = []

    def fetch(urls, target, md5):
        asked.append((urls, md5))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("1\tGone\t_\tVERB\tVBN\t_\t0\troot:x\t_\t_\n")

    monkeypatch.setattr(corpora, "fetch", fetch)
    monkeypatch.setattr(download, "fetch", fetch)
    corpus = EnglishEwt(tmp_path)
    (sentence,) = corpus.read(corpus.files()["dev"][0])
    assert sentence.labels == ["root"] and len(asked) == 3 and all(md5 for _, md5 in asked)
    corpus.files()
    assert len(asked) == 3 and "dev.conllu: not the files of UD English EWT 2.16" in caplog.text


def test_missing_ewt_files_are_named_offline(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"en_ewt-ud-train\.conllu; put the three .*MSBP_DATA_DIR"):
        EnglishEwt(tmp_path, offline=True).files()


def test_a_missing_conll_file_is_named_with_its_key(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text("")
    with pytest.raises(FileNotFoundError, match=r"b\.conllu; name the dev file in task\.corpus\.dev"):
        ConllFiles(path, tmp_path / "b.conllu", path).files()


@pytest.mark.parametrize("task", ["parsing_ewt", "pos_ewt"])
def test_a_treebank_of_ones_own_is_named_as_the_documentation_says(tmp_path, monkeypatch, task):
    documented = next(line for line in README.splitlines() if "ConllFiles" in line)
    words = [word for word in shlex.split(documented.strip("`"))[3:] if not word.startswith("method=")]
    monkeypatch.chdir(tmp_path)
    for i, name in enumerate(("train", "dev", "test"), start=1):
        Path(f"{name}.conllu").write_text("1\tHi\t_\tINTJ\tUH\t_\t0\troot\t_\t_\n\n" * i)
    own = (f"task={task}", f"paths.outputs={tmp_path}", "" if "pos" not in task else "task.vectors=null")
    cfg = compose([*(word for word in words if not word.startswith("task=")), *filter(None, own)])
    splits = build(cfg.task).splits(0)
    assert cfg.task.name == "my_treebank" and [note.split(",")[0] for note in splits.notes[:3]] == [
        "train: 1 sentences", "dev: 2 sentences", "test: 3 sentences"
    ]  # fmt: skip
