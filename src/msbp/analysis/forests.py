"""Forest plots of claims: estimates with intervals below each other, as positions for the page and as SVG."""

from typing import TYPE_CHECKING

import jinja2
import numpy as np

from ..files import Fields

if TYPE_CHECKING:
    from .claims import Claim

ROW = 22  # pixels
KEY = "Dotted: edges of the claim; orange: the paper; pale rows do not count."
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {{ height }}" width="900" role="img">
<title>{{ title }}</title>
<style>
text { font: 12px sans-serif; fill: #222; } .pooled { font-weight: bold; } .uncounted { opacity: .6; }
.mark { stroke: #0072b2; fill: #0072b2; } .pooled .mark { stroke: #222; fill: #222; }
.edge { stroke: #777; stroke-dasharray: 2 3; } .paper { stroke: #d55e00; stroke-width: 3; }
@media (prefers-color-scheme: dark) {
text { fill: #ddd; } .mark { stroke: #62b4e8; fill: #62b4e8; } .pooled .mark { stroke: #ddd; fill: #ddd; }
.paper { stroke: #f08a45; } }
</style>
{% for row in rows %}
<g class="{{ row.kind }}" transform="translate(0 {{ loop.index0 * step }})">
<text x="0" y="15">{{ row.label }}</text>
<svg x="385" width="250" height="{{ step }}">
{% for edge in row.edges %}<line class="edge" x1="{{ edge }}%" x2="{{ edge }}%" y1="0" y2="100%"/>{% endfor %}

<line class="mark" x1="{{ row.low }}%" x2="{{ row.high }}%" y1="50%" y2="50%" stroke-width="2"/>
{% if row.paper is not none %}
<line class="paper" x1="{{ row.paper }}%" x2="{{ row.paper }}%" y1="20%" y2="80%"/>
{% endif %}
{% if row.dot is not none %}<circle class="mark" cx="{{ row.dot }}%" cy="50%" r="{{ row.radius }}"/>
{% endif %}
</svg>
<text x="645" y="15">{{ row.text }}</text>
</g>
{% endfor %}
<text x="0" y="{{ height - 8 }}">{{ title }}. {{ key }}</text>
</svg>
"""


def drawn(claim: "Claim") -> str:
    """Return the forest plot of a claim as an image of its own, for light and dark pages."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    rows = forest_rows(claim)
    height, title = ROW * len(rows) + 28, claim.config["effect"]
    return (
        environment.from_string(SVG).render(rows=rows, height=height, title=title, step=ROW, key=KEY) + "\n"
    )


def forest_rows(claim: "Claim") -> list[Fields]:
    """Return the estimates with positions in percent of the axis, which spans all that counts, and as text.

    kind: pooled, counted or uncounted. Intervals end with the axis; estimates beyond it have no position.
    """
    unit, rows = claim.unit, [row for row in claim.rows if row["n"]]
    edges = [claim.config[edge] for edge in ("low", "high") if claim.config.get(edge) is not None]
    counted = [row for row in rows if row["verdict"] != "not counted"] or rows
    ends = [row[name] for row in counted for name in ("low", "high", "estimate", "paper")]
    ends = [end for end in [*ends, *edges] if end is not None and np.isfinite(end)]
    least, width = min(ends), (max(ends) - min(ends)) or 1.0

    def place(value: float | None) -> float | None:
        if value is None or not np.isfinite(value):
            return None
        return round(float(np.clip(4 + 92 * (value - least) / width, 0, 100)), 2)

    def inside(value: float | None) -> float | None:
        return found if (found := place(value)) is not None and 0 < found < 100 else None

    found = []
    for row in rows:
        low, high, dot = place(row["low"]), place(row["high"]), place(row["estimate"])
        interval = f" ({unit.text(row['low'])} to {unit.text(row['high'])})" if low is not None else ""
        kind = "pooled" if not row["setting"] else "counted" if row["verdict"] == "counted" else "uncounted"
        found.append({
            "kind": kind, "label": row["setting"] or f"{row['family']}, pooled",
            "dot": inside(row["estimate"]), "radius": 6 if kind == "pooled" else 4,
            "low": dot if low is None else low, "high": dot if high is None else high,
            "paper": inside(row["paper"]), "edges": [place(edge) for edge in edges],
            "text": f"{unit.text(row['estimate'])}{unit.suffix}{interval}, n = {row['n']}",
        })  # fmt: skip
    return found
