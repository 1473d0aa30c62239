"""python -m src.translate: from what a run leaves to a file of translations, line by line."""

import pytest

from msbp.launch import compose
from src.train import train
from src.translate import translate


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run on the made-up sample, with its checkpoint."""
    folder = tmp_path_factory.mktemp("run")
    settings = ["task=multi30k", "experiment=smoke", "trainer.epochs=1", "trainer.keep_checkpoint=true"]
    cfg = compose([*settings, "model.hidden=8", f"paths.outputs={folder}", "paths.offline=true"])
    train(cfg, folder / "run", [])
    return folder / "run"


@pytest.fixture
def translated(tmp_path):
    """Runs the command on some lines and gives those that it wrote."""

    def call(checkpoint, text: bytes, *overrides: str) -> list[str]:
        (tmp_path / "in.txt").write_bytes(text)
        paths = [f"checkpoint={checkpoint}", f"input={tmp_path}/in.txt", f"output={tmp_path}/out.txt"]
        translate(compose([*paths, *overrides], config="translate"))
        return (tmp_path / "out.txt").read_bytes().decode().split("\n")[:-1]

    return call


def test_a_run_keeps_its_translations_references_and_words(run):
    lines = {name: (run / name).read_text().split("\n")[:-1] for name in
             ("hypotheses.txt", "references.0.txt", "source.words.txt", "target.words.txt")}  # fmt: skip
    assert len(lines["hypotheses.txt"]) == len(lines["references.0.txt"]) == 40
    assert lines["source.words.txt"][:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert not {"<pad>", "<unk>", "<s>", "</s>"} & set(" ".join(lines["hypotheses.txt"]).split())


def test_run_folder_weights_and_checkpoint_translate_alike(run, translated):
    text = "the red kettle found a boat .\n\nZebra \u2028 crossing\n".encode()
    lines = translated(run, text, "beam=2", "alpha=0")
    assert len(lines) == 3 and lines[1] == ""
    assert translated(run / "weights.pt", text, "beam=2", "alpha=0") == lines
    assert translated(run / "checkpoint.pt", text, "beam=2", "alpha=0") == lines


def test_translations_that_are_all_empty_are_said_to_be(run, translated, capsys, monkeypatch):
    monkeypatch.setattr(
        "msbp.tasks.translation.Translation.translate", lambda task, model, lines, *w: [""] * 2
    )
    assert translated(run, b"a\nb\n") == ["", ""] and "all of them are empty" in capsys.readouterr().err


def test_what_is_no_translator_is_refused(run, translated, tmp_path):
    for name in ("config.yaml", "weights.pt"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    with pytest.raises(ValueError, match="has no vocabularies"):
        translated(tmp_path, b"a\n")
    with pytest.raises(
        FileNotFoundError, match=r"there is no .*nowhere; checkpoint= takes the folder of a run"
    ):
        translated(tmp_path / "nowhere", b"a\n")
    with pytest.raises(ValueError, match=r"task\.beam must be a whole number"):
        translated(run, b"a\n", "beam=0")
