"""Every file of conf/table composes with the project's configuration and says what it labels."""

import re
from fractions import Fraction
from pathlib import Path

import pytest

from msbp.analysis.evidence import SCORES, SECONDS
from msbp.analysis.settings import settings_from
from msbp.analysis.wanted import asked_by, configs
from msbp.launch import CONF, compose

settle = settings_from(Path(CONF), compose)
CONFIGS = configs(Path(CONF), "table")
ROWS = [
    pytest.param(block, row, id=f"{name}-{block['task']}-{row['label']}")
    for name, config in CONFIGS.items()
    for block in config["blocks"]
    for row in block["rows"]
]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_table_is_named_as_its_file_and_shows_known_columns(name):
    config = CONFIGS[name]
    assert config["name"] == name
    assert set(config["columns"]) <= SECONDS.keys() | SCORES.keys()
    papers = [row["paper"] for block in config["blocks"] for row in block["rows"] if "paper" in row]
    assert all(paper.keys() <= set(config["columns"]) for paper in papers)


@pytest.mark.parametrize(("block", "row"), ROWS)
def test_a_label_tells_what_is_run(block, row):
    overrides = [f"task={block['task']}", *block.get("overrides", []), *row["overrides"]]
    setting = settle(tuple(overrides))
    exists = (Path(CONF) / "task" / f"{block['task']}.yaml").is_file()
    assert (setting is not None) == exists
    letters = {"r": "r", "γ": "gamma", "h": "hidden"}
    for letter, value in re.findall(r"(r|γ|h)=([\d./]+)", row["label"]) if setting else ():
        assert getattr(setting, letters[letter]) == pytest.approx(float(Fraction(value)))


@pytest.mark.parametrize("name", CONFIGS)
def test_no_two_rows_of_a_block_ask_for_the_same_runs(name):
    for block in CONFIGS[name]["blocks"]:
        shared = [f"task={block['task']}", *block.get("overrides", [])]
        settings = [settle((*shared, *row["overrides"])) for row in block["rows"]]
        signatures = [setting.signature for setting in settings if setting]
        assert len(set(signatures)) == len(signatures)
