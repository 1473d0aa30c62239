"""Numerical checks of the paper's bounds, on problems that satisfy their conditions (its Appendix B and C).

Lemma 2 is about a matrix, Lemma 3 about one layer, Lemma 4 about the layers of an MLP, Theorem 1 about
descent along an estimated gradient, Theorem 2 about the gradient of a data set. Letters: n width, k kept,
r = k/n; angles δ, φ and θ in radians. All in float64.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from .files import Fields
from .sparse import convert, entries_kept, top_k
from .training.probes import angle

SLACK = 1e-9  # what rounding may add to an angle in radians, and to a factor
EPSILON = 0.01  # share of the first distance at which descent ends
QUADRATICS = ((0.04, 0.97), (0.04, 0.5), (0.5, 0.8), (0.9, 0.5), (0.98, 0.2))  # r and μ/L
Row = Fields


def checks(seed: int = 0) -> Fields:
    """Return the results of all checks on random problems.

    `holds`: no bound was exceeded where its conditions are met.
    """
    random = torch.Generator().manual_seed(seed)
    return {
        "seed": seed,
        "lemma_3": [lemma_3(r, random) for r in (0.04, 0.5, 0.9, 0.98)],
        "lemma_4": [lemma_4(math.radians(theta), random) for theta in (20, 40, 60, 80)],
        "theorem_1": [theorem_1(r, ratio, random) for r, ratio in QUADRATICS],
        "lemma_2": [lemma_2(rho, random) for rho in (1.01, 1.1, 2.0, 10.0)],
        "theorem_2": [theorem_2(math.radians(theta), random) for theta in (20, 40, 60, 80)],
        "broken_by_the_papers_network": broken_conditions(),
    }


def lemma_2(rho: float, random: torch.Generator, trials: int = 500, n: int = 20) -> Row:
    """Check Lemma 2, cos δ(Au, Av) ≥ ρ cos δ(u, v) + 1 - ρ for a square matrix of the condition number √ρ.

    Half of the pairs are random; the others lie in the plane that the matrix distorts most.
    """
    margins = []
    for trial in range(trials):
        matrix = torch.linalg.qr(normal(random, n, n))[0]
        matrix = matrix * torch.linspace(1, math.sqrt(rho), n, dtype=torch.float64)
        u, v = normal(random, n), normal(random, n)
        v = u + 2 * uniform(random) * v
        if trial % 2:
            half, axis = uniform(random) * math.pi / 4, torch.zeros(n, dtype=torch.float64)
            u, v = axis.clone(), axis.clone()
            u[0], v[0], u[-1], v[-1] = math.cos(half), math.cos(half), math.sin(half), -math.sin(half)
        before, after = angle([u], [v]), angle([matrix @ u], [matrix @ v])
        margins.append(math.cos(after) - (rho * math.cos(before) + 1 - rho))
    holds = min(margins) >= -SLACK
    return {"rho": rho, "trials": trials, "least_margin": min(margins), "holds": holds}


def theorem_2(
    theta: float, random: torch.Generator, sizes: Sequence[int] = (1, 10, 50), trials: int = 5, n: int = 64
) -> Row:
    """Check Theorem 2: the share of random data sets whose mean gradient by SBP is within θ of the true one.

    The share is by their size; data sets are drawn from twice as many instances as the largest has. One
    network; r = k/n is the smallest for which the bound of every instance stays below θ. The estimate of
    every instance and layer is scaled to the length of the true gradient, as in Lemma 4.
    """
    weights, output = [well_posed(n, 1.1, random) for _ in range(2)], normal(random, n, 10)
    instances = [(normal(random, n), torch.randint(10, (1,), generator=random)) for _ in range(2 * sizes[-1])]
    true = [mlp_gradients(weights, x, output, label, k=None) for x, label in instances]
    rho = max(float(torch.linalg.cond(weight)) ** 2 for weight in weights)
    rho *= max(float(slope.max() / slope.min()) ** 2 for _, slopes in true for slope in slopes)
    bounds = {k: mlp_bound(k / n, rho, len(weights)) for k in range(1, n + 1)}
    k = next((k for k, bound in bounds.items() if bound is not None and bound < theta), None)
    if k is None:
        return {"theta": theta, "r": None, "applies": 0, "holds": True}
    estimates = [
        [g * (t.norm() / g.norm()) for g, t in zip(estimate, exact, strict=True)]
        for (x, label), (exact, _) in zip(instances, true, strict=True)
        for estimate, _ in [mlp_gradients(weights, x, output, label, k)]
    ]
    largest, share = [], []
    for size in sizes:
        angles = []
        for _ in range(trials):
            chosen = torch.randperm(len(instances), generator=random)[:size].tolist()
            sums = [
                [sum(parts) for parts in zip(*(vectors[i] for i in chosen), strict=True)]
                for vectors in (estimates, [exact for exact, _ in true])
            ]
            angles.append(angle(*sums))
        largest.append(max(angles))
        share.append(sum(each < theta for each in angles) / trials)
    return {
        "theta": theta, "r": k / n, "sizes": list(sizes), "trials": trials, "applies": len(instances),
        "share_within": share, "largest_angle": largest, "holds": share[-1] == 1.0,
    }  # fmt: skip


def lemma_3(r: float, random: torch.Generator, trials: int = 200, n: int = 50) -> Row:
    """Check Lemma 3: SBP in a square layer whose upstream gradient is itself an estimate.

    δ(x) ≤ arccos(ρ₁ cos δ(h) + 1 - ρ₁), and δ(w) = δ(h) ≤ arccos √r + arccos(ρ₂ cos δ(z) + 1 - ρ₂).
    """
    margins: dict[str, list[float]] = {"x": [], "h": [], "w = h": []}
    for _ in range(trials):
        weight = well_posed(n, 1 + 0.2 * uniform(random), random)
        x, true_z = normal(random, n), normal(random, n)
        g_z = true_z + 0.3 * uniform(random) * normal(random, n)
        slope = 1 - torch.tanh(0.3 * normal(random, n)) ** 2  # σ'(h) of tanh
        true_h, g_h = slope * true_z, top_k((slope * g_z)[None], entries_kept(r, n))[0]
        d_z, d_h, d_x = (
            angle([g_z], [true_z]),
            angle([g_h], [true_h]),
            angle([weight.T @ g_h], [weight.T @ true_h]),
        )
        d_w = angle([torch.outer(g_h, x)], [torch.outer(true_h, x)])
        margins["w = h"].append(-abs(d_w - d_h))
        rho_1, rho_2 = float(torch.linalg.cond(weight)) ** 2, float(slope.max() / slope.min()) ** 2
        if (bound := carried(rho_1, d_h)) is not None:
            margins["x"].append(bound - d_x)
        if (bound := carried(rho_2, d_z)) is not None:
            margins["h"].append(math.acos(math.sqrt(r)) + bound - d_h)
    applies = {name: len(each) for name, each in margins.items()}
    least = {name: min(each, default=None) for name, each in margins.items()}
    holds = all(margin is None or margin >= -SLACK for margin in least.values())
    return {"r": r, "trials": trials, "applies": applies, "least_margin": least, "holds": holds}


def carried(rho: float, delta: float) -> float | None:
    """Return arccos(ρ cos δ + 1 - ρ), Lemma 2's bound on an angle δ after a matrix; None if it has none."""
    cosine = rho * math.cos(delta) + 1 - rho
    return math.acos(min(cosine, 1.0)) if cosine > 0 else None


def lemma_4(theta: float, random: torch.Generator, n: int = 64, hidden: int = 2, trials: int = 20) -> Row:
    """Check Lemma 4: the smallest r = k/n whose bound stays below θ in an MLP, and the angles of SBP with it.

    The estimate of every layer is scaled to the length of the true gradient, as the lemma has it.
    """
    rows = [one_mlp(theta, n, hidden, random) for _ in range(trials)]
    known = [row for row in rows if row is not None]
    return {
        "theta": theta,
        "r": sorted({row["r"] for row in known}),
        "trials": trials,
        "applies": len(known),
        "largest_angle": max((row["angle"] for row in known), default=None),
        "least_margin": min((row["bound"] - row["angle"] for row in known), default=None),
        "holds": all(row["angle"] <= row["bound"] + SLACK and row["bound"] < theta for row in known),
    }


def one_mlp(theta: float, n: int, hidden: int, random: torch.Generator) -> Row | None:
    """Return bound and angle of a network, input and label; None if even k = n - 1 has no bound below θ."""
    weights = [well_posed(n, 1.1, random) for _ in range(hidden)]
    x, output, label = normal(random, n), normal(random, n, 10), torch.tensor([3])
    true, slopes = mlp_gradients(weights, x, output, label, k=None)
    rho = max(float(torch.linalg.cond(weight)) ** 2 for weight in weights)
    rho *= max(float(slope.max() / slope.min()) ** 2 for slope in slopes)
    for k in range(1, n):
        bound = mlp_bound(k / n, rho, hidden)
        if bound is not None and bound < theta:
            estimate, _ = mlp_gradients(weights, x, output, label, k)
            scaled = [g * (t.norm() / g.norm()) for g, t in zip(estimate, true, strict=True)]
            return {"r": k / n, "bound": bound, "angle": angle(scaled, true)}
    return None


def mlp_bound(r: float, rho: float, hidden: int) -> float | None:
    """Return arccos(1 - β₁), Lemma 4's recursion from the dense output layer down; None if it ends before."""
    delta = 0.0
    for _ in range(hidden):
        behind = carried(rho, delta)
        if behind is None:
            return None
        delta = math.acos(math.sqrt(r)) + behind
    return delta


def mlp_gradients(
    weights: list[Tensor], x: Tensor, output: Tensor, label: Tensor, k: int | None
) -> tuple[list[Tensor], list[Tensor]]:
    """Return ∂ℓ/∂W of an MLP with tanh (full, or by SBP that keeps k), output last, and σ'(h) by layer."""
    layers = [nn.Linear(w.shape[1], w.shape[0], bias=False) for w in (*weights, output.T)]
    for layer, weight in zip(layers, (*weights, output.T), strict=True):
        layer.weight = nn.Parameter(weight.clone())
    model = nn.Sequential(*layers)
    if k is not None:
        n = len(weights[0])
        convert(model, k / n, 0.0, layers=[str(index) for index in range(len(weights))])
    slopes, z = [], 0.1 * x[None]  # small, so that tanh is steep everywhere
    for layer in layers[:-1]:
        z = torch.tanh(layer(z))
        slopes.append((1 - z**2).detach())
    nn.functional.cross_entropy(layers[-1](z), label).backward()
    gradients = [layer.weight.grad for layer in layers]
    return [g for g in gradients if g is not None], slopes


def theorem_1(r: float, ratio: float, random: torch.Generator, n: int = 50) -> Row:
    """Check Theorem 1: along top_k of a quadratic's gradient, a step leaves sin θ of ‖w - w*‖ at most.

    ratio: μ/L of the quadratic. θ = φ + arccos √r, the worst case of that estimate. The proof's step size
    depends on ‖w - w*‖, which is known here.
    """
    theta = math.acos(math.sqrt(ratio)) + math.acos(math.sqrt(r))
    row: Row = {"r": r, "mu_over_L": ratio, "theta": theta, "applies": theta < math.pi / 2, "holds": True}
    if not row["applies"]:
        return row
    q = torch.linalg.qr(normal(random, n, n))[0]
    hessian = q @ torch.diag(torch.linspace(ratio, 1, n, dtype=torch.float64)) @ q.T
    distance = normal(random, n)  # w - w*
    allowed = math.ceil(math.log(1 / EPSILON) / math.log(1 / math.sin(theta)))
    lengths = [float(distance.norm())]
    while lengths[-1] > EPSILON * lengths[0] and len(lengths) <= allowed:
        g = top_k((hessian @ distance)[None], entries_kept(r, n))[0]
        distance = distance - math.cos(theta) * lengths[-1] / float(g.norm()) * g
        lengths.append(float(distance.norm()))
    shrinks = max(after / before for before, after in pairwise(lengths))
    holds = shrinks <= math.sin(theta) + SLACK and lengths[-1] <= EPSILON * lengths[0]
    steps = {"steps": len(lengths) - 1, "allowed_steps": allowed}
    return row | steps | {"largest_factor": shrinks, "sin_theta": math.sin(theta), "holds": holds}


def broken_conditions(
    widths: Sequence[int] = (784, 500, 500, 10), ratios: Sequence[float] = (0.04, 0.001)
) -> list[str]:
    """Return the conditions of the theorems that the paper's own network for MNIST does not meet."""
    narrower = [f"{i} to {o}" for i, o in pairwise(widths) if o < i]
    worst = [f"{math.degrees(math.acos(math.sqrt(r))):.1f}° at r = {r:g}" for r in ratios]
    strong = [f"{1 - r:g} at r = {r:g}" for r in ratios]
    return [
        "Lemmas 2 to 4 require that no layer is narrower than its input and that WWᵀ is positive definite, "
        f"so that W is square; the network narrows from {' and '.join(narrower)}.",
        "Lemmas 3 and 4 require an activation that is strictly increasing, with a smallest slope above 0; "
        "the network has ReLU, whose slope is 0 wherever h is negative.",
        "Lemma 4 requires an r close to 1 for a small angle; the worst angle of a single layer is "
        f"{' and '.join(worst)}.",
        "Lemma 4 requires that the estimate of every layer is scaled to the length of the true gradient; in "
        "the algorithm it is not.",
        "Theorem 1 requires a strongly convex loss; a network's is not. Where one is, the theorem covers "
        f"top_k only for μ/L above 1 - r, that is {' and '.join(strong)}.",
        "All require an estimate without memory, so none of them is about MSBP.",
    ]


def well_posed(n: int, condition: float, random: torch.Generator) -> Tensor:
    """Return a square matrix (n, n) with this condition number."""
    left, right = (torch.linalg.qr(normal(random, n, n))[0] for _ in range(2))
    return left @ torch.diag(torch.linspace(1, condition, n, dtype=torch.float64)) @ right


def normal(random: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=random)


def uniform(random: torch.Generator) -> float:
    return float(torch.rand((), generator=random))
