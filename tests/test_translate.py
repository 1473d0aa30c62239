"""python -m src.translate: from the folder of a run to a file of translations, line by line."""

import shutil
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from msbp.config import compose
from src.train import train
from src.translate import translate


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run on the synthetic sample, with its checkpoint."""
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


def test_a_warning_reports_that_all_translations_are_empty(run, translated, capsys, monkeypatch):
    monkeypatch.setattr(
        "msbp.tasks.translation.task.Translation.translate", lambda task, model, lines, *w: [""] * 2
    )
    assert translated(run, b"a\nb\n") == ["", ""] and "all of them are empty" in capsys.readouterr().err


def test_a_path_without_a_translator_is_refused(run, translated, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no .*nowhere: name the folder of a whole run"):
        translated(tmp_path / "nowhere", b"a\n")
    with pytest.raises(ValueError, match="^beam must be greater than or equal to 1"):
        translated(run, b"a\n", "beam=0")


def flip(content: bytes) -> bytes:
    """Return the content with 64 bytes in its middle inverted: more than what may lie between two parts."""
    start, stop = len(content) // 2, len(content) // 2 + 64
    return content[:start] + bytes(byte ^ 0xFF for byte in content[start:stop]) + content[stop:]


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def saved(path: Path, change) -> None:
    torch.save(change(torch.load(path)), path)


WORDS = "source.words.txt", "target.words.txt"
ALL = "config.yaml", "weights.pt", *WORDS, "checkpoint.pt"
DAMAGES = {
    "absent": (ALL[:-1], Path.unlink),
    "empty": (ALL, lambda file: file.write_bytes(b"")),
    "text": (ALL, lambda file: file.write_text("hello")),
    "a line": (ALL, lambda file: file.write_text("hello\n")),
    "cut": (ALL, lambda file: file.write_bytes(half(file.read_bytes()))),
    "cut between lines": (WORDS, lambda file: file.write_bytes(file.read_bytes().rpartition(b"\n")[0][:-9])),
    "bytes flipped": (ALL, lambda file: file.write_bytes(flip(file.read_bytes()))),
    "a list": (("config.yaml",), lambda file: file.write_text("[1]\n")),
    "no YAML": (("config.yaml",), lambda file: file.write_text("a: [\n")),
    "cut within the task": (
        ("config.yaml",),
        lambda file: file.write_text(file.read_text().partition("  alpha")[0]),
    ),
    "another task": (
        ("config.yaml",),
        lambda file: file.write_text("task: {_target_: pathlib.PurePath}\nmodel:\nmethod:\n"),
    ),
    "a setting out of range": (
        ("config.yaml",),
        lambda file: file.write_text(file.read_text().replace("alpha: 1.0", "alpha: x")),
    ),
    "a word more": (WORDS, lambda file: file.write_bytes(file.read_bytes() + b"zebra\n")),
    "CRLF": (WORDS, lambda file: file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))),
    "no line feed at the end": (WORDS, lambda file: file.write_bytes(file.read_bytes()[:-1])),
    "other content": (("weights.pt", "checkpoint.pt"), lambda file: saved(file, lambda state: [1])),
    "other weights": (("weights.pt",), lambda file: saved(file, lambda state: {"a": torch.ones(1)})),
    "the format alone": (("checkpoint.pt",), lambda file: saved(file, lambda state: {"format": 1})),
    "no words": (("checkpoint.pt",), lambda file: saved(file, lambda state: state | {"keep": [1]})),
    "words of numbers": (
        ("checkpoint.pt",),
        lambda file: saved(file, lambda state: state | {"keep": {key: [1] for key in WORDS}}),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def settings(run):
    return compose([f"checkpoint={run}"], config="translate")


@pytest.fixture
def copied(run, settings, tmp_path):
    """A copy of the run, to be damaged, and a function that translates a line with it."""
    shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "in.txt").write_text("a\n")
    locations = {"input": f"{tmp_path}/in.txt", "output": f"{tmp_path}/out.txt"}

    def call(**changes):
        translate(OmegaConf.merge(settings, locations | changes))

    return tmp_path / "copy", call


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_run_is_refused_with_file_and_remedy_and_nothing_is_written(copied, name):
    (folder, call), (files, damage) = copied, DAMAGES[name]
    for file in (folder / name for name in files):
        content = file.read_bytes()
        damage(file)
        with pytest.raises(ValueError, match=f"{file}.*: name the folder of a whole run") as refusal:
            call(checkpoint=str(file if file.name == "checkpoint.pt" else folder))
        assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 800
        assert not (folder.parent / "out.txt").exists()
        file.write_bytes(content)


@pytest.mark.parametrize("changes", [{"alpha": "x"}, {"alpha": float("nan")}, {"alpha": True}, {"alpha": 6},
                                     {"beam": 2**63 - 1}, {"beam": "x"}, {"threads": 0}, {"threads": "x"},
                                     {"device": "tpu"}, {"allow": "here"}, {"allow": [""]}, {"input": None},
                                     {"checkpoint": " "}, {"output": 3}], ids=str)  # fmt: skip
def test_options_out_of_range_are_refused_by_name(copied, changes):
    with pytest.raises(ValueError, match=rf"^{next(iter(changes))}(\[0\])? must be"):
        copied[1](**changes)


def test_an_option_that_nothing_reads_is_refused():
    with pytest.raises(ValueError, match=r"^there is no key beams; there are allow, alpha, beam, "):
        translate(compose(["checkpoint=a", "input=b", "output=c", "+beams=3"], config="translate"))


def test_the_largest_alpha_and_blank_lines_are_translated(run, translated):
    assert len(translated(run, b"a\n", "alpha=5")) == 1
    assert translated(run, b"\n \n\n") == ["", "", ""]


def test_an_output_that_cannot_be_written_is_refused_before_any_work(copied, monkeypatch):
    folder, call = copied
    monkeypatch.setattr("src.translate.load", lambda path: pytest.fail("it began to work"))
    link = folder / "link"
    link.symlink_to(folder.parent / "in.txt")
    refusals = {
        "": "output must be the name of a file or folder, got ''",
        str(folder): "is a folder or a device",
        "/dev/null": "is a folder or a device",
        f"{folder}/no/out.txt": "there is no folder .*no for output=",
        f"{folder.parent}/in.txt": "would replace what input= reads",
        str(link): "would replace what input= reads",
    }
    for output, message in refusals.items():
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            call(output=output)
    for checkpoint, names in {"": ALL[:-1], "weights.pt": ALL[:-1], "checkpoint.pt": ALL[-1:]}.items():
        for name in names:
            with pytest.raises(ValueError, match="would replace what checkpoint= reads"):
                call(output=str(folder / name), checkpoint=str(folder / checkpoint))
    assert (folder.parent / "in.txt").read_text() == "a\n"


@pytest.mark.parametrize("key", ["checkpoint", "input", "output"])
def test_a_missing_path_is_named(tmp_path, key):
    (tmp_path / "in.txt").write_text("a\n")
    locations = {"checkpoint": tmp_path / "no", "input": tmp_path / "in.txt", "output": tmp_path / "out.txt"}
    given = [f"{name}={location}" for name, location in locations.items() if name != key]
    with pytest.raises(ValueError, match=f"^{key}= is missing: .*checkpoint=RUN input=FILE output=FILE"):
        translate(compose(given, config="translate"))
