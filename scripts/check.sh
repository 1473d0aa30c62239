#!/usr/bin/env bash
# What must hold before a commit: lint, format, types, tests. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
ruff check .
ruff format --check .
mypy
pytest "$@"
