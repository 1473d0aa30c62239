"""Paired bootstrap of translations, and the two BLEUs of tables of translation."""

import gzip
import json
import random

import pytest

from msbp.analysis import table_text
from msbp.analysis.publish import translations_of
from msbp.analysis.runs import Sources, read_runs
from msbp.analysis.significance import paired_bootstrap
from msbp.files import save

RULE = "bleu tokenised|nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2; detokenised|nrefs:1; beam:10"
chance = random.Random(0)
REFERENCE = [" ".join(chance.choice("abcdefgh") for _ in range(12)) for _ in range(60)]


@pytest.fixture
def run(tmp_path):
    """Makes the folder of a run whose translations have a share of wrong words."""

    def make(name, wrong, rule=RULE, reference=REFERENCE):
        chance = random.Random(name)
        lines = [
            " ".join("x" if chance.random() < wrong else word for word in line.split()) for line in REFERENCE
        ]
        (tmp_path / name).mkdir()
        texts = {"hypotheses.txt": lines, "references.0.txt": reference}
        for file, content in texts.items():
            (tmp_path / name / file).write_text("\n".join(content) + "\n")
        (tmp_path / name / "record.json").write_text(json.dumps({"metric_signature": rule}))
        return tmp_path / name

    return make


def test_a_worse_run_differs_and_an_equal_one_does_not(run):
    folders = [run("one", 0.1), run("alike", 0.1), run("worse", 0.3)]
    first, alike, worse = paired_bootstrap(folders, samples=200)
    assert first.p is None and worse.p < 0.01 < 0.05 < alike.p
    assert worse.bleu < alike.bleu and 0 < worse.interval < 20
    assert paired_bootstrap(folders, samples=200) == [first, alike, worse]
    assert [run.p for run in paired_bootstrap([folders[0]] * 3, samples=200)] == [None, 1.0, 1.0]


def test_published_translations_give_the_same_bootstrap_as_the_runs(run, tmp_path, record_of, runs_of):
    paths = [run(name, wrong) for name, wrong in (("one", 0.1), ("two", 0.2))]
    runs = runs_of([record_of(path.name, seed=seed) for seed, path in enumerate(paths)])
    runs["source"] = [str(path / "record.json") for path in paths]
    packed = translations_of(runs, tmp_path / "published")
    save(packed)
    files = list(packed)
    assert [path.parent for path in files] == 2 * [tmp_path / "published" / "translations"]
    assert paired_bootstrap(files, 50) == paired_bootstrap(paths, 50)
    assert translations_of(runs, tmp_path / "published") == packed, "the same bytes each time"
    files[0].write_bytes(files[0].read_bytes()[:-9])
    with pytest.raises(ValueError, match="holds no translations"):
        paired_bootstrap(files, 50)


def test_resampled_bleu_follows_case_as_in_the_record(run):
    capitals = [line.upper() for line in REFERENCE]
    cased = RULE.replace("case:lc", "case:mixed")
    assert paired_bootstrap([run("a", 0.0, reference=capitals)] * 2, 10)[0].bleu == pytest.approx(100)
    assert paired_bootstrap([run("b", 0.0, cased, reference=capitals)] * 2, 10)[0].bleu < 1


def test_runs_that_cannot_be_paired_are_refused(run):
    folders = [run("a", 0.1), run("b", 0.1, reference=REFERENCE[::-1])]
    with pytest.raises(ValueError, match="differ in test set or BLEU"):
        paired_bootstrap(folders)
    (folders[0] / "hypotheses.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no hypotheses\.txt and references"):
        paired_bootstrap(folders)


def test_a_truncated_text_is_refused(run):
    folder = run("a", 0.1)
    (folder / "hypotheses.txt").write_text("x\n")
    with pytest.raises(ValueError, match=r"not as many lines as the references"):
        paired_bootstrap([folder, run("b", 0.1)])


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
SACREBLEU = "nrefs:1|case:mixed|eff:no|tok:{}|smooth:exp|version:2.6.0"
SIGNATURE = f"bleu detokenised|{SACREBLEU.format('13a')}; tokenised|{SACREBLEU.format('none')}; beam:10"
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
    return Sources(read_runs(tmp_path, []), settle)


def test_both_bleu_scores_are_of_the_same_epoch(sources):
    shown = table_text.document(CONFIG, sources)
    (block,) = shown.sheets[0].blocks
    assert list(block.columns[:-1]) == [
        "En-De",
        "Dev BLEU",
        "Test BLEU",
        "BLEU, tokenised",
        "n",
        "paper: Test BLEU",
    ]
    assert list(block.iloc[1, 2:4]) == ["31.50 ± 0.71 (+1.00)", "33.50 ± 0.71 (+1.00)"]
    assert shown.numbers.other_bleu_mean[1] == 33.5 and shown.numbers.other_bleu_delta[1] == 1


def test_the_rule_of_bleu_stands_below_its_block(sources):
    below = table_text.document(CONFIG, sources).sheets[0].below
    assert below[0] == f"BLEU of En-De: {SIGNATURE.removeprefix('bleu ')}."


def test_rows_are_resampled_for_seeds_of_which_both_left_translations(sources):
    note = table_text.document(CONFIG, sources).sheets[0].below[-1]
    assert note.startswith("Paired bootstrap of En-De, 1000 samples: SBP against Seq2seq +")
    assert "(p = 0.001, seed 0)" in note and "seed 1" not in note


def test_records_alone_give_no_resampling(sources, runs_of, settle):
    published = Sources(runs_of(sources.runs.record), settle)
    assert "Paired bootstrap" not in " ".join(table_text.document(CONFIG, published).sheets[0].below)


def test_runs_that_cannot_be_paired_are_left_out(sources, tmp_path):
    (tmp_path / f"{BASE}-0" / "references.0.txt").write_text("another test set\n" * len(LINES))
    assert "Paired bootstrap" not in " ".join(table_text.document(CONFIG, sources).sheets[0].below)
    assert not sources.damaged


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("hypotheses.txt", b"one line\n"), ("hypotheses.txt", b""), ("hypotheses.txt", b"\xff\n" * 40),
        ("references.0.txt", None), ("references.0.txt", b"x"), ("record.json", b"{"), ("record.json", b"[]"),
        ("record.json", b"{}"), ("record.json", b'{"metric_signature": null}'), ("record.json", None),
        ("record.json", b'{"metric_signature": "bleu x|case:lc"}'),
    ],
    ids=ascii,
)  # fmt: skip
def test_damaged_translations_are_named_and_the_table_is_shown_without(file, content, sources, tmp_path):
    path = tmp_path / f"{BASE}-0" / file
    path.unlink() if content is None else path.write_bytes(content)
    below = table_text.document(CONFIG, sources).sheets[0].below
    assert "Paired bootstrap" not in " ".join(below)
    (sentence,) = sources.damaged
    assert str(path.parent) in sentence and "\n" not in sentence


@pytest.mark.parametrize("content", [b"x", b"[]", b"{}", b'{"hypotheses": 1, "references": [], "rule": "x"}'])
def test_damaged_published_translations_are_named(content, sources, tmp_path):
    packed = tmp_path / f"{BASE}-0" / "translations" / f"{BASE}-0.json.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(content))
    table_text.document(CONFIG, sources)
    assert len(sources.damaged) == 1 and f"{packed} holds no translations" in sources.damaged[0]
