"""The command line: `python -m src.train`, its files, refusals and recovery."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from glob import glob
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from hydra._internal.hydra import Hydra
from omegaconf import OmegaConf
from overridden import overridden

from msbp.config import compose
from msbp.tasks.mnist import Mnist
from src.train import main, train

ROOT = Path(__file__).resolve().parents[1]
SMOKE = ("experiment=smoke", "task=mnist")
LEFT = {"record.json", "history.csv", "train.log", "weights.pt", "config.yaml", "overrides.yaml"}


def records(outputs):
    """The records below a folder, in which a run may be making and removing others meanwhile."""
    paths = map(Path, sorted(glob(f"{outputs}/**/record.json", recursive=True)))
    return {path.parent: json.loads(path.read_bytes()) for path in paths}


@pytest.fixture
def smoke(commands, tmp_path):
    """Run the smoke experiment with these overrides; outputs go to a folder of the test."""

    def run(*overrides, start=False, **options):
        command = (*SMOKE, f"paths.outputs={tmp_path}/out", *overrides)
        return commands.start(*command, **options) if start else commands.run(*command, **options)

    run.outputs = tmp_path / "out"
    return run


def test_a_run_writes_record_history_log_and_weights(smoke):
    done = smoke("method=msbp")
    assert done.returncode == 0, done.err
    ((folder, record),) = records(smoke.outputs).items()
    assert {path.name for path in folder.iterdir()} == LEFT
    assert re.fullmatch(r"[A-Za-z0-9._-]+", folder.name)
    rows = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
    assert [float(row["dev"]) for row in rows] == [row["dev"] for row in record["history"]]
    assert "epoch 2/2" in (folder / "train.log").read_text()
    assert torch.load(folder / "weights.pt")["net.0.weight"].shape == (48, 784)
    assert not list(smoke.outputs.rglob("*.pt.*")) and not list((smoke.outputs / "checkpoints").glob("*.pt"))


def test_the_summary_shows_scores_times_k_and_the_path_of_the_record(smoke):
    output = smoke("method=sbp").out
    (folder,) = records(smoke.outputs)
    for part in ("tiny synthetic sample", "test accuracy", "BP ", "total ", "k per layer: net.0 2, net.3 2"):
        assert part in output
    assert f"record: {folder}/record.json" in output and "python -m src.report" in output


def test_the_same_request_is_not_run_twice_unless_forced(smoke):
    smoke("method=sbp")
    again = smoke("method=sbp", "trainer.device=auto")
    assert again.returncode == 0 and "made before" in again.out and "test accuracy" in again.out
    assert len(records(smoke.outputs)) == len(list((smoke.outputs / "runs").iterdir())) == 1
    assert smoke("method=sbp", "force=true").returncode == 0
    first, second = records(smoke.outputs).values()
    assert first["signature"] == second["signature"] and first["test"] == second["test"]


class Killed(BaseException):
    pass


@pytest.fixture
def within(tmp_path):
    """Train in this process, which can be killed at a call of the library."""
    folders = count()

    def run(*overrides, at=None):
        cfg = compose([*SMOKE, f"paths.outputs={tmp_path}", *overrides])
        with pytest.MonkeyPatch.context() as patch, suppress(Killed):
            if at:
                patch.setattr(at, Mock(side_effect=Killed))
            return train(cfg, tmp_path / f"runs/{next(folders)}", [])

    run.outputs = tmp_path
    return run


def left(outputs):
    return [path.name for path in (outputs / "checkpoints").iterdir() if "pt" in path.name]


@pytest.mark.parametrize("force", [False, True])
def test_a_run_killed_after_its_record_is_written_is_not_resumed(within, force):
    within(at="msbp.training.checkpoint.Checkpoint.close")
    (first,) = records(within.outputs).values()
    assert len(left(within.outputs)) == 1
    again = within(f"force={force}")
    assert len(records(within.outputs)) == 1 + force and left(within.outputs) == []
    assert (again == first) is not force and not again["resumed"]


def test_a_killed_forced_run_resumes_when_it_is_forced_again(within):
    within()
    within("force=true", at="msbp.training.trainer.Run.end_epoch")
    within("force=true", "trainer.save_every=1", at="msbp.training.trainer.Run.end_epoch")
    assert within()["resumed"] is False and len(left(within.outputs)) == 1
    assert within("force=true")["resumed"] and left(within.outputs) == []


def test_a_run_killed_before_its_record_is_written_is_resumed(within):
    within("trainer.keep_checkpoint=true", at="msbp.record.write")
    assert records(within.outputs) == {}
    assert within("trainer.keep_checkpoint=true")["resumed"] and left(within.outputs) == []
    assert (next(iter(records(within.outputs))) / "checkpoint.pt").exists()


def test_a_damaged_record_is_logged_and_the_request_runs(within, caplog):
    within()
    ((folder, whole),) = records(within.outputs).items()
    (folder / "record.json").write_text(json.dumps(whole | {"bp_s": "abc"}))
    assert within()["test"] == whole["test"] and len(records(within.outputs)) == 2
    assert "does not count as a record: bp_s: Input should be a valid number" in caplog.text


def test_a_sweep_gives_its_sweeper_the_dev_score_of_each_job(within, monkeypatch):
    """So that a sweeper that optimizes, such as Optuna's, has something to maximise."""
    multirun, given = Hydra.multirun, []
    monkeypatch.setattr(Hydra, "multirun", lambda *args, **more: given.extend(*multirun(*args, **more)))
    monkeypatch.setattr(
        sys, "argv", ["src.train", "-m", *SMOKE, f"paths.outputs={within.outputs}", "seed=3,5"]
    )
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    main()
    scores = {record["seed"]: record["dev"] for record in records(within.outputs).values()}
    assert [job.return_value for job in given] == [scores[3], scores[5]]


def test_an_existing_record_is_only_shown_for_equal_data(within, tmp_path, monkeypatch, caplog):
    first = within()
    assert len(first["data_digest"]) == 16 and within() == first
    splits = Mnist.splits
    monkeypatch.setattr(Mnist, "splits", lambda task, seed: replace(splits(task, seed), digest="other"))
    again = within()
    assert again["data_digest"] == "other" and again["signature"] == first["signature"]
    assert len(records(within.outputs)) == 2


def test_data_that_are_missing_are_refused_also_where_there_is_a_record(within, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "data/MNIST/raw", tmp_path / "data/MNIST/raw")
    words = ("task.sample=full", "trainer.epochs=1", "task.batch_size=5000", "paths.offline=true")
    assert within(*words, f"paths.data={tmp_path}/data") == within(*words, f"paths.data={tmp_path}/data")
    monkeypatch.setattr("msbp.tasks.mnist.BUNDLED", tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        within(*words, f"paths.data={tmp_path}/nowhere")


def test_a_run_on_other_data_does_not_resume(within, monkeypatch):
    within("trainer.save_every=1", at="msbp.training.trainer.Run.end_epoch")
    splits = Mnist.splits
    monkeypatch.setattr(Mnist, "splits", lambda task, seed: replace(splits(task, seed), digest="other"))
    with pytest.raises(ValueError, match=r"is of other data \(digest [0-9a-f]{16}, not other\)"):
        within()


@pytest.mark.parametrize("method", ["baseline", "msbp"])
def test_a_diverged_run_writes_its_reason_and_no_record(within, method):
    with pytest.raises(FloatingPointError, match="training diverged in epoch 1, step 2: the loss is"):
        within(f"method={method}", "optimizer.lr=1e38")
    (left,) = within.outputs.rglob("diverged.json")
    result = json.loads(left.read_bytes())
    assert (result["seed"], result["epoch"], result["step"]) == (0, 1, 2) and not records(within.outputs)


def test_more_epochs_resume_from_the_kept_checkpoint_of_a_finished_run(within):
    within("trainer.keep_checkpoint=true")
    ((folder, two),) = records(within.outputs).items()
    four = within("trainer.epochs=4", f"resume={folder}/checkpoint.pt")
    whole = within("trainer.epochs=4", "force=true")
    assert four["resumed"] and four["signature"] == whole["signature"] != two["signature"]
    assert [row["dev"] for row in four["history"]] == [row["dev"] for row in whole["history"]]
    assert len(records(within.outputs)) == 3
    with pytest.raises(ValueError, match="trainer.epochs: 2, not 1"):
        within("trainer.epochs=1", f"resume={folder}/checkpoint.pt")


@pytest.mark.parametrize("wrong", ["gone", "a folder", "damaged", "of another run"])
def test_a_wrong_file_to_resume_from_is_refused_also_where_there_is_a_record(within, tmp_path, wrong):
    within("trainer.keep_checkpoint=true", "seed=1")
    (folder,) = records(within.outputs)
    (tmp_path / "damaged").write_bytes(b"PK")
    paths = {"a folder": folder, "of another run": folder / "checkpoint.pt"}
    within()
    with pytest.raises((FileNotFoundError, ValueError), match=r"checkpoint .*resume=|seed: 1"):
        within(f"resume='{paths.get(wrong, tmp_path / wrong)}'")


def test_a_record_is_shown_where_the_file_to_resume_from_is_right(within):
    first = within("trainer.keep_checkpoint=true")
    (folder,) = records(within.outputs)
    assert within("trainer.keep_checkpoint=true", f"resume={folder}/checkpoint.pt") == first


def test_the_folder_of_a_killed_run_is_deleted_when_the_same_command_starts_again(within):
    within(at="msbp.record.write")
    assert [path.name for path in within.outputs.glob("runs/*")] == ["0"]
    within()
    assert [path.name for path in within.outputs.glob("runs/*")] == ["1"]


REFUSED = [
    ("resume=3", "resume must be text, got 3"),
    ("resume=''", "resume must be the name of a file or folder, got ''; leave it out"),
    ("force=maybe", "force must be true or false, got 'maybe'"),
    ("paths.offline=maybe", "paths.offline must be true or false"),
    ("paths.outputs=3.5", "paths.outputs must be text, got 3.5"),
    ("optimizer=null", "optimizer must be a node with a _target_, got None"),
    ("trainer=null", "trainer must be a node with a _target_, got None"),
    *(
        (f"{part}._target_=builtins.dict", f"{part}._target_ must have all attributes of msbp.")
        for part in ("task", "method", "trainer")
    ),
    ("model._target_=builtins.dict", "model._target_ must be a torch.nn.Module, got dict"),
    ("optimizer.lr=true", "optimizer.lr must be a number, got True"),
    ("optimizer.lr=-1", "optimizer: Invalid learning rate: -1"),
    ("optimizer._target_=os.getcwd", "there is no key optimizer.lr; there are none"),
    ("optimizer._target_=collections.Counter", "optimizer"),
    ("+optimizer.weight_decay=-1", "optimizer"),
    ("+optimizer.decay=1", "there is no key optimizer.decay; there are "),
    ("+optimizer={_target_:torch.optim.Adam,weight_decay:-1}", "optimizer: Invalid weight_decay"),
    (
        "+optimizer={_target_:torch.optim.SparseAdam}",
        "optimizer: SparseAdam does not support",
    ),
    ("+optimizer={_target_:torch.optim.LBFGS}", "optimizer: LBFGS.step() missing 1 required"),
    ("optimizer._target_=torch.optim.Adam +optimizer.betas=[0.9]", "optimizer.betas[1] is missing"),
    ("+clip=norm trainer.clip.max_norm=inf", "trainer.clip.max_norm must be finite, got inf"),
    ("optimizer.lr=nan", "optimizer.lr must be finite, got nan"),
    ("method.layers=[net.0,net.0]", "method.layers names a layer twice: net.0, net.0"),
    ("task.name=''", "task.name must have at least 1 character, got ''"),
    ("+paths.anything=1", "there is no key paths.anything"),
    ("trainer.clip=3", "trainer.clip must be a node with a _target_, got 3"),
    ("+clip=value trainer.clip.clip_value=-1", "trainer.clip: clip_value must be positive"),
    ("task.batch_size=true", "task.batch_size must be a whole number"),
    ("task.batch_size=100000000000000000000", "task.batch_size must be less than or equal to 2147483647"),
    ("task.name=null", "task.name must be text, got None"),
    ("seed=9223372036854775808", "seed must be less than 9223372036854775808"),
    ("model.dropout=abc", "model.dropout must be a number, got 'abc'"),
    ("method.r=1.5", "method.r must be less than or equal to 1"),
    ("method.gamma=-1", "method.gamma must be greater than or equal to 0"),
    ("method.memory=big", "method.memory must be 'shared', 'per_slot' or 'sequential', got 'big'"),
    ("seed=abc", "seed must be a whole number, got 'abc'; for several runs use -m"),
    ('seed="0,1,2"', "seed must be a whole number, got '0,1,2'; for several runs use -m"),
    ("seed=-1", "seed must be greater than or equal to 0"),
    ("trainer.epochs=0", "trainer.epochs must be greater than 0, got 0"),
    ("trainer.threads=1000", "trainer.threads=1000, but"),
    ("trainer.device=tpu", "trainer.device must be 'cpu', 'cuda' or 'auto', got 'tpu'"),
    ("task.batch_size=0", "task.batch_size must be"),
    ("model.dropout=1", "model.dropout must be less than 1, got 1"),
]


@pytest.fixture(scope="module")
def unused(tmp_path_factory):
    return tmp_path_factory.mktemp("unused")


@pytest.mark.parametrize(("overrides", "output"), REFUSED, ids=[overrides for overrides, _ in REFUSED])
def test_a_value_of_a_wrong_type_is_refused_by_its_key_without_leaving_files(unused, overrides, output):
    cfg = overridden(*SMOKE, f"paths.outputs={unused}", *overrides.split())
    with pytest.raises(ValueError, match=f"^{re.escape(output)}"):
        train(cfg, unused / "run", [])
    assert list(unused.iterdir()) == []


def test_runs_started_in_the_same_second_have_separate_folders(smoke):
    started = [smoke("method=msbp", f"seed={seed}", start=True) for seed in range(3)]
    assert [command.wait().returncode for command in started] == [0, 0, 0]
    result = records(smoke.outputs)
    assert sorted(record["seed"] for record in result.values()) == [0, 1, 2]
    for folder, record in result.items():
        assert f"seed={record['seed']}" in OmegaConf.load(folder / "overrides.yaml")
        assert (folder / "train.log").read_text().count("epoch 1/2") == 1
    assert sum(record["times_comparable"] for record in result.values()) < 3


@pytest.mark.parametrize(("force", "runs"), [("false", 1), ("true", 3)])
def test_equal_requests_at_once_run_once_or_each_when_forced(smoke, force, runs):
    started = [smoke("method=msbp", f"force={force}", start=True) for _ in range(3)]
    assert [command.wait().returncode for command in started] == [0, 0, 0]
    result = records(smoke.outputs)
    assert len(result) == runs and len({record["test"] for record in result.values()}) == 1
    assert sum("made before" in command.out for command in started) == 3 - runs


def test_two_sweeps_at_once_run_each_member_once(smoke):
    sweep = ("-m", "seed=0,1", "method=baseline,msbp")
    started = [smoke(*sweep, start=True) for _ in range(2)]
    assert [command.wait().returncode for command in started] == [0, 0]
    result = records(smoke.outputs)
    requests = [(record["method"], record["seed"]) for record in result.values()]
    assert sorted(requests) == [("baseline", 0), ("baseline", 1), ("msbp", 0), ("msbp", 1)]
    for folder, record in result.items():
        overrides = OmegaConf.load(folder / "overrides.yaml")
        assert {f"seed={record['seed']}", f"method={record['method']}"} <= set(overrides)


def test_a_folder_with_a_run_is_not_overwritten(smoke, tmp_path):
    location = f"hydra.run.dir={tmp_path}/mine"
    assert smoke("seed=0", location).returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "mine").iterdir()}
    refused = smoke("seed=1", location)
    assert refused.returncode == 1 and "holds another run" in refused.err
    assert {path.name: path.read_bytes() for path in (tmp_path / "mine").iterdir()} == before


WRONG = [
    ("resume=nowhere.pt", "no checkpoint nowhere.pt"),
    ("method.r=0", "method.r must be greater than 0, got 0; for full backpropagation use method=baseline"),
    ("seed=range(0,3)", "need -m"),
    ("seed=0,1", "need -m"),
    ("method=sgd", "baseline"),
    ("task=nothing", "mnist"),
    ("trainer.epoch=3", "trainer.epoch"),
]


@pytest.mark.parametrize(("override", "output"), WRONG, ids=[override for override, _ in WRONG])
def test_a_wrong_value_is_refused_in_one_paragraph_before_any_work(smoke, override, output):
    refused = smoke(override)
    assert refused.returncode == 1
    assert output in refused.err and "Traceback" not in refused.err + refused.out
    assert len(refused.err) < 1000 and "epoch 1" not in refused.out
    assert not records(smoke.outputs)


def test_baseline_has_no_ratio_to_set(smoke):
    refused = smoke("method=baseline", "method.r=0.1")
    assert refused.returncode == 1 and "method.r" in refused.err


def test_the_whole_traceback_is_shown_on_demand(smoke):
    refused = smoke("method.r=0", env={"HYDRA_FULL_ERROR": "1"})
    assert refused.returncode == 1 and "Traceback" in refused.err


def test_a_wrong_member_of_a_sweep_does_not_hide_the_others(smoke):
    done = smoke("-m", "method.r=0.04,0,0.1")
    assert (
        done.returncode == 1 and "method.r must be greater than 0" in done.err and "Traceback" not in done.err
    )
    assert [record["r"] for record in records(smoke.outputs).values()] == [0.04, 0.1]


def test_the_members_of_a_sweep_may_run_side_by_side(smoke):
    launcher = "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"
    done = smoke("-m", "seed=0,1", "method.r=0.1,2", *launcher)
    assert sorted(record["seed"] for record in records(smoke.outputs).values()) == [0, 1]
    assert done.returncode == 1 and "method.r must be less than or equal to 1" in done.err


def test_every_failed_member_of_a_sweep_is_named_with_its_error(smoke):
    done = smoke("-m", "method.r=0,0.04,2", "method.gamma=0.8")
    lines = done.err.splitlines() + done.out.splitlines()
    for value, bound in ((0, "greater than 0"), (2, "less than or equal to 1")):
        assert any(f"method.r={value}" in line and f"method.r must be {bound}" in line for line in lines)
    assert not [line for line in lines if "method.r=0.04" in line and " failed: " in line]
    assert done.returncode == 1


@pytest.mark.parametrize("seeds", ["seed=range(0,3)", "seed=0,1,2", "seed=1,1"])
def test_a_sweep_over_seeds_gives_each_seed_one_record(smoke, seeds):
    assert smoke("-m", seeds).returncode == 0
    expected = [1] if seeds == "seed=1,1" else [0, 1, 2]
    assert sorted(record["seed"] for record in records(smoke.outputs).values()) == expected


ODD = "r=0.04, γ=0.8"


def test_unusual_paths_work_when_they_are_quoted(commands, tmp_path):
    here = tmp_path / "thư mục 1"
    here.mkdir()
    outputs = f'paths.outputs="{ODD}"'
    first = commands.run(*SMOKE, outputs, "trainer.keep_checkpoint=true", cwd=here)
    assert first.returncode == 0, first.err
    ((folder, record),) = records(here / ODD).items()
    resume = f'resume="{folder.relative_to(here)}/checkpoint.pt"'
    again = commands.run(*SMOKE, 'paths.outputs="new = out"', resume, cwd=here)
    assert again.returncode == 0, again.err
    (resumed,) = records(here / "new = out").values()
    assert resumed["resumed"] and resumed["test"] == record["test"]


def test_an_unusual_path_without_quotes_fails_with_a_hint(smoke):
    refused = smoke(f"resume=runs/{ODD}/checkpoint.pt")
    assert refused.returncode == 1 and "quote" in refused.err


def test_the_c_locale_changes_nothing(tmp_path):
    """A process of its own: the locale is read when Python starts."""
    folder = tmp_path / "thư mục γ"
    folder.mkdir()
    plain = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "src.train", *SMOKE, f'paths.outputs="{folder}"']
    done = subprocess.run(command, env={**os.environ, **plain}, cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr
    (where,) = records(folder)
    assert OmegaConf.load(where / "config.yaml").task.name == "mnist"
    assert "epoch 2/2" in (where / "train.log").read_text(encoding="utf-8")


def saved(outputs):
    return [path.stat().st_mtime_ns for path in outputs.glob("checkpoints/*.pt")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_writes_a_checkpoint_from_which_the_same_command_resumes(smoke, number):
    request = ("method=msbp", "trainer.epochs=2000")
    command = smoke(*request, start=True)
    command.until(lambda: "epoch 2/" in command.out)
    command.send(number)
    stopped = command.wait()
    assert stopped.returncode == 130 and "the same command resumes" in stopped.err
    assert "Traceback" not in stopped.err and not records(smoke.outputs)
    again = smoke(*request, start=True)
    again.until(lambda: "epoch " in again.out)
    again.send(number)
    again.wait()
    assert "epoch 1/" not in again.out


def test_an_interrupted_sweep_keeps_complete_records_and_can_be_repeated(smoke):
    sweep = ("-m", "method=msbp", "seed=0,1,2", "trainer.epochs=30")
    command = smoke(*sweep, start=True)
    command.until(lambda: records(smoke.outputs))
    command.send(signal.SIGINT)
    assert command.wait().returncode == 130
    assert [record["seed"] for record in records(smoke.outputs).values()] == [0]
    (path,) = [folder / "record.json" for folder in records(smoke.outputs)]
    path.write_bytes(path.read_bytes()[:1000])
    assert smoke(*sweep).returncode == 0
    path.unlink()
    assert sorted(record["seed"] for record in records(smoke.outputs).values()) == [0, 1, 2]


def test_a_waiting_process_takes_over_when_the_first_is_killed(smoke):
    first = smoke("trainer.epochs=3000", start=True)
    first.until(lambda: "epoch 2/" in first.out)
    second = smoke("trainer.epochs=3000", start=True)
    second.until(lambda: "waiting for it" in second.out)
    first.send(signal.SIGKILL)
    second.until(lambda: "epoch " in second.out)
    second.send(signal.SIGINT)
    assert second.wait().returncode == 130 and "epoch 1/" not in second.out


def test_a_damaged_checkpoint_is_named_and_training_does_not_restart(smoke):
    command = smoke("trainer.epochs=3000", start=True)
    command.until(lambda: saved(smoke.outputs))
    command.send(signal.SIGKILL)
    command.wait()
    (path,) = (smoke.outputs / "checkpoints").glob("*.pt")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused = smoke("trainer.epochs=3000")
    assert refused.returncode == 1 and f"{path} is no whole checkpoint" in refused.err
    assert "delete it" in refused.err and "epoch 1" not in refused.out


def test_a_full_disk_is_an_error_that_names_the_file_and_damages_none(smoke):
    """File sizes are limited as by `ulimit -f 64`: the log fits, a checkpoint does not."""
    stopped = smoke("method=msbp", "model.hidden=100", file_limit=64 * 1024)
    assert stopped.returncode == 1 and "checkpoints/" in stopped.err and "File too large" in stopped.err
    assert "Traceback" not in stopped.err
    assert not records(smoke.outputs) and not list((smoke.outputs / "checkpoints").glob("*.p*t"))
    (log,) = smoke.outputs.rglob("train.log")
    assert "File too large" in log.read_text()


def test_several_processes_read_one_mnist(commands, tmp_path):
    """Real files, tiny training."""
    shutil.copytree(ROOT / "data/MNIST/raw", tmp_path / "data/MNIST/raw")
    request = ["task=mnist", "task.batch_size=5000", "trainer.epochs=1", "model.hidden=10", "force=true"]
    request += [f"paths.data={tmp_path}/data", f"paths.outputs={tmp_path}/out"]
    started = [commands.start(*request) for _ in range(3)]
    assert [command.wait().returncode for command in started] == [0, 0, 0]
    scores = [record["test"] for record in records(tmp_path / "out").values()]
    assert len(scores) == 3 and len(set(scores)) == 1
