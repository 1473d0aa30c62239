"""All that a report can show, by name."""

from pathlib import Path

from .wanted import Config, configs

CLAIMS = "claims"


def catalogue(conf: Path) -> dict[str, Config]:
    """Every table, every figure, and all claims together."""
    tables = configs(conf, "table")
    figures = configs(conf, "figure")
    claims = {
        "_target_": "msbp.analysis.claim_text.document",
        "name": CLAIMS,
        "claims": configs(conf, "claim"),
    }
    return tables | figures | {CLAIMS: claims | {"tables": tables, "figures": figures}}
