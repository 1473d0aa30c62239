"""Tables of differences to named rows, and the hypotheses that they decide."""

from pathlib import Path

import pytest

from msbp.analysis.differences import answered, differences
from msbp.analysis.runs import Sources
from msbp.analysis.settings import configs
from msbp.config import CONF

TABLES = {name: config for name, config in configs(Path(CONF), "table").items() if "against" in config}
CONFIG = {
    "name": "mine", "caption": "Mine.", "seeds": 6, "columns": ["score"], "against": ["SBP"],
    "blocks": [{
        "title": "MNIST", "task": "mnist", "score": "Acc (%)",
        "rows": [{"label": "SBP", "overrides": ["method=sbp"]},
                 {"label": "MSBP", "overrides": ["method=msbp"]},
                 {"label": "other", "overrides": ["method=msbp", "method.gamma=0.1"]}],
    }],
    "questions": [
        {"sentence": "MSBP scores higher", "more": ["MSBP"], "less": ["SBP"], "low": 0, "margin": 0.1}
    ],
}  # fmt: skip


@pytest.fixture
def filled(record_of, runs_of, settle):
    """The document of these scores by row, seed by seed."""

    def fill_from(**scores):
        words = {"sbp": "method=sbp", "msbp": "method=msbp", "other": "method=msbp method.gamma=0.1"}
        records = [
            record_of(f"task=mnist {words[row]}", seed, test=score)
            for row, values in scores.items()
            for seed, score in values.items()
        ]
        return differences(CONFIG, Sources(runs_of(records), settle))

    return fill_from


def test_differences_are_over_the_seeds_that_both_rows_have(filled):
    rows = filled(sbp={0: 96.0, 1: 97.0, 2: 90.0}, msbp={0: 97.0, 1: 98.5}).numbers.set_index("row")
    assert rows["minus SBP: estimate"]["MSBP"] == pytest.approx(1.25)
    assert rows["minus SBP: n"]["MSBP"] == 2 and rows.n["SBP"] == 3
    half = 12.7062 * 0.25
    assert rows["minus SBP: low"]["MSBP"] == pytest.approx(1.25 - half, abs=1e-3)
    text = filled(sbp={0: 96.0, 1: 97.0}, msbp={0: 97.0, 1: 98.5}).texts()["md"]
    assert "+1.25 (-1.93 to +4.43)" in text and "0 of 6" in text


def test_a_comparison_is_decided_by_five_seeds_and_an_interval_that_excludes_zero(filled):
    def answer(gains):
        sbp = dict.fromkeys(range(6), 96.0)
        result = filled(sbp=sbp, msbp={seed: 96 + gain for seed, gain in enumerate(gains)})
        return result.sheets[1].blocks[0].answer[0]

    assert answer([1.0, 1.1, 0.9, 1.2, 0.8]) == "yes"
    assert answer([-1.0, -1.1, -0.9, -1.2, -0.8]) == "no"
    assert answer([1.0, 1.1, 0.9, 1.2]) == "open"
    assert answer([1.0, -1.1, 0.9, -1.2, 0.3]) == "open"


def test_decided_comparisons_are_listed_with_differences_and_others_as_open(record_of, runs_of, settle):
    def listed(n):
        runs = [record_of(f"task=mnist method={m}", seed, test=96.0 + (m == "msbp") + seed / 50)
                for m in ("sbp", "msbp") for seed in range(n)]  # fmt: skip
        return list(answered({"mine": CONFIG}, Sources(runs_of(runs), settle)))

    assert listed(4) == ["**Beyond the paper, open**: MSBP scores higher."]
    (sentence,) = listed(5)
    assert sentence.startswith("**Beyond the paper, yes**: MSBP scores higher. MNIST: MSBP minus SBP +1.00")
    assert sentence.endswith(", yes.")


def test_an_unknown_row_label_is_refused(record_of, runs_of, settle):
    config = CONFIG | {"against": ["SPB"]}
    with pytest.raises(ValueError, match="table mine has no single row 'SPB'"):
        differences(config, Sources(runs_of([record_of("task=mnist method=sbp", 0)]), settle))


@pytest.mark.parametrize("name", TABLES)
def test_a_tables_questions_name_its_rows(name, runs_of, settle):
    config = TABLES[name]
    labels = {row["label"] for block in config["blocks"] for row in block["rows"]}
    named = {*config["against"], *(x for q in config["questions"] for x in (*q["more"], *q["less"]))}
    assert named <= labels
    for question in config["questions"]:
        assert question["sentence"] and question["margin"] >= 0 and {"low", "high"} & question.keys()
