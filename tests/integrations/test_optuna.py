"""Optuna's sweeper finds r and γ by the dev score."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hydra_plugins.hydra_optuna_sweeper.optuna_sweeper")

ROOT = Path(__file__).resolve().parents[2]


def test_a_sweep_that_optimizes_runs_its_trials_and_leaves_the_best(tmp_path):
    command = [
        *(sys.executable, "-m", "src.train", "-m", "experiment=optimize", "hydra.sweeper.n_trials=2"),
        *("task.sample=tiny", "model.hidden=50", "trainer.epochs=1", f"paths.outputs={tmp_path}"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.rglob("record.json"))) == 2
    (best,) = tmp_path.rglob("optimization_results.yaml")
    assert "method.r" in best.read_text()
