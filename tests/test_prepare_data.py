"""scripts/prepare_data.py: the report on data that are present and missing."""

import re
import runpy
import sys

import pytest

from msbp.config import ROOT
from msbp.tasks import mnist
from msbp.tasks.translation import bitext
from msbp.tasks.treebanks import conll

main = runpy.run_path(str(ROOT / "scripts/prepare_data.py"))["main"]
MALFORMED = {  # by task: its folder and files, what all of them hold, and the message about it
    "mnist": ("MNIST/raw", mnist.MD5, "x", "is not MNIST's original file"),
    "multi30k": ("multi30k_en_de", bitext.MULTI30K_MD5, "x", "is no whole gzip file"),
    "parsing_ewt": ("ud_english_ewt", conll.EWT_MD5, "1\tKettles\n", "2 columns, expected 10"),
    "polarity": ("mr", ("rt-polarity.neg", "rt-polarity.pos"), "\0", "a NUL character"),
}
EWT = "1\tKettles\t_\tNOUN\tNNS\t_\t2\tnsubj\t_\t_\n2\thiss\t_\tVERB\tVBP\t_\t0\troot\t_\t_\n\n"


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """Runs the script on a data folder of its own, and gives its exit code."""
    monkeypatch.setenv("MSBP_DATA_DIR", str(tmp_path))

    def run(*overrides: str) -> object:
        own = ("paths.offline=true", f"paths.outputs={tmp_path}/out")
        monkeypatch.setattr(sys, "argv", ["prepare_data.py", *own, *overrides])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code

    return run


def test_present_data_are_read_and_counted(tmp_path, prepare, capsys):
    (tmp_path / "ud_english_ewt").mkdir()
    for split in ("train", "dev", "test"):
        (tmp_path / f"ud_english_ewt/en_ewt-ud-{split}.conllu").write_text(EWT)
    assert prepare("task=parsing_ewt") == 0
    output = capsys.readouterr().out
    assert output.startswith("parsing_ewt: ready\n  train: 1 sentences, 2 words, 4 transitions\n")


def test_missing_licensed_data_are_named_with_what_to_do(tmp_path, prepare, capsys):
    assert prepare("task=parsing") == 1
    output = capsys.readouterr().out
    assert output.startswith("parsing: not ready. ") and "LDC99T42" in output
    assert str(tmp_path / "ptb") in output


def test_a_setting_that_a_task_refuses_is_reported_with_the_task(prepare, capsys):
    assert prepare("task=mnist", "task.batch_size=0") == 1
    assert capsys.readouterr().out.startswith(
        "mnist: not ready. task.batch_size must be greater than or equal to 1, got 0"
    )


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["-h", "task=mnist"], 0), (["mnist"], 2)])
def test_help_and_invalid_arguments_read_no_data(monkeypatch, capsys, words, code):
    monkeypatch.setattr(sys, "argv", ["prepare_data.py", *words])
    with pytest.raises(SystemExit) as end:
        main()
    out = capsys.readouterr()
    assert end.value.code == code and "KEY=VALUE" in out.out + out.err
    assert ("tasks: en_vi, mnist" in out.out) if code == 0 else ("was task=mnist meant?" in out.err)


@pytest.mark.parametrize("word", ["seed=-1", "seed=3", "+seed=a"])
def test_a_seed_is_refused_as_data_do_not_depend_on_it(prepare, capsys, word):
    assert prepare("task=mnist", word) == 2
    assert f"{word}: runs of all seeds read the same files" in capsys.readouterr().err


def test_several_tasks_may_be_named(prepare, capsys):
    assert prepare("task=parsing,pos") == 1
    assert re.findall(r"^\w+: not ready", capsys.readouterr().out, re.M) == [
        "parsing: not ready",
        "pos: not ready",
    ]


def test_malformed_data_of_one_task_do_not_stop_the_others(tmp_path, prepare, capsys):
    for folder, names, text, _ in MALFORMED.values():
        (tmp_path / folder).mkdir(parents=True)
        for name in names:
            (tmp_path / folder / name).write_text(text)
    assert prepare() == 1
    output = dict(re.findall(r"^(\w+): ((?:not )?ready.*)", capsys.readouterr().out, re.MULTILINE))
    assert set(output) == {path.stem for path in (ROOT / "conf/task").glob("*.yaml")}
    for task, (folder, _, _, reason) in MALFORMED.items():
        assert output[task].startswith(f"not ready. {tmp_path / folder}") and reason in output[task]
