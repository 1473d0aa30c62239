"""msbp.sparse and msbp.optim work in an environment that has torch, numpy and numba alone."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"hydra-core": "hydra", "hydra-joblib-launcher": "hydra_plugins"}
OWN = {"torch", "numpy", "numba"}

PROGRAM = """
import sys

sys.modules |= dict.fromkeys({missing})  # as if they were not installed
before = set(sys.modules)
import msbp
assert {{name for name in set(sys.modules) - before if not name.startswith("msbp")}} == set()
import torch
from torch import nn
from msbp.optim import SGD, Adam, AdamW, clip_grad_norm_
from msbp.sparse import backward, convert, cross_entropy, dense, revert, status
import msbp.integrations

model = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3))
assert list(convert(model, 0.1)) == ["2"]
for kind in (SGD, Adam, AdamW):
    optimizer = kind(model.parameters(), 0.01)
    backward(cross_entropy(model(torch.randn(16, 8)), torch.arange(16) % 3))
    clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
assert "torch._dynamo" not in sys.modules, "torch's compiler takes more than a second to import"
str(status(model)), revert(model)
"""


def dependencies():
    """Return the modules of the pipeline's packages, besides those that the library needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for extra in project["optional-dependencies"].values() for name in extra]
    required = [*project["dependencies"], *extras]
    names = {requirement.partition(">")[0].partition("=")[0].partition("[")[0] for requirement in required}
    return {NAMES.get(name, name.replace("-", "_")) for name in names} - OWN | {"omegaconf", "joblib"}


def test_the_library_works_without_the_packages_of_the_pipeline():
    program = PROGRAM.format(missing=sorted(dependencies()))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
