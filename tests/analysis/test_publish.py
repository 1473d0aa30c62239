import json
from functools import partial

import pytest
from omegaconf import OmegaConf

from msbp.analysis.publish import contents, shown_in, stale, with_records, without_paths
from msbp.analysis.report import document
from msbp.analysis.runs import Sources, read_runs
from msbp.analysis.table_text import document_of
from msbp.analysis.tables import fill
from msbp.files import save
from msbp.measurements import BenchmarkRow
from scripts.publish import add

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


@pytest.fixture
def offer_angles(lines, runs_of, settle, angles_of):
    """Publish what the figure of angles shows of these records and angles; return the lines that say so."""

    def offered(records, angles, **options):
        measured = Sources(runs_of(records), settle, angles=angles_of(angles))
        files = {}
        usual = {"allow_dirty": False, "replace": False, "translations": False}
        cfg = OmegaConf.create(usual | options)
        said = list(add([document(FIGURE, measured)], lines.parent, cfg, files))
        save(files)
        return said

    return offered


def published_angles(lines):
    """The angle of each step that is published."""
    stored = published(lines.with_name("angles.jsonl"))
    return {(each["config"]["seed"], each["step"]): each["angle"]["total"] for each in stored}


def wider(angles, seed=0):
    """Other measurements of these angles."""
    return [
        {**each, "config": each["config"] | {"seed": seed}, "angle": {"total": 1.5, "hidden": 1.5}}
        for each in angles
    ]


def test_angles_are_published_with_their_runs_and_each_once(offer_angles, lines, record_of, angles):
    for _ in range(2):
        offer_angles([record_of(MSBP)], angles)
    assert published_angles(lines) == {(0, 0): 1.0, (0, 2): 1.0}
    assert [run["signature"] for run in published(lines)] == [MSBP]


def test_angles_and_their_record_are_replaced_together(offer_angles, lines, record_of, angles):
    offer_angles([record_of(MSBP, commit="a" * 40)], angles)
    said = offer_angles([record_of(MSBP, commit="b" * 40)], wider(angles[:1]))
    assert "  0 added, 1 replaced, 0 kept as they were" in said
    assert [run["commit"] for run in published(lines)] == ["b" * 40]
    assert published_angles(lines) == {(0, 0): 1.5}, "that of step 2 was another run's"


def test_angles_stay_with_a_record_that_stays_and_are_added_where_it_has_none(
    offer_angles, lines, record_of, angles
):
    offer_angles([record_of(MSBP)], angles[:1])
    offer_angles([record_of(MSBP), record_of(MSBP, 1)], [*wider(angles), *wider(angles, seed=1)])
    assert published_angles(lines) == {(0, 0): 1.0, (0, 2): 1.5, (1, 0): 1.5, (1, 2): 1.5}


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"dirty": True}, "uncommitted code"),
        ({"commit": "unknown"}, "uncommitted code"),
        ({"sample": "tiny"}, "trials are never published"),
        ({"commit": "f" * 40}, "would mix commits within a row"),
    ],
)
def test_no_angle_is_replaced_by_that_of_a_run_which_is_refused(
    offer_angles, lines, record_of, angles, fields, refusal
):
    offer_angles([record_of(MSBP, 0), record_of(MSBP, 1)], [*angles, *wider(angles, seed=1)])
    before = {path: path.read_bytes() for path in lines.parent.iterdir()}
    with pytest.raises(ValueError, match=refusal):
        offer_angles([record_of(MSBP, 0, **fields)], wider(angles))
    assert {path: path.read_bytes() for path in lines.parent.iterdir()} == before


def test_angles_without_a_record_are_not_published(offer_angles, lines, angles):
    with pytest.raises(ValueError, match="no runs of angle on record"):
        offer_angles([], angles)
    assert not lines.parent.exists()


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
