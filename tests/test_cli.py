"""Starting a command: exit codes, errors in one paragraph, sweeps and choices on the command line."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import hydra
import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from msbp.cli import explain, report_command, start
from msbp.config import CONF, ROOT, compose, folder
from msbp.record import signature


@pytest.fixture
def command_line(monkeypatch, capsys):
    """Start a Hydra main with these words and return its exit code and its output."""

    def run(main, *words, full="0"):
        monkeypatch.setenv("HYDRA_FULL_ERROR", full)
        monkeypatch.setattr(sys, "argv", ["src.train", *words])
        code = 0
        try:
            start(main, sweeps=True)
        except SystemExit as end:
            code = end.code
        return code, capsys.readouterr().err

    return run


def main_that(act, tmp_path):
    @hydra.main(config_path=CONF, config_name="train", version_base="1.3")
    def main(cfg):
        act(cfg)

    return main


def test_a_configuration_composed_inside_a_main_is_the_same(command_line, tmp_path):
    seen = []

    def act(cfg):
        seen.extend([signature(cfg), signature(compose(["task=mnist", "method=sbp"]))])

    code, output = command_line(main_that(act, tmp_path), "method=sbp", f"paths.outputs={tmp_path}")
    assert (code, output) == (0, "") and seen[0] == seen[1] == signature(compose(["method=sbp"]))


def test_the_flag_for_sweeps_may_be_anywhere_on_the_command_line(command_line, tmp_path):
    seeds = []
    main = main_that(lambda cfg: seeds.append(cfg.seed), tmp_path)
    assert command_line(main, f"paths.outputs={tmp_path}", "-m", "seed=range(0,3)")[0] == 0
    assert seeds == [0, 1, 2]


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["gamma=0.2"], "there is no key gamma; was paper.gamma or method.gamma meant?"),
        (["tusk=mnist"], "there is no key tusk; there are experiment, force, "),
        (["method=baseline", "method.r=0.1"], "method.r: method=baseline has no r; it has name"),
        (
            ["task=mnist", "task.corpora=1"],
            "task.corpora: task=mnist has no corpora; it has batch_size, data, name, ",
        ),
        (["trainer.epoch=3"], "trainer.epoch: trainer has no epoch; it has clip, device, epochs, "),
        (["method.memory.x=1"], "there is no key method.memory.x; --cfg job shows all of them"),
        (["method.x=1", "trainer.y=1"], "there is no key method.x; --cfg job shows all of them"),
        (
            ["-m", "method=sbp,baseline", "method.r=0.1,0.2"],
            "method.r: method=baseline has no r; it has name",
        ),
        (["-m", "method=glob(*)", "method.foo=1"], "there is no key method.foo; --cfg job shows all of them"),
    ],
)
def test_a_key_that_does_not_exist_is_named_with_the_choice_that_lacks_it(
    command_line, tmp_path, words, output
):
    code, message = command_line(main_that(lambda cfg: 0.0, tmp_path), *words, f"paths.outputs={tmp_path}")
    assert code == 1 and message.splitlines()[-1].startswith(f"error: {output}") and "+" not in message


def test_a_closed_pipe_is_no_error(command_line, tmp_path):
    def act(cfg):
        raise BrokenPipeError(32, "Broken pipe")

    assert command_line(main_that(act, tmp_path), f"paths.outputs={tmp_path}") == (1, "")


@pytest.mark.parametrize("entry", ["src.report table=main", "scripts.reproduce table=theory dry_run=true"])
def test_a_command_whose_reader_has_ended_ends_without_a_word(entry, tmp_path):
    module, *words = entry.split()
    command = shlex.join([sys.executable, "-u", "-m", module, *words, f"paths.outputs={tmp_path}"])
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, cwd=ROOT, env=os.environ | {"HYDRA_FULL_ERROR": "0"},
    )  # fmt: skip
    assert done.stdout == "1\n" and "rror" not in done.stderr


@pytest.mark.parametrize("error", [ValueError, FileNotFoundError, FloatingPointError])
def test_an_expected_error_is_one_paragraph_and_exit_code_1(command_line, tmp_path, error):
    def act(cfg):
        raise error("what came, what is valid, what to do")

    code, output = command_line(main_that(act, tmp_path), f"paths.outputs={tmp_path}")
    assert code == 1 and output.endswith("error: what came, what is valid, what to do\n")
    assert "Traceback" not in output


def test_an_unexpected_error_names_its_line_and_shows_its_traceback_on_demand(command_line, tmp_path):
    def act(cfg):
        folder(*())

    code, output = command_line(main_that(act, tmp_path), f"paths.outputs={tmp_path}")
    assert code == 1 and "error: TypeError: folder() missing" in output and "Traceback" not in output
    assert "/src/msbp/cli.py, line" in output and "HYDRA_FULL_ERROR=1 shows" in output
    with pytest.raises(TypeError):
        command_line(main_that(act, tmp_path), f"paths.outputs={tmp_path}", full="1")


@pytest.mark.parametrize("value", ["null", "3.5", "[a,b]", '""', '" "'])
def test_a_folder_option_that_is_no_text_is_refused_before_a_folder_is_created(command_line, value):
    code, output = command_line(main_that(pytest.fail, None), f"paths.outputs={value}")
    assert code == 1 and "error: paths.outputs must be the name of a folder, got " in output


def test_names_of_the_users_stay_within_the_folder_of_outputs(command_line, tmp_path):
    folders = []
    main = main_that(lambda cfg: folders.append(HydraConfig.get().runtime.output_dir), tmp_path)
    names = ("task.name=../../x", "method.name=a/b")
    assert command_line(main, f"paths.outputs={tmp_path}", *names)[0] == 0
    assert Path(folders[0]).parent == tmp_path / "runs" and "___.._x-a_b-" in folders[0]


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("can't allocate memory: 40 TB"), ValueError("CUDA out of memory")]
)
def test_too_little_memory_is_reported_with_the_remedy(error):
    assert "not enough memory: a smaller model or batch" in explain(error)


@pytest.mark.parametrize("words", ["go on later", ""])
def test_an_interrupt_has_the_exit_code_of_one(command_line, tmp_path, words):
    def act(cfg):
        raise KeyboardInterrupt(*([words] if words else []))

    code, output = command_line(main_that(act, tmp_path), f"paths.outputs={tmp_path}")
    assert code == 130 and output == f"interrupted; {words or 'no partial file is left'}\n"


def test_the_report_on_the_projects_own_folder_needs_no_path():
    assert report_command(compose().paths.outputs) == "python -m src.report"


@pytest.mark.parametrize(
    "outputs", ["/r=0.04, γ", "it's", 'a "b"', "a\\b", "a\\", 'a\\"', "a\\\\'\"b", "${x}", "a,b"]
)
def test_the_report_command_for_a_users_folder_is_quoted_for_shell_and_hydra(outputs):
    *_, word = shlex.split(report_command(outputs))
    assert OmegaConf.to_container(compose([word]))["paths"]["outputs"] == outputs


@pytest.mark.parametrize(
    "words", [["-m", "seed=range(0)"], ["seed=range(3,3)", "--multirun", "method=sbp,msbp"]]
)
def test_a_sweep_over_nothing_is_refused(command_line, tmp_path, words):
    code, output = command_line(main_that(pytest.fail, tmp_path), f"paths.outputs={tmp_path}", *words)
    assert code == 1 and "there is nothing to run" in output and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "word", ["task=[1]", "figure=[a,2]", "+table=[null]", "method=[[a]]", "+logger=5", "task=1.5", "watch={}"]
)
def test_a_word_that_cannot_name_a_file_of_conf_is_no_choice(monkeypatch, capsys, word):
    monkeypatch.setattr(sys, "argv", ["src.report", "seed=[1]", word])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    with pytest.raises(SystemExit):
        start(lambda: pytest.fail("it began"))
    assert f"error: {word}: a choice is the name of a file of conf/" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["=3", "=", "++=3", "~=3", "@a=3", "a=[1", "seed==3", "my key=3", "γ=3"])
def test_an_argument_that_cannot_be_read_is_named(monkeypatch, capsys, word):
    monkeypatch.setattr(sys, "argv", ["src.report", "seed=3", word])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    with pytest.raises(SystemExit):
        start(lambda: pytest.fail("it began"))
    message = capsys.readouterr().err
    assert f"the argument {word!r}" in message and ("hint: " in message or "has no key before =" in message)


@pytest.mark.parametrize("options", [[], ["--cfg", "job"]])
@pytest.mark.parametrize("word", ["method=1.5,sbp", "task=mnist,[2]"])
def test_a_sweep_over_what_is_no_name_is_refused_also_where_its_first_run_is_shown(
    monkeypatch, capsys, word, options
):
    monkeypatch.setattr(sys, "argv", ["src.train", "-m", word, *options])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    with pytest.raises(SystemExit):
        start(lambda: pytest.fail("it began"), sweeps=True)
    assert f"error: {word}: a choice is the name of a file of conf/" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["--cfg", "job", "-m", "seed=3,4"], "seed: 3"),
        (["-m", "seed=range(5,9)", "-c", "job"], "seed: 5"),
        (["-m", "method=sbp,msbp", "--cfg", "job", "--package", "method"], "name: sbp"),
        (["-m", "seed=7", "--cfg=job"], "seed: 7"),
        (["-m", "+note='a=1,2','b'", "--cfg", "job"], "note: a=1,2"),
        (["-m", "experiment=memory_controls", "--cfg", "job", "--package", "paper"], "r: 0.01"),
        (["experiment=memory_controls", "--cfg", "job", "--package", "paper"], "r: 0.01"),
        (["-m", "experiment=memory_controls", "paper.r=0.2,0.3", "--cfg", "job", "-p", "paper"], "r: 0.2"),
        (["-m", "experiment=k_gamma", "--cfg", "job", "--package", "method"], "name: sbp"),
    ],
)
def test_the_first_configuration_of_a_sweep_is_shown_on_request(monkeypatch, capsys, tmp_path, words, output):
    monkeypatch.setattr(sys, "argv", ["src.train", f"paths.outputs={tmp_path}", *words])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    start(main_that(pytest.fail, tmp_path), sweeps=True)
    shown = capsys.readouterr()
    assert output in shown.out.splitlines() and "this is its first run" in shown.err


@pytest.mark.parametrize("word", ["paths.outputs", "paths.data", "checkpoint", "input", "resume"])
@pytest.mark.parametrize("path", ["/proc/x", "out", "a b/c", "'q/r'"])
def test_an_error_about_a_file_names_the_key_that_leads_to_it(monkeypatch, word, path):
    monkeypatch.setattr(sys, "argv", ["src.train", "seed=0", "paths.ptb=/", f"{word}={path}", "resume=z"])
    below = f"{path.strip(chr(39))}/checkpoints"
    for error in (FileNotFoundError(2, "No such file", below), ValueError(f"there is no {below}: name one")):
        assert explain(error) == f"{word}={path}: {error}"
    assert explain(ValueError(f"{word}={path} is wrong")) == f"{word}={path} is wrong"
    assert explain(ValueError("of another/out/z-file")) == "of another/out/z-file"


@pytest.mark.parametrize("entry", ["bench", "theory"])
def test_a_folder_that_cannot_be_written_is_refused_by_key_before_training(monkeypatch, capsys, entry):
    module = __import__(f"src.{entry}", fromlist=["main"])
    for work in ("measure", "checks"):
        monkeypatch.setattr(module, work, pytest.fail, raising=False)
    monkeypatch.setattr(sys, "argv", [f"src.{entry}", "paths.outputs=/proc/x"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    with pytest.raises(SystemExit):
        start(module.main)
    assert "error: paths.outputs=/proc/x: [Errno 2]" in capsys.readouterr().err


def test_a_sweep_is_refused_by_commands_that_take_one_configuration(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["src.report", "-m", "records=own,published"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    with pytest.raises(SystemExit):
        start(lambda: pytest.fail("it began"))
    assert "-m is for python -m src.train" in capsys.readouterr().err


CLOSED = """
from msbp.cli import start
start(lambda: print("γ" * 100_000) or open({file!r}, "w").write("x"))
"""


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-", "<&-", ">/dev/full", "2>/dev/full"])
def test_a_closed_output_stream_gives_no_traceback_and_no_output_elsewhere(tmp_path, redirection):
    file, environment = tmp_path / "written", os.environ | {"LC_ALL": "C", "HYDRA_FULL_ERROR": "0"}
    command = f"{shlex.join([sys.executable, '-c', CLOSED.format(file=str(file))])} {redirection}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment)
    assert done.returncode == (redirection == ">/dev/full") and "Traceback" not in done.stderr
    assert "ignored" not in done.stderr and (done.returncode or file.read_text() == "x")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_ends_a_command_as_an_interrupt_does(command_line, tmp_path, number):
    before = signal.signal(number, signal.SIG_DFL)
    try:
        main = main_that(lambda cfg: signal.raise_signal(number), tmp_path)
        code, output = command_line(main, f"paths.outputs={tmp_path}")
    finally:
        signal.signal(number, before)
    assert code == 130 and output.endswith("interrupted; no partial file is left\n")


def test_a_sweep_over_all_files_of_a_group_is_taken(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["src.train", "-m", "method=glob(*)"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    begun = []
    start(lambda: begun.append(sys.argv), sweeps=True)
    assert begun == [["src.train", "-m", "method=glob(*)"]]
