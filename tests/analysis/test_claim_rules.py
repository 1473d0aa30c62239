"""Rules of claims: their settings, and the effect in each."""

import math

import numpy as np
import pytest

from msbp.analysis import claim_rules
from msbp.analysis.claim_rules import Measured
from msbp.analysis.claims import claims
from msbp.analysis.runs import Sources
from msbp.analysis.verdicts import effect_of
from msbp.config_files import ConfigFile

METHODS = ("baseline", "sbp", "msbp")
ROWS = [{"label": method, "overrides": [f"method={method}"]} for method in METHODS]
PAPER = {"baseline": 98.1, "sbp": 96.2, "msbp": 97.7}
PRINTED = [{**row, "paper": {"score": PAPER[row["label"]]}} for row in ROWS]
TABLE = {
    "name": "small", "caption": "", "seeds": 4, "columns": ["bp_s", "score"],
    "blocks": [{"title": "MNIST", "task": "mnist", "score": "Acc (%)", "rows": PRINTED}],
}  # fmt: skip
GRID = {
    "name": "small", "task": "mnist", "seeds": 4, "baseline": ["method=baseline"], "sbp": ["method=sbp"],
    "msbp": ["method=msbp"], "sparse": {5: "method.r=0.01"}, "gamma": [0.1, 0.2], "command": "sweep",
}  # fmt: skip
FIGURE = {
    "shows": "angles", "seeds": 1, "columns": [],
    "blocks": [{
        "title": "MNIST", "task": "mnist",
        "rows": [
            {"label": f"{method}, k={k}", "overrides": [f"method={method}", f"k={k}"]}
            for method in ("sbp", "msbp") for k in (5, 20)
        ],
    }],
}  # fmt: skip
OFF = (-0.1, 0.0, 0.05, 0.1)
ON_ONE_THREAD = {"threads": 1, "allocator": "keep", "timing_rule": 2}
SWEPT = {"benchmarks": [{"case": "mnist", "sweep": "k"}], "largest": 100}


@pytest.fixture
def evidence(record_of, runs_of, angles_of, settle):
    """From columns of numbers by method, or by the words after it, as rules read them."""

    def evidence(benchmarks=(), angles=(), table=TABLE, **columns):
        records = [
            record_of(f"task=mnist method={words}", seed, **{column: value})
            for column, rows in columns.items()
            for words, values in rows.items()
            for seed, value in enumerate(values)
        ]
        sources = Sources(runs_of(records), settle, benchmarks, angles_of(angles))
        configs = {"small": table, "angle": FIGURE, "bounds": {}, "f_test": {"paper": {5: [4.0, 9.0]}}}
        return Measured(sources, configs)

    return evidence


def about(mean, offsets=OFF):
    return [mean + off for off in offsets]


def estimate(setting):
    return effect_of(setting).estimate


def test_scores_are_compared_run_by_run_with_the_papers_difference_beside(evidence):
    seen = evidence(test={"sbp": about(97.0), "msbp": about(98.0, OFF[::-1])})
    (found,) = claim_rules.scores_of_rows({"tables": ["small"], "than": "sbp"}, seen)
    assert list(found.values) == pytest.approx([1.2, 1.05, 0.95, 0.8]) and found.n == 4
    assert found.paper == pytest.approx(1.5) and found.family == "MLPs" and not found.excluded
    assert found.command == "python -m src.train -m task=mnist 'seed=range(0,4)' method=sbp,msbp"
    (other,) = claim_rules.scores_of_rows({"tables": ["small"], "of": "sbp", "than": "baseline"}, seen)
    assert other.n == 0 and other.paper == pytest.approx(-1.9)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_equal_scores_are_no_evidence_if_all_gradient_was_propagated(share, evidence):
    seen = evidence(test={"sbp": about(98.0), "msbp": about(98.0)})
    seen.sources.runs["dropped_norm"] = share
    (found,) = claim_rules.scores_of_rows({"tables": ["small"], "than": "sbp"}, seen)
    assert found.excluded == ("" if share else claim_rules.SAME)


def test_shortened_training_is_shown_but_excluded_from_the_verdict(record_of, runs_of, settle):
    block = TABLE["blocks"][0] | {"overrides": ["trainer.epochs=2"]}
    table = TABLE | {"blocks": [block]}
    runs = [record_of(f"task=mnist trainer.epochs=2 method={m}", seed) for m in METHODS for seed in range(5)]
    sources = Sources(runs_of(runs), settle)
    seen = Measured(sources, {"small": table})
    for rule in (claim_rules.scores_of_rows, claim_rules.regained):
        (found,) = rule({"tables": ["small"], "than": "sbp"}, seen)
        assert found.n == 5 and found.excluded == claim_rules.SHORT


def test_the_regained_score_is_a_share_of_the_loss_of_sbp(evidence):
    seen = evidence(test={"baseline": about(98.0), "sbp": about(96.0), "msbp": about(97.5)})
    (found,) = claim_rules.regained({"tables": ["small"], "than": "sbp"}, seen)
    assert estimate(found) == pytest.approx(0.75) and found.paper == pytest.approx(1.5 / 1.9)
    (single,) = claim_rules.regained(
        {"tables": ["small"], "than": "sbp"},
        evidence(test={"baseline": [98.0], "sbp": [96.0], "msbp": [97.0]}),
    )
    assert estimate(single) == pytest.approx(0.5) and single.n == 1


def test_times_are_log_ratios_of_equal_seeds_and_benchmarks_single_measurements(evidence):
    seconds = {"baseline": [10.0, 10.1], "sbp": [5.0, 5.2], "msbp": [5.5, 5.2]}
    rows = [{"name": name, "bp_ms": ms, "bp_update_ms": ms} for name, ms in (("sbp", 1.0), ("msbp", 1.2))]
    bench = {"case": "textcnn", "sweep": None, "threads": 1, "allocator": "keep", "rows": rows}
    config = {"tables": ["small"], "than": "sbp", "column": "bp_s"}
    run, step = claim_rules.times(config, evidence([bench | {"timing_rule": 2}], bp_s=seconds))
    assert list(run.values) == pytest.approx([math.log(1.1), 0.0])
    assert estimate(step) == pytest.approx(math.log(1.2))
    assert step.family == "CNNs" and step.excluded == claim_rules.SINGLE
    earlier = evidence([bench], bp_s=seconds)
    assert [found.n for found in claim_rules.times(config, earlier)] == [2]
    assert len(list(claim_rules.times(config | {"column": "bp_update_s"}, earlier))) == 2


def test_a_network_counts_once_by_its_benchmark_where_that_has_enough_repetitions(evidence):
    seconds = {"sbp": [5.0] * 6, "msbp": [5.5] * 6}
    rows = [{"name": name, "bp_ms": ms} for name, ms in (("sbp", 1.0), ("msbp", 1.2))]
    bench = {"case": "mnist", "sweep": None, "overrides": ["task=mnist"], "rows": rows, **ON_ONE_THREAD}
    config = {"tables": ["small"], "than": "sbp", "column": "bp_s"}

    def excluded(**more):
        every = claim_rules.times(config, evidence([bench | more], bp_s=seconds))
        return [found.excluded for found in every]

    assert excluded(repetitions=[{"rows": rows}] * 5) == [claim_rules.BENCHMARKED, ""]
    assert excluded(repetitions=[{"rows": rows}] * 3) == ["", ""], "the whole runs count"
    wide = ["task=mnist", "model.hidden=5000"]
    assert excluded(repetitions=[{"rows": rows}] * 5, overrides=wide) == ["", ""], "another network"
    parser = ["task=parsing_ewt"]
    assert excluded(repetitions=[{"rows": rows}] * 5, overrides=parser) == ["", ""]


def test_a_cell_without_a_test_rejects_nothing(evidence):
    seen = evidence(test=cells(about(96), about(98)))
    (found,) = claim_rules.gains_over_gamma({"grid": GRID}, seen)
    assert found.ps[0] < 0.05 and found.ps[1] == 1.0


def test_benchmarks_with_other_threads_or_allocator_and_partial_ones_are_not_judged(evidence):
    rows = [{"name": name, "bp_ms": ms, "total_ms": ms} for name, ms in (("dense", 4.0), ("msbp", 1.0))]
    usual = {
        "case": "mnist",
        "sweep": None,
        "threads": 1,
        "allocator": "keep",
        "timing_rule": 2,
        "rows": rows,
    }
    others = [usual | more for more in ({"threads": 2}, {"allocator": "default"}, {"settings": "seconds=1"})]
    config = {"column": "bp_s", "than": "baseline", "tables": ["small"]}
    found = [each.n for each in claim_rules.times(config, evidence(benchmarks=[usual, *others])) if each.n]
    assert found == [1]


def test_repetitions_of_a_benchmark_are_its_runs(evidence):
    def rows(ms):
        return [{"name": "sbp", "bp_ms": 1.0}, {"name": "msbp", "bp_ms": ms}]

    about = {"case": "mnist", "sweep": None, **ON_ONE_THREAD}
    repeated = about | {"rows": rows(1.2), "repetitions": [{"rows": rows(ms)} for ms in (1.1, 1.2, 1.3)]}
    *_, step = claim_rules.times({"tables": ["small"], "than": "sbp", "column": "bp_s"}, evidence([repeated]))
    assert list(step.values) == pytest.approx([math.log(ms) for ms in (1.1, 1.2, 1.3)])
    assert step.n == 3 and step.family == "MLPs" and not step.excluded


def test_each_k_is_a_family_where_a_claim_is_judged_by_k(record_of, runs_of, settle):
    runs = [record_of(f"task=mnist method={m}", seed, test=97.0 + (m == "msbp") + seed / 50)
            for m in ("sbp", "msbp") for seed in range(5)]  # fmt: skip
    grid = GRID | {"seeds": 5, "sparse": {20: "method.r=0.04"}, "gamma": [0.8]}
    seen = Measured(Sources(runs_of(runs), settle), {})
    for by_k, family in ((False, "MLPs"), (True, "k = 20")):
        (found,) = claim_rules.gains_over_gamma({"grid": grid, "by_k": by_k}, seen)
        assert found.family == family


def test_backward_passes_timed_by_the_earlier_rule_are_not_compared(record_of, runs_of, settle):
    runs = [record_of(f"task=mnist method={m}", seed, timing_rule=1) for m in METHODS for seed in range(5)]
    sources = Sources(runs_of(runs), settle)
    seen = Measured(sources, {"small": TABLE})
    config = {"tables": ["small"], "than": "sbp"}
    (found,) = claim_rules.times(config | {"column": "bp_s"}, seen)
    assert found.n == 0 and "earlier rule" in found.note
    assert [each.n for each in claim_rules.times(config | {"column": "bp_update_s"}, seen)] == [5]
    assert [each.n for each in claim_rules.times(config | {"column": "forward_s"}, seen)] == [5]


def cells(sbp, *msbp, base=()):
    scores = {"sbp method.r=0.01": sbp, "baseline": base}
    return scores | {
        f"msbp method.r=0.01 method.gamma={gamma}": values
        for gamma, values in zip(GRID["gamma"], msbp, strict=False)
    }


def test_the_gain_is_the_mean_over_gamma_and_its_cells_are_tested(evidence):
    seen = evidence(test=cells(about(96), about(98), about(99)))
    (found,) = claim_rules.gains_over_gamma({"grid": GRID}, seen)
    assert list(found.values) == pytest.approx([2.5] * 4)
    assert (
        found.note == "Welch's p is below 5 % at 2 of 2 γ, by Holm over these at 2"
        and found.command == "sweep"
    )
    assert len(found.ps) == 2 and max(found.ps) < 0.05


def test_sensitivity_is_the_deviation_over_gamma_by_the_gain_without_noise(evidence):
    seen = evidence(test=cells(about(96), about(98), about(99)))
    (found,) = claim_rules.sensitivity({"grid": GRID}, seen)
    assert estimate(found) == pytest.approx(np.std([98, 99], ddof=1) / 2.5, rel=1e-6)
    noise = evidence(test=cells(about(96), about(98), about(98, OFF[::-1])))
    assert estimate(next(claim_rules.sensitivity({"grid": GRID}, noise))) == pytest.approx(0.0, abs=0.05)


def test_a_share_of_no_gain_is_not_judged(evidence):
    for worse in (about(95), about(96)):
        seen = evidence(test=cells(about(96), worse, worse))
        (found,) = claim_rules.sensitivity({"grid": GRID}, seen)
        assert found.n == 0 and found.note == "no gain over SBP, so no share of it"


def test_deviations_are_compared_with_all_gamma_and_with_the_baseline(evidence):
    wide = [value * 3 for value in OFF]
    seen = evidence(test=cells(about(96, wide), about(98), about(99), base=about(98)))
    (found,) = claim_rules.deviations({"grid": GRID, "paper_table": "f_test"}, seen)
    assert math.exp(found.paper) == pytest.approx(6**0.5) and found.n == 4
    assert found.note == "F's p is below 5 % at 0 of 2 γ, by Holm over these at 0"
    assert estimate(found) == pytest.approx(math.log(3), abs=0.2)
    (found,) = claim_rules.deviation_of_sbp({"grid": GRID, "paper": 1.7}, seen)
    assert math.exp(found.paper) == pytest.approx(1.7) and found.n == 4
    assert found.values.mean() == pytest.approx(math.log(3)), "SBP's runs are three times as far apart"


@pytest.mark.parametrize("rule", [claim_rules.deviations, claim_rules.deviation_of_sbp])
@pytest.mark.parametrize("scores", [[97.0] * 4, [97.0, 97.0, 97.0, 97.5]], ids=["equal", "all but one equal"])
def test_equal_scores_have_no_ratio_of_deviations(rule, scores, evidence):
    seen = evidence(test=cells(scores, scores, scores, base=scores))
    (found,) = rule({"grid": GRID, "paper_table": "f_test", "paper": 1.7}, seen)
    assert found.n == 0


def measurements(method, k, degrees, task="mnist"):
    config = {"method": method, "seed": 0, "signature": f"task={task} method={method} k={k}"}
    return [
        {"config": config, "k": k, "step": step, "epoch": float(step)}
        | {"angle": {"total": math.radians(angle), "hidden": math.radians(90 - angle)}}
        for step, angle in enumerate(degrees)
    ]


ANGLES = {"figures": ["angle"]}


def test_angles_that_the_figure_does_not_show_do_not_affect_the_verdict(evidence):
    angles = [*measurements("sbp", 5, [60, 80, 81], "pos"), *measurements("msbp", 5, [60, 70, 72], "pos")]
    for rule in (claim_rules.angle_of_methods, claim_rules.angle_by_k, claim_rules.angle_gap):
        assert not [found for found in rule(ANGLES, evidence(angles=angles)) if found.n]


@pytest.mark.parametrize("figures", [[], ["bounds"]])
@pytest.mark.parametrize(
    "rule", [claim_rules.angle_of_methods, claim_rules.angle_by_k, claim_rules.angle_gap]
)
def test_a_claim_about_angles_that_names_no_figure_of_angles_is_named(rule, figures, evidence):
    config = ConfigFile({"figures": figures}, "claim/x.yaml")
    with pytest.raises(ValueError, match=r"^claim/x\.yaml: figures: none of \[.*\] shows angles"):
        list(rule(config, evidence()))


def test_a_run_has_one_angle_the_mean_after_the_first_step(evidence):
    angles = [*measurements("sbp", 5, [60, 80, 81]), *measurements("msbp", 5, [60, 70, 72])]
    angles += [*measurements("sbp", 20, [40, 50, 60]), *measurements("msbp", 20, [40, 51, 61])]
    small, large, *hidden = claim_rules.angle_of_methods(ANGLES, evidence(angles=angles))
    assert (estimate(small), estimate(large)) == pytest.approx((-9.5, 1.0)) and small.n == 1
    assert [found.family for found in hidden] == ["hidden layers alone"] * 2
    assert estimate(hidden[0]) == pytest.approx(9.5)
    by_k = claim_rules.angle_by_k(ANGLES, evidence(angles=angles))
    assert [estimate(found) for found in by_k] == pytest.approx([-25.5, -15.0])
    (gap,) = claim_rules.angle_gap(ANGLES, evidence(angles=angles))
    assert estimate(gap) == pytest.approx(10.5)


def test_angles_that_are_judged_by_k_are_not_pooled_over_k(evidence):
    angles = [*measurements("sbp", 5, [60, 80]), *measurements("msbp", 5, [60, 70])]
    angles += [*measurements("sbp", 20, [40, 50]), *measurements("msbp", 20, [40, 51])]
    seen, config = evidence(angles=angles), ANGLES | {"by_k": True}
    gaps = {found.family: estimate(found) for found in claim_rules.angle_of_methods(config, seen)}
    total, hidden = "all parameters", "hidden layers alone"
    expected = {
        f"{total} at k = 5": -10,
        f"{total} at k = 20": 1,
        f"{hidden} at k = 5": 10,
        f"{hidden} at k = 20": -1,
    }
    assert gaps == pytest.approx(expected)
    pairs = [(found.family, found.name) for found in claim_rules.angle_by_k(config, seen)]
    assert pairs == [(f"{name} at k = 20 vs 5", "MNIST: k = 20 vs 5") for name in ("SBP", "MSBP")]


@pytest.mark.parametrize(
    ("rule", "sweep"), [(claim_rules.slope_by_k, "k"), (claim_rules.slope_by_gamma, "gamma")]
)
def test_slopes_are_of_log_times_of_the_whole_backward_pass(rule, sweep, evidence):
    times = {"bp_p10_ms": 0.1, "bp_p90_ms": 9.0, "steps": 9}
    xs = (5, 10, 20, 40, 400) if sweep == "k" else (0.1, 0.3, 0.5, 0.9)
    points = [
        {
            "value": x,
            "rows": [
                {"name": name, "k_per_layer": {"a": x}, "bp_ms": ms} | times
                for name, ms in (("dense", 1.0), ("sbp", 1.0), ("msbp", x**0.5))
            ],
        }
        for x in xs
    ]
    bench = {"case": "mnist", "sweep": sweep, "points": points, **ON_ONE_THREAD}
    config = SWEPT | {"benchmarks": [{"case": "mnist", "sweep": sweep}]}
    *_, found = rule(config, evidence([bench]))
    assert found.n == (1 if sweep == "k" else 4), "repetitions, of which files of earlier versions have none"
    assert bool(found.aside) == (sweep == "k")
    if sweep == "k":
        assert estimate(found) == pytest.approx(0.5)
    for unusable in ({"timing_rule": 1}, {"settings": "'sweep.values=[0.1,0.2]'"}):
        *_, open_ = rule(config, evidence([bench | unusable]))
        assert open_.n == 0 and open_.command == f"python -m src.bench case=mnist sweep={sweep}"


def test_times_by_k_have_a_straight_line_beside_their_slope(evidence):
    points = [
        {
            "value": k,
            "rows": [
                {"name": name, "k_per_layer": {"a": k}, "bp_ms": ms}
                for name, ms in (("dense", 2.0), ("sbp", 0.4 + 0.01 * k), ("msbp", 0.02 * k - 0.02))
            ],
        }
        for k in (5, 10, 20, 40, 100, 500)
    ]
    bench = {"case": "mnist", "sweep": "k", "points": points, **ON_ONE_THREAD}
    sbp, msbp = claim_rules.slope_by_k(SWEPT, evidence([bench]))
    assert sbp.aside == "SBP's time by a line with an offset: 0.200 + 0.0050 k of the baseline's (R² = 1.000)"
    assert (
        msbp.aside == "MSBP's time by a line with an offset: -0.010 + 0.0100 k of the baseline's (R² = 1.000)"
    )


def test_the_slope_by_k_varies_between_repetitions_and_not_by_the_curvature_they_share(evidence):
    def rows(k, noise):
        return [{"name": name, "bp_ms": ms} for name, ms in (("dense", 1.0), ("sbp", 0.1 + 0.01 * k * noise))]

    points = [
        {"value": k, "rows": [row | {"k_per_layer": {"a": k}} for row in rows(k, 1.0)],
         "repetitions": [{"rows": rows(k, noise)} for noise in (0.99, 1.0, 1.01)]}
        for k in (5, 10, 20, 40, 100)
    ]  # fmt: skip
    bench = {"case": "mnist", "sweep": "k", "points": points, **ON_ONE_THREAD}
    sbp, msbp = claim_rules.slope_by_k(SWEPT, evidence([bench]))
    assert (sbp.family, sbp.n, msbp.n) == ("SBP", 3, 0) and effect_of(sbp).variance ** 0.5 < 0.01
    k = np.array([5, 10, 20, 40, 100])
    whole = np.polyfit(np.log(k), np.log(0.1 + 0.01 * k), 1)[0]
    assert sbp.values.iloc[1] == pytest.approx(whole)


@pytest.mark.parametrize(("sweep", "value"), [("k", 5), ("gamma", 0.5), ("gamma", "half")])
def test_points_that_do_not_differ_have_no_slope(sweep, value, evidence):
    rows = [{"name": name, "k_per_layer": {"a": 5}, "bp_ms": 1.0} for name in ("dense", "sbp", "msbp")]
    points = [{"value": value, "rows": rows}] * 6
    bench = {"case": "mnist", "sweep": sweep, "points": points, **ON_ONE_THREAD}
    config = SWEPT | {"benchmarks": [{"case": "mnist", "sweep": sweep}]}
    found = list(getattr(claim_rules, f"slope_by_{sweep}")(config, evidence([bench])))
    assert found and all(each.effect is None and each.n < 2 for each in found)


@pytest.mark.parametrize("sweep", ["k", "gamma"])
def test_a_machine_that_slows_down_over_a_sweep_changes_no_slope(sweep, evidence):
    points = [
        {
            "value": value,
            "rows": [
                {"name": name, "k_per_layer": {"a": 100 * value}, "bp_ms": ms * (1 + value)}
                for name, ms in (("dense", 5.0), ("sbp", 1.0), ("msbp", 1.1))
            ],
        }
        for value in (0.1, 0.3, 0.5, 0.9)
    ]
    bench = {"case": "mnist", "sweep": sweep, "points": points, **ON_ONE_THREAD}
    config = SWEPT | {"benchmarks": [{"case": "mnist", "sweep": sweep}]}
    for setting in getattr(claim_rules, f"slope_by_{sweep}")(config, evidence([bench])):
        assert setting.n and estimate(setting) == pytest.approx(0)


@pytest.mark.parametrize(
    ("rule", "config"),
    [
        (claim_rules.scores_of_rows, {"than": "sbp"}), (claim_rules.regained, {"than": "sbp"}),
        (claim_rules.times, {"than": "sbp", "column": "bp_s"}), (claim_rules.gains_over_gamma, {}),
        (claim_rules.sensitivity, {}), (claim_rules.deviations, {"paper_table": "f_test"}),
        (claim_rules.deviation_of_sbp, {"paper": 1.7}), (claim_rules.slope_by_k, {}),
        (claim_rules.slope_by_gamma, {}),
    ],
)  # fmt: skip
def test_a_setting_without_measurements_has_the_command_that_measures_it(rule, config, evidence):
    found = list(rule({"tables": ["small"], "grid": GRID, **SWEPT} | config, evidence()))
    assert found and all(each.n == 0 and each.command for each in found)


def test_claims_state_their_rule_with_its_numbers(evidence):
    config = {"order": 1, "title": "T", "quote": "Q", "where": "W", "effect": "MSBP's angle less SBP's"}
    config |= {"high": 0, "unit": "degrees", "margin": 1.0, "reason": "A degree does not matter."}
    config |= {"_target_": "msbp.analysis.claim_rules.angle_of_methods", "figures": ["angle"]}
    (found,) = claims({"angle": config}, {"angle": FIGURE}, evidence().sources)
    assert found.rule == (
        "MSBP's angle less SBP's; below 0 degrees agrees with the claim. "
        "Margin 1 degrees: A degree does not matter."
    )
    assert found.word == "open"
