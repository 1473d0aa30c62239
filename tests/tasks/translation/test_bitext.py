"""Parallel text: lines stay paired; the locations of its corpora and the errors for missing ones."""

import gzip
import os
import sys
import types
from pathlib import Path

import pytest

from msbp.tasks.download import md5_of
from msbp.tasks.synthetic import parallel_text
from msbp.tasks.translation import bitext
from msbp.tasks.translation.bitext import (
    ChineseEnglish,
    EnglishGerman,
    EnglishVietnamese,
    ParallelText,
    merged,
    read_lines,
    read_parallel,
    read_texts,
)

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


def test_gzip_files_are_read_directly_and_truncated_ones_refused(tmp_path):
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
    ("content", "message"),
    [(b"fine\ncaf\xe9\n", r"0\.txt, line 2: not UTF-8"), (b"", r"0\.txt is empty")],
)
def test_a_file_that_is_no_text_is_refused_by_name(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_lines(*files(tmp_path, content))


def test_texts_with_equal_numbers_of_references_are_joined():
    one, two = ParallelText(["a", "b"], [["1", "2"], ["3", "4"]]), ParallelText(["c"], [["5"], ["6"]])
    assert merged([one, two]) == ParallelText(["a", "b", "c"], [["1", "2", "5"], ["3", "4", "6"]])
    with pytest.raises(ValueError, match="texts with 2, 1 references"):
        merged([one, parallel_text(2, 0)])


def write(folder, **texts):
    folder.mkdir(exist_ok=True, parents=True)
    for name, text in texts.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def nist(root, references=2):
    write(root, train__zh="我 是\n好\n", train__en="I am\ngood\n")
    for number, name in enumerate(("mt02", "mt03", "mt04", "mt05", "mt06")):
        write(root, **{f"{name}__zh": f"第{number}\n"})
        for i in range(references):
            write(root, **{f"{name}__en{i}": f"number {number} , {i}\n"})


def hub(monkeypatch, answer):
    """Replace the package that fetches by a stand-in."""
    fetcher = types.ModuleType("datasets")
    fetcher.load_dataset = answer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", fetcher)


def test_nist_tests_are_merged_with_all_their_references(tmp_path):
    nist(tmp_path)
    texts = read_texts(ChineseEnglish(tmp_path, "multi30k").files())
    assert texts["train"].source == ["我 是", "好"] and texts["dev"].references == [
        ["number 0 , 0"],
        ["number 0 , 1"],
    ]
    assert texts["test"].source == ["第1", "第2", "第3", "第4"]
    assert [len(reference) for reference in texts["test"].references] == [4, 4]
    assert texts["test"].references[1][2] == "number 3 , 1"


def test_missing_nist_files_are_named_with_catalogue_number_and_open_task(tmp_path):
    nist(tmp_path)
    (tmp_path / "mt05.zh").unlink()
    with pytest.raises(FileNotFoundError, match=r"no mt05\.zh with mt05\.en\*.*LDC2002E18.*task=multi30k"):
        ChineseEnglish(tmp_path, "multi30k").files()


def test_captions_are_read_packed_or_not(tmp_path):
    folder = tmp_path / "multi30k_en_de"
    for stem in ("train", "val", "test_2016_flickr"):
        write(folder, **{f"{stem}__en__gz": f"A {stem}.\n", f"{stem}__de": f"Ein {stem}.\n"})
    texts = read_texts(EnglishGerman(tmp_path, offline=True).files())
    assert texts["dev"].source == ["A val."] and texts["test"].references == [["Ein test_2016_flickr."]]


def test_missing_captions_are_fetched_by_checksum_or_named(tmp_path, web, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"no train\.en\.gz, .*MSBP_DATA_DIR.*paths\.offline=false"):
        EnglishGerman(tmp_path, offline=True).files()
    write(web.folder, **{name.replace(".", "__"): f"{name}\n" for name in bitext.MULTI30K_MD5})
    sums = {name: md5_of((web.folder / name).read_bytes()) for name in bitext.MULTI30K_MD5}
    monkeypatch.setattr(bitext, "MULTI30K", web.url)
    monkeypatch.setattr(bitext, "MULTI30K_MD5", sums)
    write(tmp_path / "multi30k_en_de", train__en="mine\n")
    text = read_texts(EnglishGerman(tmp_path).files())["train"]
    assert (text.source, text.references) == (["mine"], [["train.de.gz"]]) and len(web.requests) == 5
    (web.folder / "val.en.gz").write_bytes(b"<html>moved</html>")
    (tmp_path / "multi30k_en_de/val.en.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"no val\.en\.gz under .*could not be fetched .*MD5"):
        EnglishGerman(tmp_path).files()


def stanford(data):
    years = {f"tst{year}__{side}": "x\n" for year in (2012, 2013) for side in ("en", "vi")}
    write(data / "iwslt15_en_vi", **years)


def test_a_missing_training_set_is_named_with_its_folder_and_an_open_task(tmp_path):
    stanford(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no train\.en, train\.vi under .*iwslt15.*task=multi30k"):
        EnglishVietnamese(tmp_path, offline=True).files()


def test_a_missing_training_set_comes_from_the_hub(tmp_path, monkeypatch):
    stanford(tmp_path)
    rows = [{"en": "one\u2028two", "vi": "một  hai"}, {"en": "three", "vi": "ba"}]
    hub(monkeypatch, lambda name: {"train": rows})
    text = read_texts(EnglishVietnamese(tmp_path).files())["train"]
    assert text.source == ["one two", "three"] and text.references == [["một hai", "ba"]]


def test_an_unreachable_hub_is_named_with_an_open_task(tmp_path, monkeypatch):
    def fails(name):
        raise ConnectionError("no network")

    hub(monkeypatch, fails)
    with pytest.raises(OSError, match=r"no train\.en, train\.vi .*no network.*task=multi30k runs"):
        EnglishVietnamese(tmp_path).files()


def test_missing_tests_of_stanford_are_fetched_by_checksum(tmp_path, web, monkeypatch):
    write(web.folder, **{name.replace(".", "__"): f"{name}\n" for name in bitext.STANFORD_MD5})
    sums = {name: md5_of((web.folder / name).read_bytes()) for name in bitext.STANFORD_MD5}
    monkeypatch.setattr(bitext, "STANFORD", web.url)
    monkeypatch.setattr(bitext, "STANFORD_MD5", sums)
    write(tmp_path / "iwslt15_en_vi", train__en="a\n", train__vi="b\n")
    assert read_texts(EnglishVietnamese(tmp_path).files())["test"].source == ["tst2013.en"]


@pytest.mark.data
def test_the_real_captions_are_read_completely():
    texts = read_texts(EnglishGerman(os.environ["MSBP_DATA_DIR"], offline=True).files())
    assert {split: len(text) for split, text in texts.items()} == {"train": 29000, "dev": 1014, "test": 1000}
