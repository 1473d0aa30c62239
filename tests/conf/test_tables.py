"""Every file of conf/table, conf/figure, conf/claim and conf/margin composes and matches its labels."""

import re
from fractions import Fraction
from pathlib import Path

import pytest
from hydra.utils import get_method

from msbp.analysis.claim import UNITS, region_of
from msbp.analysis.report import ROWS as ROW_TABLE
from msbp.analysis.settings import SECONDS, cells, configs, rows_of, settings_from
from msbp.analysis.tables import SCORES, SHARES
from msbp.config import CONF, compose
from msbp.config_files import read

settle = settings_from(Path(CONF), compose)
TABLES, FIGURES, CLAIMS = (configs(Path(CONF), group) for group in ("table", "figure", "claim"))
LISTED = {name: config for name, config in TABLES.items() if "blocks" in config}
LETTERS = {"r": "r", "γ": "gamma", "h": "hidden"}
BLOCKS = [
    pytest.param(config | {"blocks": [block]}, id=f"{name}-{block['task']}-{number}")
    for name, config in (LISTED | {n: c for n, c in FIGURES.items() if "blocks" in c}).items()
    for number, block in enumerate(config["blocks"])
]


@pytest.fixture(scope="module", params=BLOCKS)
def block(request):
    """The task of a block, and its rows with their settings, None for a task that does not exist."""
    return request.param["blocks"][0]["task"], [
        (row, settle(row.overrides)) for row in rows_of(request.param)
    ]


@pytest.mark.parametrize("name", [*TABLES, *FIGURES])
def test_a_files_name_is_that_of_its_table_figure_or_claim(name):
    config = (TABLES | FIGURES)[name]
    assert config["name"] == name and config["caption"]
    assert callable(get_method(config.get("_target_", ROW_TABLE)))
    assert not TABLES.keys() & FIGURES.keys(), "the files that are rendered would overwrite each other"


@pytest.mark.parametrize("name", LISTED)
def test_a_table_shows_known_columns(name):
    config = LISTED[name]
    assert set(config["columns"]) <= {*SECONDS, *SCORES, *SHARES}
    papers = [row["paper"] for block in config["blocks"] for row in block["rows"] if "paper" in row]
    assert all(paper.keys() <= set(config["columns"]) for paper in papers)


def test_a_rows_label_states_the_method_and_settings_that_it_runs(block):
    task, rows = block
    exists = (Path(CONF) / "task" / f"{task}.yaml").is_file()
    for row, setting in rows:
        assert (setting is not None) == exists, row
        for letter, value in re.findall(r"(r|γ|h)=([\d./]+)", row.label) if setting else ():
            assert getattr(setting, LETTERS[letter]) == pytest.approx(float(Fraction(value))), row
        for epochs in re.findall(r"(\d+) epochs", row.label):
            assert f"trainer.epochs={epochs}" in row.overrides, row


def test_no_two_rows_of_a_block_have_the_same_runs(block):
    _, rows = block
    signatures = [setting.signature for _, setting in rows if setting]
    assert len(set(signatures)) == len(signatures)


def test_the_grid_has_the_papers_cells_and_shares_runs_with_its_tables():
    grid = TABLES["t_test"]["grid"]
    for name in ("t_test", "f_test"):
        paper = TABLES[name]["paper"]
        assert paper.keys() == grid["sparse"].keys()
        assert all(len(values) == len(grid["gamma"]) for values in paper.values())
    every = cells(grid)
    assert len(every) == 1 + 3 + 27
    for path, row in (((20, 0.0), 1), ((20, 0.8), 2), ((None, None), 0)):
        row = list(rows_of(TABLES["main"]))[row]
        assert settle(every[path].overrides) == settle(row.overrides)
    r = {k: settle(every[k, 0.0].overrides).r for k in grid["sparse"]}
    assert all(round(500 * share) == k for k, share in r.items())


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_quotes_the_paper_and_names_its_rule(name):
    config = CLAIMS[name]
    assert all(config[key] for key in ("title", "quote", "where", "effect", "reason"))
    assert config["unit"] in UNITS and {"low", "high"} & config.keys() and config["margin"] >= 0
    region = region_of(config)
    assert region.low < region.high
    assert callable(get_method(config["_target_"]))
    assert set(config.get("tables", ())) <= LISTED.keys()
    assert set(config.get("figures", ())) <= TABLES.keys() | FIGURES.keys()


def test_claims_of_one_margin_share_its_reason():
    named = ("better_than_sbp", "best_of_all", "significance", "universal")
    assert len({(CLAIMS[name]["margin"], CLAIMS[name]["reason"]) for name in named}) == 1
    files = map(read, Path(CONF, "claim").glob("*.yaml"))
    reasons = [config["reason"] for config in files if "reason" in config]
    assert len(set(reasons)) == len(reasons), "a margin of several claims has a file in conf/margin"


def test_claims_have_an_order():
    assert sorted(config["order"] for config in CLAIMS.values()) == list(range(1, len(CLAIMS) + 1))
