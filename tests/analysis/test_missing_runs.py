"""The commands that a table lacks, and their order."""

import shlex

import pytest

from msbp.analysis.runs import Sources
from scripts.reproduce import Plan, requested

BASE, MSBP = ("task=mnist", "method=baseline"), ("task=mnist", "method=msbp")


def config(columns=("bp_s", "score"), seeds=2, **block):
    rows = [{"label": word, "overrides": [f"method={word}"]} for word in ("baseline", "msbp")]
    blocks = [{"title": "MNIST", "task": "mnist", "score": "Acc (%)", "rows": rows} | block]
    return {"name": "small", "caption": "", "seeds": seeds, "columns": list(columns), "blocks": blocks}


@pytest.fixture
def lacking(runs_of, settle):
    """Return the commands of the runs that configs request and these records lack."""

    def lacking(*configs, records=(), where=()):
        return requested(configs, Sources(runs_of(records), settle), where)

    return lacking


def commands(planned):
    return [job.command.removeprefix("python -m src.train ") for job in planned]


def test_methods_take_turns_seed_by_seed(lacking):
    assert commands(lacking(config())) == [
        "task=mnist seed=0 method=baseline", "task=mnist seed=0 method=msbp",
        "task=mnist seed=1 method=baseline", "task=mnist seed=1 method=msbp",
    ]  # fmt: skip


def test_a_command_has_the_shared_overrides_and_the_users_folders(lacking):
    (job,) = lacking(config(seeds=1, overrides=["model.hidden=[a, b]"], rows=[
        {"label": "+ MSBP", "overrides": ["method=msbp"]}]), where=["paths.outputs=/x y"])  # fmt: skip
    words = ["task=mnist", "paths.outputs=/x y", "seed=0", "model.hidden=[a, b]", "method=msbp"]
    assert shlex.split(job.command) == ["python", "-m", "src.train", *words]
    assert job.task == "mnist"
    assert job.data == ("task=mnist", "paths.outputs=/x y")


def test_a_recorded_run_is_repeated_only_if_its_times_are_required_and_not_comparable(lacking, record_of):
    records = [record_of(" ".join(BASE), 0), record_of(" ".join(MSBP), 0, times_comparable=False)]
    assert commands(lacking(config(seeds=1), records=records)) == ["task=mnist seed=0 method=msbp force=true"]
    assert lacking(config(columns=["score"], seeds=1), records=records) == []


def test_timed_runs_come_first_and_run_alone_also_where_another_table_shows_only_scores(lacking):
    scores, times = config(columns=["score"], seeds=2), config(seeds=2, timed=1)
    planned = lacking(scores, times)
    assert [job.alone for job in planned] == [True, True, False, False]
    assert len({job.key for job in planned}) == 4
    assert "seed=0" in planned[0].command and "seed=1" in planned[2].command


def test_rows_of_a_task_that_does_not_exist_are_left_out(runs_of):
    assert requested([config()], Sources(runs_of([]), lambda overrides: None)) == []


def test_a_plan_follows_the_records_and_leaves_out_excluded_data(runs_of, record_of, settle):
    records = []
    plan = Plan([config(seeds=1)], lambda: Sources(runs_of(records), settle))
    _, second = plan()
    records.append(record_of(" ".join(BASE), 0))
    assert plan() == [second]
    assert Plan(plan.configs, plan.read, only=["polarity"])() == []
    plan.without.add(second.data)
    assert plan() == []
