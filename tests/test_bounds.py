"""The paper's bounds: they hold if their conditions do, and the checks detect a violation."""

import json
import math
import sys

import pytest
import torch

from msbp.analysis.theory import terminal
from msbp.bounds import carried, lemma_4, mlp_bound, normal, theorem_1, well_posed
from msbp.sparse import top_k
from msbp.training.probes import angle
from src.theory import main

RANDOM = torch.Generator()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return the result file of `python -m src.theory`."""
    outputs = tmp_path_factory.mktemp("theory")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["src.theory", f"paths.outputs={outputs}", "seed=1"])
        main()
    return json.loads((outputs / "theory.json").read_text(encoding="utf-8"))


def test_the_terminal_shows_each_check_in_a_line_of_a_table(results):
    head, rule, *rows = terminal(results).splitlines()
    assert head.split("  ")[0] == "check" and set(rule) <= set("- ")
    assert {row[:9].strip() for row in rows} == {"Lemma 2", "Lemma 3", "Lemma 4", "Theorem 1", "Theorem 2"}
    assert all(row.endswith("yes") for row in rows) and max(map(len, rows)) <= 110


@pytest.mark.parametrize("name", ["lemma_2", "lemma_3", "lemma_4", "theorem_1", "theorem_2"])
def test_no_bound_is_exceeded_where_its_conditions_are_met(results, name):
    assert len(results[name]) >= 4 and all(row["holds"] for row in results[name])


def test_the_conditions_of_a_bound_are_met_in_enough_cases(results):
    assert all(count > 0 for row in results["lemma_3"] for count in row["applies"].values())
    assert all(row["applies"] == row["trials"] for row in results["lemma_4"])
    assert sum(row["applies"] for row in results["theorem_1"]) == 4


def test_a_bound_of_a_matrix_is_nearly_reached_where_it_distorts_most(results):
    assert all(0 <= row["least_margin"] + 1e-9 < 0.05 * row["rho"] for row in results["lemma_2"])


def test_the_angle_of_a_data_set_is_within_theta_for_every_size(results):
    for row in results["theorem_2"]:
        assert row["applies"] == 100 and row["share_within"] == [1.0] * 3
        assert max(row["largest_angle"]) < row["theta"]


def test_the_seed_and_the_code_are_on_record(results):
    assert results["seed"] == 1 and results.keys() >= {"commit", "dirty", "torch"}


def test_the_angle_of_a_weight_is_that_of_its_output(results):
    assert all(row["least_margin"]["w = h"] > -1e-9 for row in results["lemma_3"])


def test_a_smaller_angle_needs_a_larger_ratio_and_no_angle_needs_one_as_small_as_the_papers(results):
    ratios = [min(row["r"]) for row in results["lemma_4"]]
    assert ratios == sorted(ratios, reverse=True) and min(ratios) > 0.5
    assert all(row["largest_angle"] < row["theta"] for row in results["lemma_4"])


def test_descent_ends_within_the_steps_of_the_theorem_and_by_its_factor(results):
    for row in results["theorem_1"]:
        if row["applies"]:
            assert row["steps"] <= row["allowed_steps"] and row["largest_factor"] <= row["sin_theta"]


def test_the_theorem_applies_only_to_losses_with_mu_near_l():
    """It covers top_k with r = 0.04 only where μ/L is above 0.96."""
    assert not theorem_1(0.04, 0.959, RANDOM)["applies"]
    assert theorem_1(0.04, 0.97, RANDOM.manual_seed(0))["applies"]


def test_a_condition_number_that_is_too_small_exceeds_the_bound():
    random = RANDOM.manual_seed(0)
    weight, truth = well_posed(20, 8.0, random), normal(random, 20)
    assert float(torch.linalg.cond(weight)) == pytest.approx(8.0)
    estimate = truth + 0.1 * normal(random, 20)
    before, behind = (angle([w.T @ estimate], [w.T @ truth]) for w in (torch.eye(20).double(), weight))
    assert carried(1.0, before) < behind < carried(64.0, before), "ρ is the square of the condition number"
    assert carried(64.0, 0.2) is None, "of a larger angle the lemma says nothing"


def test_one_layer_has_the_worst_angle_of_top_k_and_it_is_reached():
    flat = torch.ones(1, 25, dtype=torch.float64)
    assert angle([top_k(flat, 1)], [flat]) == pytest.approx(mlp_bound(0.04, 1.5, hidden=1))
    assert mlp_bound(1.0, 1.5, hidden=3) == 0.0 and mlp_bound(0.04, 2.0, hidden=2) is None
    assert math.degrees(mlp_bound(0.04, 1.5, hidden=1)) == pytest.approx(78.46, abs=0.01)


def test_the_lemma_does_not_apply_to_angles_that_no_ratio_gives():
    row = lemma_4(math.radians(1), RANDOM.manual_seed(0), n=8, trials=2)
    assert row["applies"] == 0 and row["largest_angle"] is None


def test_conditions_that_the_papers_network_breaks_are_listed_with_numbers(results):
    text = " ".join(results["broken_by_the_papers_network"])
    for part in ("784 to 500", "ReLU", "78.5° at r = 0.04", "0.96 at r = 0.04", "without memory"):
        assert part in text
