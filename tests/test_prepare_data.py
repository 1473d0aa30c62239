"""scripts/prepare_data.py: what is ready, what is missing, and how that is said."""

import runpy
import sys

import pytest

from msbp.launch import ROOT

main = runpy.run_path(str(ROOT / "scripts/prepare_data.py"))["main"]
EWT = "1\tKettles\t_\tNOUN\tNNS\t_\t2\tnsubj\t_\t_\n2\thiss\t_\tVERB\tVBP\t_\t0\troot\t_\t_\n\n"


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """Runs the script on a data folder of its own."""
    monkeypatch.setenv("MSBP_DATA_DIR", str(tmp_path))

    def run(*overrides: str) -> None:
        own = ("paths.offline=true", f"paths.outputs={tmp_path}/out")
        monkeypatch.setattr(sys, "argv", ["prepare_data.py", *own, *overrides])
        main()

    return run


def test_data_that_are_there_are_read_and_counted(tmp_path, prepare, capsys):
    (tmp_path / "ud_english_ewt").mkdir()
    for split in ("train", "dev", "test"):
        (tmp_path / f"ud_english_ewt/en_ewt-ud-{split}.conllu").write_text(EWT)
    prepare("task=parsing_ewt")
    said = capsys.readouterr().out
    assert said.startswith("parsing_ewt: ready\n  train: 1 sentences, 2 words, 4 transitions\n")


def test_licensed_data_that_are_missing_are_said_with_what_to_do(tmp_path, prepare):
    with pytest.raises(FileNotFoundError) as refusal:
        prepare("task=parsing")
    assert "LDC99T42" in str(refusal.value) and str(tmp_path / "ptb") in str(refusal.value)


def test_without_a_task_every_task_is_said_to_be_ready_or_not(prepare, capsys):
    prepare()
    lines = capsys.readouterr().out.splitlines()
    said = {line.split(":")[0] for line in lines if ": ready" in line or ": not ready." in line}
    assert said == {path.stem for path in (ROOT / "conf/task").glob("*.yaml")}
