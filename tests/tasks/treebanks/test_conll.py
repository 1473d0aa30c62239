"""Column formats, refusals with file and line; corpora in these formats and where they come from."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from msbp.config import ROOT, build, compose
from msbp.tasks.download import md5_of
from msbp.tasks.treebanks import UNKNOWN, Sentence, TreebankError, conll
from msbp.tasks.treebanks.conll import ConllFiles, EnglishEwt, read_conll

README = (ROOT / "data/README.md").read_text(encoding="utf-8")


def conllu(*rows: tuple[str, str, str]) -> str:
    """Rows of word, head and label as CoNLL-U."""
    return "".join(f"{i}\t{w}\t_\tX\tXX\t_\t{h}\t{r}\t_\t_\n" for i, (w, h, r) in enumerate(rows, start=1))


def written(folder: Path, text: str | bytes, name: str = "a.conllu") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_multiword_ranges_and_empty_nodes_give_no_word(tmp_path, ranges_and_empty_nodes):
    sentences = read_conll(written(tmp_path, ranges_and_empty_nodes))
    assert [len(sentence) for sentence in sentences] == [3, 6, 1]
    assert [sentence.heads for sentence in sentences] == [[0, 1, 1], [2, 0, 2, 5, 2, 5], [0]]
    assert sentences[1].words == ["Ann", "paints", "walls", "and", "Bob", "doors"]
    assert sentences[0].tags == ["VB", "PRP", "CD"] and sentences[0].upos == ["VERB", "PRON", "NUM"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.rstrip("\n"),
        lambda text: "\n\n" + text.replace("\n\n", "\n\n\n"),
        lambda text: text.replace("# text", "#text") + "# a last comment\n",
    ],
    ids=["CRLF", "BOM", "no final newline", "more blank lines", "comments"],
)
def test_line_ends_marks_blank_lines_and_comments_change_nothing(tmp_path, change, ranges_and_empty_nodes):
    plain = read_conll(written(tmp_path, ranges_and_empty_nodes))
    assert read_conll(written(tmp_path, change(ranges_and_empty_nodes), "b.conllu")) == plain


def test_underscores_stand_for_missing_values(tmp_path):
    (sentence,) = read_conll(written(tmp_path, "1\t_\t_\tPUNCT\t_\t_\t_\t_\t_\t_\n"))
    assert sentence == Sentence(["_"], ["PUNCT"], ["PUNCT"], [UNKNOWN], ["_"])


def test_letters_that_str_splitlines_cuts_at_stay_in_their_word(tmp_path):
    (sentence,) = read_conll(written(tmp_path, conllu(("a\u0085b\u2028c\x0cd", "0", "root"))))
    assert sentence.words == ["a\u0085b\u2028c\x0cd"]


def test_conll_x_reads_like_conll_u(tmp_path):
    x = "1\tIt\t_\tPR\tPRP\t_\t2\tSUB\t2\tSUB\n2\t#\t_\tVB\tVBD\tsg\t0\tROOT\t_\t_\n"
    (sentence,) = read_conll(written(tmp_path, x, "a.conll"))
    assert sentence == Sentence(["It", "#"], ["PRP", "VBD"], ["PR", "VB"], [2, 0], ["SUB", "ROOT"])


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (conllu(("a", "0", "root")) + "2\tb\t_\n", 2, "3 columns, expected 10"),
        ("# x\n1 a _ X XX _ 0 root _ _\n", 2, "1 columns, expected 10"),
        (conllu(("a", "0", "root")).replace("1\t", "2\t"), 1, "the id is '2', expected 1"),
        (conllu(("a", "0", "root"), ("b", "1", "x")).replace("2\tb", "x\tb"), 2, "the id is 'x', expected 2"),
        (conllu(("a", "0", "root"), ("b", "3", "x")), 2, "the head is '3', expected 0 (root) to 2"),
        (conllu(("a", "-1", "x")), 1, "the head is '-1'"),
        (conllu(("a", "b", "x")), 1, "the head is 'b'"),
        (conllu(("a", "9" * 5000, "x")), 1, "the head is '999"),
        (conllu(("a", "0", "root"), ("b", "3", "x"), ("c", "2", "x")), 2, "its own ancestor"),
        (conllu(("a", "1", "x")), 1, "its own ancestor"),
        (conllu(("", "0", "root")), 1, "an empty column"),
        ("1-2\tab\t_\t_\t_\t_\t_\t_\t_\t_\n", 1, "a sentence without words"),
        ("", 1, "no sentence in the whole file"),
        ("# text = nothing\n\n", 1, "no sentence in the whole file"),
    ],
)
def test_malformed_lines_are_refused_with_file_and_line(tmp_path, text, line, message):
    path = written(tmp_path, text)
    with pytest.raises(TreebankError) as refusal:
        read_conll(path)
    assert str(refusal.value).startswith(f"{path}:{line}: ") and message in str(refusal.value)
    assert str(refusal.value).endswith("; mend the file, or get it anew")


def test_a_file_that_is_not_utf8_is_refused_by_name_and_line(tmp_path):
    path = written(tmp_path, b"\n# a comment" * 6 + conllu(("caf\u00e9", "0", "root")).encode("latin-1"))
    with pytest.raises(TreebankError, match=r"a\.conllu:7: byte 0xe9 is not UTF-8"):
        read_conll(path)


def test_the_c_locale_reads_the_same_words(tmp_path):
    path = written(tmp_path, conllu(("đường", "0", "root")))
    code = "import sys, msbp.tasks.treebanks.conll as t; print(ascii(t.read_conll(sys.argv[1])[0].words))"
    plain = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code, path], env=os.environ | plain, capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == ascii(["đường"])


def test_missing_ewt_files_are_fetched_and_present_ones_left_alone(tmp_path, web, monkeypatch, caplog):
    text = "1\tGone\t_\tVERB\tVBN\t_\t0\troot:x\t_\t_\n"
    for name in conll.EWT_MD5:
        (web.folder / name).write_text(text)
    monkeypatch.setattr(conll, "EWT", web.url)
    monkeypatch.setattr(conll, "EWT_MD5", dict.fromkeys(conll.EWT_MD5, md5_of(text.encode())))
    corpus = EnglishEwt(tmp_path)
    (sentence,) = corpus.read(corpus.files()["dev"][0])
    assert sentence.labels == ["root"] and len(web.requests) == 3 and "not the files" not in caplog.text
    corpus.files()["dev"][0].write_text(text * 2)
    corpus.files()
    assert len(web.requests) == 3 and "dev.conllu: not the files of UD English EWT 2.16" in caplog.text


def test_missing_ewt_files_are_named_offline(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no en_ewt-ud-train\.conllu, .*MSBP_DATA_DIR"):
        EnglishEwt(tmp_path, offline=True).files()


def test_a_missing_conll_file_is_named_with_its_key(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text("")
    with pytest.raises(FileNotFoundError, match=r"b\.conllu; name the dev file in task\.corpus\.dev"):
        ConllFiles(path, tmp_path / "b.conllu", path).files()


INLINE = "python -m src.train '~task.corpus' '+task.corpus={_target_:msbp.tasks.treebanks.conll.ConllFiles,"
INLINE += "train:train.conllu,dev:dev.conllu,test:test.conllu}' task.name=my_treebank"


@pytest.mark.parametrize("task", ["parsing_ewt", "pos_ewt"])
@pytest.mark.parametrize("inline", [False, True])
def test_a_users_treebank_is_named_as_the_documentation_says(tmp_path, monkeypatch, task, inline):
    documented = next(line for line in README.splitlines() if "conll_files" in line).strip("`")
    words = shlex.split(INLINE if inline else documented)[3:]
    words = [word for word in words if not word.startswith(("task=", "method="))]
    monkeypatch.chdir(tmp_path)
    for i, name in enumerate(("train", "dev", "test"), start=1):
        Path(f"{name}.conllu").write_text("1\tHi\t_\tINTJ\tUH\t_\t0\troot\t_\t_\n\n" * i)
    own = [
        f"task={task}",
        f"paths.outputs={tmp_path}",
        *["task.vectors=null", "task.cutoff=0"] * (task == "pos_ewt"),
    ]
    cfg = compose([*words, *own])
    splits = build(cfg.task).splits(0)
    assert cfg.task.name == "my_treebank" and [note.split(",")[0] for note in splits.notes[:3]] == [
        "train: 1 sentences", "dev: 2 sentences", "test: 3 sentences"
    ]  # fmt: skip
