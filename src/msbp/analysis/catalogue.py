"""All that a report can show, by name."""

from pathlib import Path

from .wanted import Config, configs

CLAIMS = "claims"


def catalogue(conf: Path) -> dict[str, Config]:
    """Every table, every figure, and all claims together."""
    tables = configs(conf, "table")
    claims = {"_target_": "msbp.analysis.claim_text.document", "name": CLAIMS, "tables": tables}
    return tables | configs(conf, "figure") | {CLAIMS: claims | {"claims": configs(conf, "claim")}}
