"""Tables of translation: both BLEUs, their rules, and rows compared by what their runs left."""

import json

import pytest

from msbp.analysis import rows
from msbp.analysis.runs import own_runs
from msbp.analysis.sources import Sources

BASE, SBP = (f"task=multi30k method={method}" for method in ("baseline", "sbp"))
CONFIG = {
    "name": "small", "caption": "A small table", "seeds": 2, "columns": ["dev", "score"],
    "blocks": [{
        "title": "En-De", "task": "multi30k", "score": "Test BLEU",
        "rows": [
            {"label": "Seq2seq", "overrides": ["method=baseline"], "paper": {"score": 28.45}},
            {"label": "+ SBP", "overrides": ["method=sbp"]},
        ],
    }],
}  # fmt: skip
RULE = "nrefs:1|case:mixed|eff:no|tok:{}|smooth:exp|version:2.6.0"
SIGNATURE = f"bleu detokenised|{RULE.format('13a')}; tokenised|{RULE.format('none')}; beam:10"
LINES = [f"one {i} two {i * i} three {i % 7} four {i % 5} five" for i in range(40)]


@pytest.fixture
def sources(tmp_path, record_of, settle):
    """Two seeds of each row; the second seed of SBP left no translations."""
    for signature, bleu, wrong in ((BASE, 30.0, "two"), (SBP, 31.0, "none")):
        for seed in (0, 1):
            epochs = [{"epoch": e, "test_bleu_tokenised": bleu + seed + e, "test": None} for e in (1, 2)]
            record = record_of(
                signature, seed, metric="bleu", metric_signature=SIGNATURE, history=epochs, best_epoch=2,
                test=bleu + seed,
            )  # fmt: skip
            folder = tmp_path / f"{signature}-{seed}"
            folder.mkdir()
            (folder / "record.json").write_text(json.dumps(record))
            texts = {"references.0.txt": LINES, "hypotheses.txt": [a.replace(wrong, "2") for a in LINES]}
            for name, lines in texts.items():
                (folder / name).write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / f"{SBP}-1" / "hypotheses.txt").unlink()
    return Sources(own_runs(tmp_path), settle)


def test_the_other_bleu_is_that_of_the_epoch_of_the_score(sources):
    made = rows.document(CONFIG, sources)
    (grid,) = made.sheets[0].grids
    assert grid.header == ["En-De", "Dev BLEU", "Test BLEU", "BLEU, tokenised", "n", "paper: Test BLEU"]
    assert grid.rows[1][2:4] == ["31.50 ± 0.71 (+1.00)", "33.50 ± 0.71 (+1.00)"]
    assert made.numbers[1]["other_bleu_mean"] == 33.5 and made.numbers[1]["other_bleu_delta"] == 1


def test_the_rule_of_bleu_stands_below_its_block(sources):
    below = rows.document(CONFIG, sources).sheets[0].below
    assert below[0] == f"BLEU of En-De: {SIGNATURE.removeprefix('bleu ')}."


def test_rows_are_resampled_for_seeds_of_which_both_left_translations(sources):
    note = rows.document(CONFIG, sources).sheets[0].below[-1]
    assert note.startswith("Paired bootstrap of En-De, 1000 samples: SBP against Seq2seq +")
    assert "(p = 0.001, seed 0)" in note and "seed 1" not in note


def test_records_alone_give_no_resampling(sources, runs_of, settle):
    published = Sources(runs_of(sources.runs.records.values()), settle)
    assert "Paired bootstrap" not in " ".join(rows.document(CONFIG, published).sheets[0].below)


def test_runs_that_cannot_be_paired_are_left_out(sources, tmp_path):
    (tmp_path / f"{BASE}-0" / "references.0.txt").write_text("another test set\n")
    assert "Paired bootstrap" not in " ".join(rows.document(CONFIG, sources).sheets[0].below)
