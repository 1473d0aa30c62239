"""Verdicts about claims of the paper, from records that decide them one way or the other."""

import math

import pytest

from msbp.analysis import rules
from msbp.analysis.checks import Check, Measured, Outcome, together
from msbp.analysis.claims import Claim, claims
from msbp.analysis.runs import Sources
from msbp.analysis.tables import fill

HOLDS, FAILS, OPEN = Outcome
METHODS = ("baseline", "sbp", "msbp")
ROWS = [{"label": method, "overrides": [f"method={method}"]} for method in METHODS]
TABLE = {
    "name": "small", "caption": "", "seeds": 4, "columns": ["bp_s", "score"],
    "blocks": [{"title": "MNIST", "task": "mnist", "score": "Acc (%)", "rows": ROWS}],
}  # fmt: skip
GRID = {
    "name": "small", "task": "mnist", "seeds": 4, "baseline": ["method=baseline"], "sbp": ["method=sbp"],
    "msbp": ["method=msbp"], "sparse": {5: "method.r=0.01"}, "gamma": [0.1, 0.2], "command": "sweep",
}  # fmt: skip
FIGURE = {
    "seeds": 1, "columns": [],
    "blocks": [{
        "title": "MNIST", "task": "mnist",
        "rows": [
            {"label": f"{method}, k={k}", "overrides": [f"method={method}", f"k={k}"]}
            for method in ("sbp", "msbp") for k in (5, 20)
        ],
    }],
}  # fmt: skip
OFF = (-0.1, 0.0, 0.05, 0.1)


@pytest.fixture
def evidence(record_of, runs_of, angles_of, settle):
    """From columns of numbers by method, or by the words after it: what rules look at."""

    def evidence(benchmarks=(), angles=(), **columns):
        records = [
            record_of(f"task=mnist method={words}", seed, **{column: value})
            for column, rows in columns.items()
            for words, values in rows.items()
            for seed, value in enumerate(values)
        ]
        sources = Sources(runs_of(records), settle, benchmarks, angles_of(angles))
        return Measured(sources, lambda name: fill(TABLE, sources), {"angle": FIGURE})

    return evidence


def about(mean, offsets=OFF):
    return [mean + off for off in offsets]


@pytest.mark.parametrize(
    ("sbp", "msbp", "outcome"),
    [
        (about(97.0), [97.9, 98.2, 98.0, 98.3], HOLDS),
        (about(98.0), [97.1, 97.2, 97.0, 97.3], FAILS),
        (about(98.0), [98.3, 97.8, 98.2, 97.9], OPEN),
        (about(98.0), about(98.0), FAILS),
        ([97.0], [98.0], OPEN),
    ],
)
def test_a_higher_score_is_decided_by_its_interval_over_equal_seeds(sbp, msbp, outcome, evidence):
    (found,) = rules.higher({"tables": ["small"], "than": "sbp"}, evidence(test={"sbp": sbp, "msbp": msbp}))
    assert found.outcome == outcome and found.n == len(sbp) and found.excluded is (len(sbp) == 1)
    assert found.command == "python -m src.train -m task=mnist 'seed=range(0,4)' method=sbp,msbp"


@pytest.mark.parametrize(("share", "outcome"), [(0.0, OPEN), (0.3, FAILS)])
def test_where_nothing_was_dropped_equal_scores_are_no_evidence(share, outcome, evidence):
    seen = evidence(test={"sbp": about(98.0), "msbp": about(98.0)})
    seen.sources.runs["dropped_norm"] = share
    (found,) = rules.higher({"tables": ["small"], "than": "sbp"}, seen)
    assert found.outcome == outcome and ("nothing was dropped" in found.note) is (outcome == OPEN)


@pytest.mark.parametrize(("msbp", "outcome"), [(97.8, HOLDS), (96.1, FAILS)])
def test_what_msbp_regains_is_a_share_of_what_sbp_loses(msbp, outcome, evidence):
    scores = {"baseline": about(98.0), "sbp": about(96.0), "msbp": about(msbp)}
    (found,) = rules.recovers({"tables": ["small"], "share": 0.5}, evidence(test=scores))
    assert found.outcome == outcome and found.estimate == pytest.approx((msbp - 96) / 2)


@pytest.mark.parametrize(("msbp", "outcome"), [(1.02, HOLDS), (1.5, FAILS)])
def test_acceleration_is_a_share_of_sbps(msbp, outcome, evidence):
    seconds = {"baseline": [10.0, 10.1], "sbp": [1.0, 1.01], "msbp": [msbp, msbp]}
    (found,) = rules.acceleration({"tables": ["small"], "share": 0.9}, evidence(bp_s=seconds))
    assert found.outcome == outcome and found.estimate == pytest.approx(10.05 / msbp)


def test_overhead_asks_for_all_of_training_and_for_memory(evidence):
    seconds = {"baseline": [10.0, 10.1], "sbp": [5.0, 5.1], "msbp": [5.1, 5.0]}
    peaks = [
        {"name": name, "bp_ms": 1.0, "total_ms": None, "peak_mib": mib, "steps": 300}
        for name, mib in (("sbp", 100.0), ("msbp", 120.0))
    ]
    bench = {
        "case": "mnist",
        "sweep": None,
        "threads": 1,
        "allocator": "keep",
        "rows": peaks,
        "timing_rule": 2,
    }
    config = {"tables": ["small"], "limit": 0.05}
    *runs, steps, memory = rules.overhead(config, evidence([bench], bp_s=seconds))
    assert [check.outcome for check in (*runs, steps, memory)] == [HOLDS, HOLDS, HOLDS, FAILS]
    assert memory.estimate == pytest.approx(0.2) and steps.n == 300
    partial = bench | {"settings": ["seconds=0"]}
    assert len(rules.overhead(config, evidence([partial], bp_s=seconds))) == len(runs)


def test_one_timed_run_decides_nothing_about_overhead(evidence):
    seconds = {"baseline": [10.0], "sbp": [5.0], "msbp": [9.0]}
    bp, _ = rules.overhead({"tables": ["small"], "limit": 0.05}, evidence(bp_s=seconds))
    assert bp.outcome == OPEN and bp.estimate == pytest.approx(0.8) and bp.low is None


@pytest.mark.parametrize(("power", "outcome"), [(1.0, HOLDS), (0.5, FAILS)])
def test_proportional_time_has_slope_one(power, outcome, evidence):
    times = {"bp_p10_ms": 0.1, "bp_p90_ms": 9.0, "steps": 9}
    points = [
        {"value": k, "rows": [{"name": "sbp", "k_per_layer": {"a": k}, "bp_ms": k**power} | times]}
        for k in (5, 10, 20, 40, 400)
    ]
    bench = {"case": "mnist", "sweep": "k", "points": points, "timing_rule": 2}
    config = {"benchmarks": [{"case": "mnist", "sweep": "k"}], "slopes": [0.8, 1.2], "largest": 100}
    sbp, msbp = rules.proportional(config, evidence([bench]))
    assert sbp.outcome == outcome and sbp.n == 4 and not msbp.n


def cells(sbp, *msbp):
    scores = {"sbp method.r=0.01": sbp}
    return scores | {
        f"msbp method.r=0.01 method.gamma={g}": m for g, m in zip((0.1, 0.2), msbp, strict=False)
    }


@pytest.mark.parametrize(
    ("rule", "scores", "outcome"),
    [
        (rules.improves, cells(about(96), about(98), about(98)), HOLDS),
        (rules.improves, cells(about(98), about(98), about(98)), FAILS),
        (rules.improves, cells(about(96), about(98)), OPEN),
        (rules.steadies, cells([94.0, 96.0, 98.0, 92.0], about(98), about(98)), HOLDS),
        (rules.steadies, cells(about(96), about(98), about(98)), FAILS),
    ],
)
def test_the_papers_tests_decide_once_all_cells_have_their_runs(rule, scores, outcome, evidence):
    (found,) = rule({"grid": GRID, "share": 0.9, "runs": 4}, evidence(test=scores))
    assert found.outcome == outcome and "after Holm" in found.note
    assert found.setting == ("all 2 cells" if len(scores) == 3 else "1 of 2 cells")
    (more,) = rule({"grid": GRID, "share": 0.9, "runs": 5}, evidence(test=scores))
    assert more.outcome == OPEN


@pytest.mark.parametrize(("other", "outcome"), [(98.1, HOLDS), (96.6, FAILS)])
def test_sensitivity_is_the_range_over_gamma_by_the_gain(other, outcome, evidence):
    scores = cells(about(96), about(98), about(other))
    (found,) = rules.insensitive({"grid": GRID, "limit": 0.5}, evidence(test=scores))
    gain = (2 + other - 96) / 2
    assert found.outcome == outcome and found.estimate == pytest.approx(abs(other - 98) / gain)


def moments(method, k, degrees, task="mnist"):
    config = {"method": method, "seed": 0, "signature": f"task={task} method={method} k={k}"}
    return [
        {
            "config": config,
            "k": k,
            "step": step,
            "epoch": float(step),
            "angle": {"total": math.radians(angle), "hidden": math.radians(90 - angle)},
        }
        for step, angle in enumerate(degrees)
    ]


ANGLES = {"share": 0.95, "figures": ["angle"]}


def test_angles_that_the_figure_does_not_ask_for_decide_nothing(evidence):
    angles = [*moments("sbp", 5, [60, 80, 81], "pos"), *moments("msbp", 5, [60, 70, 72], "pos")]
    angles += [*moments("sbp", 9, [60, 80, 81]), *moments("msbp", 9, [60, 70, 72])]
    for rule in (rules.smaller_angle, rules.angle_by_k):
        assert [check.n for check in rule(ANGLES, evidence(angles=angles))] == [0]


def test_angles_are_compared_after_the_first_step(evidence):
    angles = [*moments("sbp", 5, [60, 80, 81]), *moments("msbp", 5, [60, 70, 72])]
    angles += [*moments("sbp", 20, [40, 50, 60]), *moments("msbp", 20, [40, 51, 61])]
    small, large, *hidden = rules.smaller_angle(ANGLES, evidence(angles=angles))
    assert (small.outcome, large.outcome) == (HOLDS, FAILS)
    assert [check.outcome for check in hidden] == [FAILS, HOLDS] and "hidden" in hidden[0].setting
    assert small.estimate == pytest.approx(-9.5) and small.note == "smaller at 2 of 2 measurements"
    by_k = rules.angle_by_k(ANGLES, evidence(angles=angles))
    assert [check.outcome for check in by_k] == [HOLDS, HOLDS]


@pytest.mark.parametrize(
    ("rule", "config"),
    [
        (rules.higher, {"than": "sbp"}), (rules.recovers, {"share": 0.5}),
        (rules.acceleration, {"share": 0.9}), (rules.overhead, {"limit": 0.05}),
        (rules.proportional, {"slopes": [0.8, 1.2], "largest": 100}),
        (rules.improves, {"share": 0.9, "runs": 4}),
        (rules.steadies, {"share": 0.9, "runs": 4}),
        (rules.insensitive, {"limit": 0.5}), (rules.smaller_angle, {"figures": ["angle"]}),
        (rules.angle_by_k, {"figures": ["angle"]}),
    ],
)  # fmt: skip
def test_without_measurements_a_rule_decides_nothing_and_tells_the_command(rule, config, evidence):
    shared = {"tables": ["small"], "grid": GRID, "benchmarks": [{"case": "mnist", "sweep": "k"}]}
    found = rule(shared | config, evidence())
    assert found and all(check.outcome == OPEN and not check.n and check.command for check in found)


def claim(*outcomes, needs=1, absent=0, excluded=0):
    checks = [Check("measured", outcome, n=5) for outcome in outcomes]
    checks += [Check("a single run", OPEN, n=1, excluded=True)] * excluded
    return Claim("c", "", "", "", [], "", [*checks, *[Check("absent", OPEN)] * absent], needs)


def test_one_setting_against_a_claim_refutes_it_and_most_settings_support_it():
    assert claim(HOLDS, HOLDS, FAILS).outcome == FAILS
    assert claim(HOLDS, HOLDS, OPEN, absent=9).outcome == HOLDS
    assert claim(HOLDS, OPEN).outcome == claim(absent=1).outcome == claim(HOLDS, needs=2).outcome == OPEN
    assert claim(HOLDS, OPEN, absent=2).reason == "1 for it, 1 undecided, 2 not measured"
    assert claim(HOLDS, needs=2).reason == "1 for it; at least 2 wanted"
    assert claim(HOLDS, excluded=3).outcome == HOLDS and claim(excluded=3).outcome == OPEN
    assert claim(HOLDS, excluded=3, needs=2).reason == "1 for it, 3 that cannot decide; at least 2 wanted"


def test_claims_state_their_rule_with_its_numbers(evidence):
    config = {"order": 1, "title": "T", "quote": "Q", "where": "W", "rule": "at least {share}", "share": 0.9}
    config |= {"_target_": "msbp.analysis.rules.smaller_angle", "figures": ["angle"]}
    (found,) = claims({"angle": config}, {}, {"angle": FIGURE}, evidence().sources)
    assert found.rule == "at least 0.9" and found.outcome == OPEN


def test_commands_that_differ_in_the_method_alone_are_one_sweep():
    assert together(["run a method=sbp", "run a method=msbp"]) == "run a method=sbp,msbp"
    assert together(["run a method=sbp", "", "run b"]) == "run a method=sbp && run b"
