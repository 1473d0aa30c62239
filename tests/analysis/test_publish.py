import json
from functools import partial

import pytest

from msbp.analysis.publish import contents, shown_in, stale, with_angles, with_records, without_paths
from msbp.analysis.report import document
from msbp.analysis.runs import Sources, read_runs
from msbp.analysis.table_text import document_of
from msbp.analysis.tables import fill
from msbp.files import save
from msbp.measurements import BenchmarkRow

BASE, MSBP = "task=mnist method=baseline", "task=mnist method=msbp"
CONFIG = {
    "name": "small", "caption": "A small table", "seeds": 2, "columns": ["bp_s", "score"],
    "blocks": [{
        "title": "MNIST", "task": "mnist", "score": "Acc (%)",
        "rows": [
            {"label": "MLP", "overrides": ["method=baseline"]},
            {"label": "+ MSBP", "overrides": ["method=msbp"]},
        ],
    }],
}  # fmt: skip


@pytest.fixture
def lines(tmp_path):
    return tmp_path / "published" / "records.jsonl"


@pytest.fixture
def offer(runs_of, settle, lines):
    """Publish what the table uses of these records."""

    def offered(records, **keys):
        change = with_records([document_of(fill(CONFIG, Sources(runs_of(records), settle)))], lines, **keys)
        save({lines: change.text})
        return change

    return offered


def published(lines):
    return [json.loads(line) for line in lines.read_text("utf-8").splitlines()]


def test_only_what_the_table_uses_is_published(offer, lines, record_of):
    offer([record_of(BASE), record_of(MSBP), record_of("another setting")])
    assert [run["signature"] for run in published(lines)] == [BASE, MSBP]


def test_no_path_of_the_machine_is_published(offer, lines, record_of):
    offer([record_of(MSBP)])
    assert "/home" not in lines.read_text("utf-8")
    assert published(lines)[0]["config"] == {"task": {"name": "mnist"}, "method": {"name": "msbp"}}


def test_everything_else_is_published_as_it_was_measured(record_of):
    record = record_of(MSBP, history=[{"epoch": 1, "dev": 97.0}])
    kept = {"task": {"name": "mnist"}, "method": {"name": "msbp"}}
    assert without_paths(record) == record | {"config": kept}


def test_a_run_replaces_the_one_of_its_signature_and_seed_only(offer, lines, record_of):
    offer([record_of(MSBP, 0, test=98.0), record_of(MSBP, 1, test=98.1)])
    offer([record_of(MSBP, 0, test=98.4), record_of(BASE, 0)])
    assert [(run["signature"], run["seed"], run["test"]) for run in published(lines)] == [
        (MSBP, 0, 98.4), (MSBP, 1, 98.1), (BASE, 0, 98.2),
    ]  # fmt: skip


NEW = {"commit": "f" * 16, "test": 98.4}


def test_publishing_reports_its_changes(offer, record_of):
    assert list(offer([record_of(MSBP, seed) for seed in (0, 1)]).lines()) == [
        "2 added, 0 replaced, 0 kept as they were"
    ]
    change = offer([record_of(MSBP, 0), record_of(MSBP, 1, test=98.4), record_of(BASE, 0)])
    assert list(change.lines()) == [
        "1 added, 1 replaced, 1 kept as they were",
        f"replaced mnist msbp seed 1 ({MSBP}): commit 12345678 by 12345678",
    ]


def test_a_record_of_another_commit_is_not_replaced_while_others_of_its_row_stay(offer, lines, record_of):
    offer([record_of(MSBP, seed) for seed in (0, 1)])
    before = lines.read_bytes()
    with pytest.raises(ValueError, match=r"mix commits .* msbp seed 0 .*12345678 by ffffffff.* replace=true"):
        offer([record_of(MSBP, 0, **NEW), record_of(MSBP, 2, **NEW), record_of(BASE, 0)])
    assert lines.read_bytes() == before
    assert len(offer([record_of(MSBP, 0, **NEW)], replace=True).replaced) == 1
    assert len(offer([record_of(MSBP, seed, **NEW) for seed in (0, 1)]).replaced) == 1, "no longer mixed"


def test_a_whole_row_may_be_replaced_by_another_commit(offer, lines, record_of):
    offer([record_of(MSBP, seed) for seed in (0, 1)] + [record_of(BASE, 0)])
    change = offer([record_of(MSBP, seed, **NEW) for seed in (0, 1, 2)])
    assert (len(change.added), len(change.replaced), len(change.kept)) == (1, 2, 0)
    assert [run["test"] for run in published(lines)] == [98.2, 98.4, 98.4, 98.4]


def test_a_run_of_uncommitted_code_is_refused_without_allow_dirty(offer, lines, record_of):
    with pytest.raises(ValueError, match=r"uncommitted code, so nobody can repeat it .* allow_dirty=true"):
        offer([record_of(MSBP, dirty=True)])
    assert not lines.exists()
    with pytest.raises(ValueError, match="commit unknown"):
        offer([record_of(MSBP, commit="unknown")])
    offer([record_of(MSBP, dirty=True)], allow_dirty=True)
    assert len(published(lines)) == 1


def test_a_tiny_sample_is_never_published(offer, lines, record_of):
    with pytest.raises(ValueError, match="tiny"):
        offer([record_of(MSBP, sample="tiny")], allow_dirty=True)
    assert not lines.exists()


def test_nothing_to_publish_is_an_error(offer):
    with pytest.raises(ValueError, match="no runs of small"):
        offer([])


def test_a_damaged_line_is_an_error(offer, lines, record_of):
    lines.parent.mkdir()
    lines.write_text('{"signature": "5e\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"repair .*records.jsonl line 1"):
        offer([record_of(MSBP)])
    assert lines.read_text("utf-8") == '{"signature": "5e\n'


def test_published_records_give_the_same_table_as_the_runs(offer, lines, record_of, runs_of, settle):
    records = [record_of(signature, seed) for signature in (BASE, MSBP) for seed in (0, 1)]
    offer(records)
    assert document_of(fill(CONFIG, Sources(read_runs(lines, []), settle))).texts() == (
        document_of(fill(CONFIG, Sources(runs_of(records), settle))).texts()
    )


def test_the_readme_shows_the_published_table_between_its_markers(offer, lines, tmp_path, record_of, settle):
    readme = tmp_path / "README.md"
    readme.write_text("# γ\n<!-- table: small -->\nold\n<!-- end of table -->\nrest\n", encoding="utf-8")
    offer([record_of(MSBP, seed) for seed in (0, 1)])
    texts = contents(lines.parent, readme, {"small": CONFIG}, settle, new=["small"])
    assert "98.20 ± 0.00" in texts[readme]
    assert texts[readme].startswith("# γ\n<!-- table: small -->\n")
    assert texts[readme].endswith("\n<!-- end of table -->\nrest\n")
    assert {path.name for path in stale(texts)} == {"README.md", "small.md", "small.tex", "small.csv"}


def test_rendering_the_same_records_again_changes_nothing():
    once = shown_in("<!-- table: small -->\n<!-- end of table -->\n", "| {} |\n|---|\n".format)
    assert once == "<!-- table: small -->\n| small |\n|---|\n<!-- end of table -->\n"
    assert shown_in(once, "| {} |\n|---|\n".format) == once


@pytest.mark.parametrize(
    "text",
    [
        "<!-- table: small -->\nmine\n",
        "<!-- table: small -->\nmine\n<!-- table: small -->\n<!-- end of table -->\n",
        "<!-- end of table -->\n<!-- table: small -->\n",
        "<!-- table: small -->\n<!-- end of table -->\nmine\n<!-- end of table -->\n",
    ],
)
def test_markers_that_do_not_take_turns_are_refused_with_their_page(text):
    with pytest.raises(
        ValueError, match=r"^my page: each <!-- table: NAME --> needs one <!-- end of table -->"
    ):
        shown_in(text, str, "my page")


@pytest.mark.parametrize("damage", [None, b"\xff"])
def test_a_readme_that_cannot_be_read_is_named_with_its_key(damage, lines, tmp_path, settle):
    page = tmp_path / "README.md"
    if damage:
        page.write_bytes(damage)
    with pytest.raises(ValueError, match=rf"^{page}: cannot read .*paths\.readme names it"):
        contents(lines.parent, page, {}, settle)


def test_benchmarks_are_shown_without_their_variants(lines, tmp_path, settle):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- table: bench -->\n<!-- end of table -->\n", encoding="utf-8")
    assert "python -m src.bench case=mnist" in contents(lines.parent, readme, {}, settle)[readme]
    about = {"case": "mnist", "sweep": None, "allocator": "keep", "cpu": "A 1", "torch": "2.6", "blas": "mkl"}
    row = dict.fromkeys([*BenchmarkRow.model_fields], 1.0) | {"name": "msbp", "steps": 1, "k_per_layer": {}}
    row |= dict.fromkeys(["vs_torch", "vs_dense"])
    results = [about | {"threads": n, "commit": "1234", "dirty": False, "rows": [row]} for n in (1, 2)]
    lines.parent.mkdir()
    (lines.parent / "bench.json").write_text(json.dumps(results), encoding="utf-8")
    texts = contents(lines.parent, readme, {}, settle)
    assert "2 threads" in texts[lines.parent / "bench.md"]
    assert "- mnist: A 1, 1 thread," in texts[readme]
    assert "2 threads" not in texts[readme]


def test_a_shown_table_that_does_not_exist_is_named(lines, tmp_path, settle):
    (tmp_path / "README.md").write_text("<!-- table: smal -->\n<!-- end of table -->\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"shows table: smal; there are bench, verdicts, beyond, small"):
        contents(lines.parent, tmp_path / "README.md", {"small": CONFIG}, settle)


def test_a_published_table_is_updated_with_its_records(offer, lines, tmp_path, record_of, settle):
    (tmp_path / "README.md").write_text("", encoding="utf-8")
    offer([record_of(MSBP)])
    configs = {name: CONFIG | {"name": name} for name in ("small", "never")}
    (lines.parent / "small.csv").write_text("old", encoding="utf-8")
    texts = contents(lines.parent, tmp_path / "README.md", configs, settle)
    assert {path.name for path in texts} == {"README.md", "small.md", "small.tex", "small.csv"}


FIGURE = {
    "_target_": "msbp.analysis.figures.angle", "name": "angle", "caption": "δ of MSBP.", "shows": "angles",
    "seeds": 1, "columns": [],
    "blocks": [{"title": "MNIST", "task": "mnist", "rows": [CONFIG["blocks"][0]["rows"][1]]}],
}  # fmt: skip


@pytest.fixture
def angles():
    about = {"signature": MSBP, "seed": 0, "method": "msbp"}
    return [
        {"config": about, "k": 5, "step": s, "epoch": s / 2, "angle": {"total": 1.0, "hidden": 1.0}}
        for s in (0, 2)
    ]


def test_angles_are_published_with_their_runs_and_each_once(
    lines, record_of, runs_of, settle, angles, angles_of
):
    shown = document(FIGURE, Sources(runs_of([record_of(MSBP)]), settle, angles=angles_of(angles)))
    save({lines: with_records([shown], lines).text})
    kept = lines.with_name("angles.jsonl")
    for _ in range(2):
        save({kept: with_angles(shown, kept)})
    assert [json.loads(line)["step"] for line in kept.read_text("utf-8").splitlines()] == [0, 2]
    assert [run["signature"] for run in published(lines)] == [MSBP]


def test_angles_leave_a_record_that_is_published_as_it_is(
    lines, record_of, runs_of, settle, angles, angles_of
):
    def publish_angles(record):
        shown = document(FIGURE, Sources(runs_of([record]), settle, angles=angles_of(angles)))
        save({lines: with_records([shown], lines).text})

    publish_angles(record_of(MSBP, commit="a" * 40))
    publish_angles(record_of(MSBP, commit="b" * 40, test=1.0))
    assert [run["commit"] for run in published(lines)] == ["a" * 40]


def test_images_must_exist_but_only_text_is_compared(lines, tmp_path, settle, angles):
    readme, folder = tmp_path / "README.md", lines.parent
    readme.write_text("<!-- table: angle -->\n<!-- end of table -->\n", encoding="utf-8")
    folder.mkdir()
    (folder / "angles.jsonl").write_text("".join(json.dumps(angle) + "\n" for angle in angles))
    check = partial(contents, folder, readme, {"angle": FIGURE}, settle, new=["angle"], draw=False)
    save(contents(folder, readme, {"angle": FIGURE}, settle, new=["angle"]))
    assert "![δ of MSBP.](published/angle.svg)" in readme.read_text("utf-8")
    (folder / "angle.svg").write_bytes(b"drawn by another release")
    assert stale(check()) == []
    (folder / "angle.png").unlink()
    (folder / "angle.csv").write_text("old", encoding="utf-8")
    assert {path.name for path in stale(check())} == {"angle.png", "angle.csv"}


def test_a_figure_without_points_is_shown_as_what_to_run(lines, tmp_path, settle):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- table: angle -->\n<!-- end of table -->\n", encoding="utf-8")
    text = contents(lines.parent, readme, {"angle": FIGURE}, settle)[readme]
    assert "Not measured yet: `python -m src.train -m task=mnist 'seed=range(0,1)' method=msbp`" in text
