"""The runs that rows, cells and figures request, and which of them are on record."""

import pytest
from omegaconf import OmegaConf

from msbp.analysis.plan import coverage, measurements, missing_commands
from msbp.analysis.runs import Sources
from msbp.analysis.settings import Setting, SettingStore, settings_from, together

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


def test_a_row_has_its_overrides_and_its_recorded_seeds(sources, record_of):
    base, msbp = coverage(table(), sources(record_of("task=mnist method=msbp", 1)))
    assert base.row.overrides == ("task=mnist", "method=baseline") and base.missing == (0, 1, 2)
    assert (msbp.present, msbp.missing, msbp.row.timed) == ((1,), (0, 2), 3)


def test_a_block_may_have_fewer_seeds_and_fewer_times(sources):
    covered = coverage(table(seeds=2, timed=1), sources())[0].row
    assert (covered.seeds, covered.timed) == (2, 1)


def test_a_table_without_seconds_requires_no_times(sources):
    assert coverage(table(["score"]), sources())[0].row.timed == 0


def test_a_timed_seed_without_comparable_times_is_named(sources, record_of):
    runs = [record_of("task=mnist method=msbp", seed, times_comparable=seed == 1) for seed in range(3)]
    row = coverage(table(timed=2), sources(*runs))[1]
    assert row.without_times == (0,) and row.with_times == (1,) and not row.missing


def test_a_row_of_a_task_without_a_file_is_listed_as_unknown(runs_of):
    row, _ = coverage(table(), Sources(runs_of([]), lambda overrides: None))
    assert not row.known


def test_a_grid_requires_the_baseline_and_for_each_k_sbp_and_every_gamma(sources):
    cells = coverage({"grid": GRID}, sources())
    assert [" ".join(cell.row.overrides) for cell in cells] == [
        "task=mnist method=baseline", "task=mnist method=sbp method.r=0.01",
        "task=mnist method=msbp method.r=0.01 method.gamma=0.1",
        "task=mnist method=msbp method.r=0.01 method.gamma=0.2",
    ]  # fmt: skip
    assert {cell.row.seeds for cell in cells} == {2}


def test_missing_runs_are_listed_as_commands_each_once(sources, record_of):
    base = [record_of("task=mnist method=baseline", seed) for seed in (0, 1)]
    assert missing_commands({"grid": GRID}, sources(*base, where=["paths.outputs=/tmp/x"])) == [
        "sweep it all paths.outputs=/tmp/x"
    ]
    assert missing_commands(table(), sources(*base))[0] == (
        "python -m src.train -m task=mnist 'seed=range(0,3)' method=baseline"
    )


def test_a_figure_of_angles_requires_runs_with_angles(sources, record_of, angles_of):
    signature = "task=mnist method=msbp"
    watched = angles_of([{"config": {"signature": signature, "seed": 2, "method": "msbp"}, **ANGLE}])
    plain = record_of(signature, 0)
    row = coverage(table() | {"shows": "angles"}, sources(plain, angles=watched))[1]
    assert row.present == (2,)


def test_a_missing_benchmark_has_a_command(sources):
    config = {"benchmarks": [{"case": "mnist", "sweep": "k"}, {"case": "mnist", "sweep": "hidden"}]}
    by_k, by_hidden = measurements(config, sources(benchmarks=[{"case": "mnist", "sweep": "k"}]))
    assert by_k.present and not by_hidden.present
    assert by_hidden.command == "python -m src.bench case=mnist sweep=hidden"


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


@pytest.mark.parametrize("damage", [b"", b"not json", b"\xff", b'["a", 1]', b'[["a"], {"no": 1}]'])
def test_a_damaged_store_of_settings_is_replaced(tmp_path, damage):
    path, setting = tmp_path / "kept", Setting("1234", 0.5)
    SettingStore(path, tmp_path).add(("task=a",), setting)
    path.write_bytes(path.read_bytes().splitlines()[0] + b"\n" + damage)
    store = SettingStore(path, tmp_path)
    assert store.settings == {}
    store.add(("task=a",), setting)
    assert SettingStore(path, tmp_path).settings == {("task=a",): setting}
    path.write_bytes(damage)
    assert SettingStore(path, tmp_path).settings == {}


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    store = SettingStore(tmp_path / "file" / "kept", tmp_path)
    store.add(("task=a",), Setting("1234"))
    assert store.settings
