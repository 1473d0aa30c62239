#!/usr/bin/env bash
# Run the sparse and optimizer tests with the oldest torch that pyproject.toml allows, in an environment of its own.
#
#   scripts/check_oldest_torch.sh [--if-changed] [FOLDER]
#
# FOLDER: the environment, created if it does not exist and reused without network access if it does;
# by default a folder of the user's cache. PYTEST_ADDOPTS goes to pytest.
# --if-changed: do nothing if these tests passed last time with the same sources and the same torch, of which
# tests/oldest_torch.txt keeps a digest. It is written when they pass.
set -euo pipefail
cd "$(dirname "$0")/.."
passed=tests/oldest_torch.txt
tested=(src/msbp/sparse src/msbp/optim tests/sparse tests/optim)
if [ -d tests/boundary ]; then tested+=(tests/boundary); fi

oldest=$(sed -nE 's/^ *"torch>=([0-9.]+)".*/\1/p' pyproject.toml)
case $oldest in
  *.*.*) ;;
  *.*) oldest+=.0 ;;
  *) echo "pyproject.toml must name the oldest torch as \"torch>=X.Y\"" >&2; exit 2 ;;
esac

digest() { # of paths and contents, in an order that no locale changes, with what decides how tests run
  find "${tested[@]}" tests/conftest.py tests/forked.py pyproject.toml -type f \
    \( -name '*.py' -o -name pyproject.toml \) -print0 | LC_ALL=C sort -z |
    xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1
}

line="torch $oldest  $(digest)"
if [ "${1-}" = --if-changed ]; then
  shift
  if [ "$(cat "$passed" 2>/dev/null)" = "$line" ]; then
    echo "torch $oldest: unchanged since the sparse and optimizer tests passed with it"
    exit
  fi
fi

folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/msbp/torch-$oldest}
python=$folder/bin/python
has() { "$python" -c "import torch, $1; assert torch.__version__.split('+')[0] == '$oldest'" 2>/dev/null; }
if ! has "joblib, hypothesis, numba, pytest, scipy, xdist"; then
  if [ ! -x "$python" ]; then python3 -m venv "$folder"; fi
  "$python" -m pip install --quiet --disable-pip-version-check \
    "torch==$oldest" numpy numba scipy joblib pytest pytest-xdist hypothesis
fi
folders=()
for path in "${tested[@]}"; do case $path in tests/*) folders+=("$path") ;; esac; done
PYTHONPATH=$PWD/src "$python" -m pytest -q "${folders[@]}"
if [ "torch $oldest  $(digest)" != "$line" ]; then
  echo "the files were changed during the tests: run them again" >&2
  exit 1
fi
echo "$line" >"$passed"
