"""The runs that rows, cells and figures request, and which of them are on record."""

import re
import shlex
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from msbp.analysis.figures import angle
from msbp.analysis.runs import Sources
from msbp.analysis.settings import Setting, SettingStore, rows_of, settings_from, together
from msbp.analysis.tables import fill
from msbp.config import CONF, compose
from msbp.config_files import ConfigFile

ROWS = [{"label": "MLP", "overrides": ["method=baseline"]}, {"label": "MSBP", "overrides": ["method=msbp"]}]
BLOCK = {"title": "MNIST", "task": "mnist", "score": "Acc (%)", "rows": ROWS}
GRID = {
    "name": "small", "task": "mnist", "seeds": 2, "baseline": ["method=baseline"], "sbp": ["method=sbp"],
    "msbp": ["method=msbp"], "sparse": {5: "method.r=0.01"}, "gamma": [0.1, 0.2], "command": "sweep it all",
}  # fmt: skip

ANGLE = {"k": 5, "step": 0, "epoch": 0.0, "angle": {"total": 1.0, "hidden": 1.0}}


def table(columns=("bp_s", "score"), **block):
    return {"name": "small", "caption": "", "seeds": 3, "columns": list(columns), "blocks": [BLOCK | block]}


@pytest.fixture
def sources(runs_of, settle):
    return lambda *records, **more: Sources(runs_of(records), settle, **more)


def test_a_table_has_the_seeds_that_its_rows_require_and_those_recorded(sources, record_of):
    required = sources(record_of("task=mnist method=msbp", 1)).required(table())
    assert [(row.overrides, row.timed) for row in required.row] == [
        (("task=mnist", f"method={method}"), 3) for method in ("baseline", "msbp") for _ in range(3)
    ]
    assert list(required.seed) == [0, 1, 2, 0, 1, 2] and list(required.index[required.present]) == [4]


def test_a_block_may_have_fewer_seeds_and_fewer_times(sources):
    row = next(rows_of(table(seeds=2, timed=1)))
    assert (row.seeds, row.timed) == (2, 1)
    assert list(sources().required(table(seeds=2, timed=1)).seed) == [0, 1, 0, 1]


def test_a_table_without_seconds_requires_no_times():
    assert next(rows_of(table(["score"]))).timed == 0


def test_a_timed_seed_without_comparable_times_is_named(sources, record_of):
    runs = [record_of("task=mnist method=msbp", seed, times_comparable=seed == 1) for seed in range(3)]
    required = sources(*runs).required(table(timed=2))[3:]
    assert list(required.untimed) == [True, False, False] and required.present.all()


def test_a_row_of_a_task_without_a_file_requires_no_runs(runs_of):
    assert Sources(runs_of([]), lambda overrides: None).required(table()).empty
    assert Sources(runs_of([]), lambda overrides: None).missing(table()) == []


def test_a_grid_requires_the_baseline_and_for_each_k_sbp_and_every_gamma(sources):
    required = sources().required({"grid": GRID})
    assert [" ".join(row.overrides) for row in required.row[required.seed == 0]] == [
        "task=mnist method=baseline", "task=mnist method=sbp method.r=0.01",
        "task=mnist method=msbp method.r=0.01 method.gamma=0.1",
        "task=mnist method=msbp method.r=0.01 method.gamma=0.2",
    ]  # fmt: skip
    assert {row.seeds for row in required.row} == {2}


def test_missing_runs_are_listed_as_commands_each_once(sources, record_of):
    base = [record_of("task=mnist method=baseline", seed) for seed in (0, 1)]
    assert sources(*base, where=["paths.outputs=/tmp/x"]).missing({"grid": GRID}) == [
        "sweep it all paths.outputs=/tmp/x"
    ]
    assert sources(*base).missing(table())[0] == (
        "python -m src.train -m task=mnist 'seed=range(0,3)' method=baseline"
    )


def test_a_figure_of_angles_requires_runs_with_angles(sources, record_of, angles_of):
    signature = "task=mnist method=msbp"
    watched = angles_of([{"config": {"signature": signature, "seed": 2, "method": "msbp"}, **ANGLE}])
    plain = record_of(signature, 0)
    required = sources(plain, angles=watched).required(table() | {"shows": "angles"})[3:]
    assert list(required.seed[required.present]) == [2]


def test_a_missing_benchmark_has_a_command(sources):
    config = {"benchmarks": [{"case": "mnist", "sweep": "k"}, {"case": "mnist", "sweep": "hidden"}]}
    by_k = {"case": "mnist", "sweep": "k", "threads": 1, "allocator": "keep"}
    measured = sources(benchmarks=[by_k])
    assert measured.missing(config) == ["python -m src.bench case=mnist sweep=hidden"]
    assert measured.benchmark("mnist", "k") and not measured.benchmark("mnist", "hidden")


def test_commands_that_differ_in_the_method_alone_are_one_sweep():
    assert together(["run a method=sbp", "run a method=msbp"]) == "run a method=sbp,msbp"
    assert together(["run a method=sbp", "", "run b"]) == "run a method=sbp && run b"


def test_settings_are_composed_once_for_all_programs_until_conf_changes(tmp_path):
    conf, store, composed = tmp_path / "conf", tmp_path / "kept", []
    (conf / "task").mkdir(parents=True)
    (conf / "task" / "mnist.yaml").write_text("a: 1")

    def compose(overrides):
        composed.append(overrides)
        return OmegaConf.create({"method": {"r": 0.5, "gamma": 1.0}, "model": {"hidden": 7}, "x": 1})

    def settled(gamma=0.5):
        return settings_from(conf, compose, store)(["task=mnist", f"method.gamma={gamma}"])

    first = settled()
    assert first.gamma == 0.5 and settled() == first and len(composed) == 1
    assert settled(0.6).gamma == 0.6 and settled(0.6) != first and len(composed) == 2
    (conf / "task" / "mnist.yaml").write_text("a: 2")
    assert settled() == first and len(composed) == 3


@pytest.fixture
def kept(tmp_path):
    """A file with the settings of two tasks, a and b, and what it holds."""
    store = SettingStore(tmp_path / "kept", tmp_path)
    for task in "ab":
        store.add((f"task={task}",), Setting(task, 0.5))
    return store.path, store.settings


DAMAGE = [b"", b"not json", b"\xff", b"7", b'["a", 1]', b'["DIGEST", 7, {}]', b'["DIGEST", ["c"], {"no": 1}]']


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("line", range(3))
def test_a_damaged_line_of_settings_is_replaced_and_the_others_are_used(kept, tmp_path, damage, line):
    path, settings = kept
    lines = path.read_bytes().splitlines(keepends=True)
    damage = damage.replace(b"DIGEST", SettingStore(path, tmp_path).digest.encode())
    path.write_bytes(b"".join([*lines[:line], damage + b"\n", *lines[line:]]))
    store = SettingStore(path, tmp_path)
    assert store.settings == settings
    store.add(("task=c",), Setting("c"))
    assert SettingStore(path, tmp_path).settings == store.settings
    assert path.read_bytes().splitlines(keepends=True)[:2] == lines


def test_a_store_of_settings_that_was_cut_anywhere_has_what_is_added(kept, tmp_path):
    path, settings = kept
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        store = SettingStore(path, tmp_path)
        assert store.settings.items() <= settings.items()
        store.add(("task=c",), Setting("c"))
        assert SettingStore(path, tmp_path).settings == store.settings
        assert len(path.read_bytes().splitlines()) == len(store.settings)


def test_settings_of_a_program_that_began_before_conf_changed_are_not_used_after(kept, tmp_path):
    path, _ = kept
    before = SettingStore(path, tmp_path)
    (tmp_path / "new.yaml").write_text("a: 1")
    after = SettingStore(path, tmp_path)
    assert after.settings == {}
    after.add(("task=a",), Setting("new"))
    before.add(("task=b",), Setting("old"))
    last = SettingStore(path, tmp_path)
    assert last.settings == {("task=a",): Setting("new")}
    last.add(("task=c",), Setting("c"))
    assert SettingStore(path, tmp_path).settings == last.settings and b"old" not in path.read_bytes()


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    store = SettingStore(tmp_path / "file" / "kept", tmp_path)
    store.add(("task=a",), Setting("1234"))
    assert store.settings


REFUSED = {  # an override of a row: the reason for which it gives no setting
    "method.gamma=0.1,0.2": "method.gamma=0.1,0.2 has several values, and a row has one",
    "method.nosuch=7": "Key 'nosuch' is not in struct",
    "method=nosuch": "In 'train': Could not find 'method/nosuch'",
    "method.gamma=[": "",
    "method.gamma=7": "method.gamma: Input should be less than or equal to 1",
    "method.r=0": "method.r: Input should be greater than 0",
    "model.hidden=-5": "model.hidden: Input should be greater than or equal to 1",
}


@pytest.mark.parametrize(
    ("word", "reason", "shown"),
    [*((*each, "table") for each in REFUSED.items()), ("method.gamma=7", "method.gamma: ", "angles")],
)
def test_a_row_that_gives_no_setting_is_named_with_its_file(runs_of, word, reason, shown):
    rows = [{"label": "MSBP", "overrides": ["method=msbp", word]}]
    config = ConfigFile(table(rows=rows) | ({"shows": "angles"} if shown == "angles" else {}), "x.yaml")
    sources = Sources(runs_of([]), settings_from(Path(CONF), compose))
    words = shlex.join(["task=mnist", "method=msbp", word])
    expected = f"^x.yaml: block 'MNIST', row 'MSBP': cannot compose {re.escape(words)}: {re.escape(reason)}"
    with pytest.raises(ValueError, match=expected):
        fill(config, sources) if shown == "table" else angle(config, sources)


def test_a_cell_of_a_grid_that_gives_no_setting_is_named_with_its_file(runs_of):
    config = {"grid": ConfigFile(GRID | {"sparse": {5: "method.r=9"}}, "small.yaml")}
    sources = Sources(runs_of([]), settings_from(Path(CONF), compose))
    with pytest.raises(ValueError, match="^small.yaml: block 'grid small', row 'SBP, k=5': cannot compose "):
        sources.missing(config)
