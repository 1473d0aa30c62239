"""Where parallel corpora lie, on small made files, and what is said of those that are missing."""

import gzip
import sys
import types

import pytest

from msbp.tasks import bitexts
from msbp.tasks.bitexts import ChineseEnglish, EnglishGerman, EnglishVietnamese


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
    """Put a stand-in in place of the package that fetches."""
    fetcher = types.ModuleType("datasets")
    fetcher.load_dataset = answer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", fetcher)


def test_nist_tests_are_merged_with_all_their_references(tmp_path):
    nist(tmp_path)
    texts = ChineseEnglish(tmp_path, "multi30k").read()
    assert texts["train"].source == ["我 是", "好"] and texts["dev"].references == [
        ["number 0 , 0"],
        ["number 0 , 1"],
    ]
    assert texts["test"].source == ["第1", "第2", "第3", "第4"]
    assert [len(reference) for reference in texts["test"].references] == [4, 4]
    assert texts["test"].references[1][2] == "number 3 , 1"


def test_missing_nist_files_are_named_with_catalogue_place_and_open_task(tmp_path):
    nist(tmp_path)
    (tmp_path / "mt05.zh").unlink()
    with pytest.raises(FileNotFoundError, match=r"no mt05\.zh with mt05\.en\*.*LDC2002E18.*task=multi30k"):
        ChineseEnglish(tmp_path, "multi30k").read()


def test_captions_are_read_packed_or_not(tmp_path):
    folder = tmp_path / "multi30k_en_de"
    for stem in ("train", "val", "test_2016_flickr"):
        write(folder, **{f"{stem}__en__gz": f"A {stem}.\n", f"{stem}__de": f"Ein {stem}.\n"})
    texts = EnglishGerman(tmp_path, offline=True).read()
    assert texts["dev"].source == ["A val."] and texts["test"].references == [["Ein test_2016_flickr."]]


def test_missing_captions_are_fetched_by_checksum_or_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"train\.en\.gz; put .*paths\.offline=false"):
        EnglishGerman(tmp_path, offline=True).read()
    asked = []

    def fetch(urls, path, md5):
        asked.append((urls, md5))
        write(path.parent, **{path.name: "text\n"})

    monkeypatch.setattr(bitexts, "fetch", fetch)
    assert EnglishGerman(tmp_path).read()["train"].source == ["text"]
    assert len(asked) == 6 and all(url.startswith("https://") and md5 for (url,), md5 in asked)


def test_a_missing_training_set_is_named_with_place_and_open_task(tmp_path):
    folder = tmp_path / "iwslt15_en_vi"
    write(folder, **{f"tst{year}__{side}": "x\n" for year in (2012, 2013) for side in ("en", "vi")})
    with pytest.raises(FileNotFoundError, match=r"no train\.en, train\.vi under .*Stanford.*task=multi30k"):
        EnglishVietnamese(tmp_path, offline=True).read()


def test_a_missing_training_set_comes_from_the_hub(tmp_path, monkeypatch):
    folder = tmp_path / "iwslt15_en_vi"
    write(folder, **{f"tst{year}__{side}": "x\n" for year in (2012, 2013) for side in ("en", "vi")})
    rows = [{"en": "one\u2028two", "vi": "một  hai"}, {"en": "three", "vi": "ba"}]
    hub(monkeypatch, lambda name: {"train": rows})
    text = EnglishVietnamese(tmp_path).read()["train"]
    assert text.source == ["one two", "three"] and text.references == [["một hai", "ba"]]


def test_an_unreachable_hub_is_said_with_what_runs_instead(tmp_path, monkeypatch):
    def fails(name):
        raise ConnectionError("no network")

    hub(monkeypatch, fails)
    with pytest.raises(OSError, match=r"train\.vi missing.*no network.*task=multi30k runs on open data"):
        EnglishVietnamese(tmp_path).read()


@pytest.mark.data
def test_the_real_captions_are_read_whole():
    import os

    texts = EnglishGerman(os.environ["MSBP_DATA_DIR"], offline=True).read()
    assert {split: len(text) for split, text in texts.items()} == {"train": 29000, "dev": 1014, "test": 1000}
