"""The README agrees with the code."""

import re
import shlex
import textwrap
from pathlib import Path

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser

from msbp.analysis.publish import contents, stale
from msbp.analysis.settings import catalogue, settings_from
from msbp.config import CONF, ROOT, compose

README = (ROOT / "README.md").read_text(encoding="utf-8")
# Without the generated tables: their commands may be of tasks that do not exist yet.
TEXT = re.sub(r"(<!-- table: \w+ -->).*?<!-- end of table -->", r"\1", README, flags=re.DOTALL)
CONFIG_OF = {"-m src.train": "train", "-m src.report": "report", "-m src.bench": "bench"}
CONFIG_OF |= {"scripts/publish.py": "publish", "scripts/reproduce.py": "reproduce", "-m src.theory": "theory"}
LAUNCHER = (
    "hydra/launcher=",
    "hydra.launcher.",
    "+hydra.launcher.",
)  # those of extras are not installed here
SWEEPERS = {"experiment=optimize": "hydra_plugins.hydra_optuna_sweeper"}  # of extras, too
COMMANDS = [
    (config, command)
    for start, config in CONFIG_OF.items()
    for command in re.findall(rf"python {start}([^\n`&#]*)", TEXT)
]


def single(word):
    """The override that a sweep runs first."""
    override = OverridesParser.create().parse_override(word)
    if override.is_sweep_override():
        return f"{override.get_key_element()}={next(override.sweep_string_iterator())}"
    return word


def test_the_example_for_an_own_model_runs_and_learns(monkeypatch):
    monkeypatch.undo()  # narrow layers stay as they are, as for a user
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    torch.manual_seed(0)
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    assert names["kept"] == {"2": 10}
    assert names["loss"].item() < 0.2


@pytest.mark.parametrize(("config", "command"), COMMANDS)
def test_every_command_composes(config, command):
    words = shlex.split(command)
    for word in SWEEPERS.keys() & set(words):
        pytest.importorskip(SWEEPERS[word])
    overrides = [word for word in words if not word.startswith(("-", *LAUNCHER)) and "=" in word]
    compose([single(word) for word in overrides], config)


def test_a_value_is_quoted_as_the_readme_says():
    (quoted,) = re.findall(r"`('paths\.data=[^`]*)`", README)
    (word,) = shlex.split(quoted)
    assert compose([word]).paths.data == "/data/r=0.04, new"


def test_the_layout_names_what_exists():
    tree = textwrap.dedent(re.search(r"## Layout\n\n((?:    .*\n)+)", README)[1])
    for path in re.findall(r"(?:^|  )((?:src|conf|scripts|tests|outputs|data)/[\w./]*)", tree, re.MULTILINE):
        assert (ROOT / path).exists(), path


def test_links_lead_to_files():
    for path in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / path).exists(), path


def test_the_published_tables_and_those_shown_here_are_what_the_records_give():
    """If this fails: python -m src.report readme=write."""
    settle = settings_from(Path(CONF), compose)
    published, every = ROOT / "outputs" / "published", catalogue(Path(CONF))
    assert stale(contents(published, ROOT / "README.md", every, settle, draw=False)) == []
