import shlex
from pathlib import Path

import pytest
from omegaconf.errors import OmegaConfBaseException

from msbp.analysis.render import markdown, renderings
from msbp.analysis.runs import Sources
from msbp.analysis.settings import command, settings_from
from msbp.analysis.table_text import document_of, signed
from msbp.analysis.tables import fill
from msbp.config import CONF, compose
from msbp.record import signature

BASE, MSBP = "task=mnist method=baseline", "task=mnist method=msbp"
CONFIG = {
    "name": "small", "caption": "A small table", "seeds": 5, "columns": ["bp_s", "total_s", "score"],
    "blocks": [{
        "title": "MNIST", "task": "mnist", "score": "Acc (%)",
        "rows": [
            {"label": "MLP", "overrides": ["method=baseline"], "paper": {"bp_s": 67.2, "score": 97.86}},
            {"label": "+ MSBP", "overrides": ["method=msbp"], "paper": {"bp_s": 6.9, "score": 98.23}},
        ],
    }],
}  # fmt: skip


def text_of(runs, settle):
    return markdown(document_of(fill(CONFIG, Sources(runs, settle))).sheets[0])


def rows(text):
    """The cells of a Markdown table's body, row by row."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_a_row_shows_mean_spread_ratio_and_the_papers_numbers(record_of, runs_of, settle):
    records = [record_of(BASE, seed, bp_s=16.0, test=98.0 + seed / 10) for seed in range(5)]
    records += [record_of(MSBP, seed, bp_s=2.0, test=98.3 + seed / 10) for seed in range(5)]
    _, msbp = rows(text_of(runs_of(records), settle))
    assert msbp == [
        "+ MSBP", "2.00 (8.00×)", "18.5 (1.00×)", "98.50 ± 0.16 (+0.30)", "5", "9.74×", "98.23 (+0.37)",
    ]  # fmt: skip


def test_a_row_with_fewer_seeds_than_configured_says_so(record_of, runs_of, settle):
    records = [record_of(MSBP, seed) for seed in (0, 1, 4)]
    _, msbp = rows(text_of(runs_of(records), settle))
    assert msbp[4] == "3 of 5"


def test_one_seed_has_no_spread(record_of, runs_of, settle):
    _, msbp = rows(text_of(runs_of([record_of(MSBP)]), settle))
    assert msbp[3].rstrip("¹²") == "98.20"


def test_a_missing_row_has_empty_cells_and_the_command_that_fills_it(runs_of, settle):
    text = text_of(runs_of([]), settle)
    assert rows(text)[1][1:5] == ["–", "–", "–", "0 of 5¹"]
    assert "\npython -m src.train -m task=mnist 'seed=range(0,5)' method=baseline,msbp\n" in text
    assert "- ¹ not run yet" in text


def test_runs_of_another_setting_never_fill_a_row(record_of, runs_of, settle):
    other = record_of(f"{MSBP} experiment=smoke", sample="tiny")
    assert rows(text_of(runs_of([other]), settle))[1][4] == "0 of 5¹"


def test_a_block_whose_task_does_not_exist_yet_still_renders(runs_of):
    block = CONFIG["blocks"][0] | {"task": "weather"}
    table = fill(CONFIG | {"blocks": [block]}, Sources(runs_of([]), settings_from(Path(CONF), compose)))
    for text in renderings(document_of(table)).values():
        assert "MLP" in text
    assert "its task is not there yet" in renderings(document_of(table))["md"]


def test_commands_are_quoted_for_the_shell():
    assert command(["task=mnist"], ["method=msbp", "method.layers=[a,b]"], range(3)) == (
        "python -m src.train -m task=mnist 'seed=range(0,3)' method=msbp 'method.layers=[a,b]'"
    )


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ((), "range(0,4)"), ((0, 2), "range(0,4)"), ((4, 5), "range(0,6)"),
        ((5,), "0,1,2,3,5"), ((123456789, 2), "0,1,2,3,123456789"),
    ],
)  # fmt: skip
def test_a_command_names_the_seeds_of_its_row_and_no_others(seeds, words, record_of, runs_of, settle):
    runs = runs_of([record_of(BASE, seed) | {"started_at": "2025"} for seed in seeds])
    line = shlex.split(fill(CONFIG | {"seeds": 4}, Sources(runs, settle)).rows.command[0])
    assert [word for word in line if word.startswith("seed=")] == [f"seed={words}"]


@pytest.mark.parametrize(
    "overrides",
    [
        ("task=mnist", "method=msbp", "method.gamma=0.5", "method.memory=per_slot", "trainer.epochs=2"),
        ("task=parsing_ewt", "model.hidden=50", "method=sbp", "paper.r=0.1"),
        ("task=mnist", "method=baseline", "optimizer.lr=1e-3"),
    ],
)
def test_a_rows_signature_is_that_of_a_run_with_its_overrides(overrides):
    settle, cfg = settings_from(Path(CONF), compose), compose(overrides)
    assert settle(overrides) == settle(list(overrides))
    setting = settle(overrides)
    assert setting.signature == signature(cfg) and setting.hidden == cfg.model.hidden
    assert (setting.r, setting.gamma) == (cfg.method.get("r"), cfg.method.get("gamma"))


def test_a_key_that_does_not_exist_is_refused_as_a_run_would():
    with pytest.raises(OmegaConfBaseException, match="gama"):
        settings_from(Path(CONF), compose)(("task=mnist", "method=msbp", "method.gama=0.5"))


def test_a_ratio_to_a_time_of_zero_is_a_dash(record_of, runs_of, settle):
    nothing = {"bp_s": 0.0, "update_s": 0.0, "total_s": 0.0}
    table = fill(CONFIG, Sources(runs_of([record_of(BASE), record_of(MSBP, **nothing)]), settle))
    assert rows(markdown(document_of(table).sheets[0]))[1][1:3] == ["0.000 (–)", "0.000 (–)"]
    assert document_of(table).numbers.bp_ratio.isna()[1]


def test_runs_on_another_device_than_the_cpu_are_named(record_of, runs_of, settle):
    records = [record_of(BASE), record_of(MSBP, device="H100"), record_of(MSBP, 1)]
    assert "- Device of MNIST: H100: 1 of 3 runs." in text_of(runs_of(records), settle)
    assert "Device" not in text_of(runs_of(records[::2]), settle)


def test_a_difference_is_rounded_alike_however_it_was_summed():
    halves = [0.105, 98.305 - 98.2, 0.3 - 0.195, sum([0.021] * 5), 0.105 - 1e-15, 0.105 + 1e-15]
    assert len({signed(half) for half in halves}) == 1
    assert signed(-0.001) == "+0.00"
