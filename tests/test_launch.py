import sys

import hydra
import pytest

from msbp.launch import CONF, build, compose, explain, report_command, start
from msbp.record import signature


@pytest.fixture
def command_line(monkeypatch, capsys):
    """Start a Hydra main with these words and give its exit code and what it said."""

    def run(main, *words):
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        monkeypatch.setattr(sys, "argv", ["src.train", *words])
        code = 0
        try:
            start(main)
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

    code, said = command_line(main_that(act, tmp_path), "method=sbp", f"paths.outputs={tmp_path}")
    assert (code, said) == (0, "") and seen[0] == seen[1] == signature(compose(["method=sbp"]))


def test_the_flag_for_sweeps_may_stand_anywhere(command_line, tmp_path):
    seeds = []
    main = main_that(lambda cfg: seeds.append(cfg.seed), tmp_path)
    assert command_line(main, f"paths.outputs={tmp_path}", "-m", "seed=range(0,3)")[0] == 0
    assert seeds == [0, 1, 2]


@pytest.mark.parametrize("error", [ValueError, FileNotFoundError, FloatingPointError])
def test_a_foreseen_error_is_one_paragraph_and_exit_code_1(command_line, tmp_path, error):
    def act(cfg):
        raise error("what came, what was wanted, what to do")

    code, said = command_line(main_that(act, tmp_path), f"paths.outputs={tmp_path}")
    assert code == 1 and said.endswith("error: what came, what was wanted, what to do\n")
    assert "Traceback" not in said


def test_an_unforeseen_error_keeps_its_traceback(command_line, tmp_path):
    def act(cfg):
        raise KeyError("a fault of the program")

    with pytest.raises(KeyError):
        command_line(main_that(act, tmp_path), f"paths.outputs={tmp_path}")


@pytest.mark.parametrize("words", ["go on later", ""])
def test_an_interrupt_has_the_exit_code_of_one(command_line, tmp_path, words):
    def act(cfg):
        raise KeyboardInterrupt(*([words] if words else []))

    code, said = command_line(main_that(act, tmp_path), f"paths.outputs={tmp_path}")
    assert code == 130 and said == f"interrupted; {words or 'nothing was left half made'}\n"


def test_what_a_constructor_refuses_is_said_with_its_place():
    with pytest.raises(ValueError, match=r"^method: sparse ratio r must be in \(0, 1\], got 2") as refusal:
        build(compose(["method.r=2"]).method)
    assert explain(refusal.value) == str(refusal.value)


def test_the_report_on_a_folder_of_ones_own_is_quoted_for_shell_and_hydra():
    assert report_command(compose().paths.outputs) == "python -m src.report"
    assert report_command("/r=0.04, γ") == "python -m src.report 'paths.outputs=\"/r=0.04, γ\"'"


def test_data_come_from_the_environment_unless_it_is_empty(monkeypatch):
    own = compose().paths.data
    monkeypatch.setenv("MSBP_DATA_DIR", "/corpora")
    assert compose().paths.data == "/corpora" and compose().paths.ptb == "/corpora/ptb"
    assert compose(["paths.data=here"]).paths.data == "here"
    monkeypatch.setenv("MSBP_DATA_DIR", "")
    assert compose().paths.data == own
