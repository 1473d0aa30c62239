"""Stored configurations: only trusted classes are built, and nothing else is called."""

import sys

import pytest
import torch
from omegaconf import OmegaConf

from msbp.config import compose
from msbp.tasks.translation.translator import load, trusted


@pytest.fixture
def config():
    cfg = compose(["task=multi30k", "experiment=smoke"])
    return OmegaConf.to_container(cfg, resolve=False)


def test_a_stored_configuration_is_resolved_within_itself(config):
    result = trusted(config)
    assert result.keys() == {"task", "model"}
    assert result.model.embedding == result.model.hidden == 48 and result.task.corpus is None
    assert result.task._target_ == "msbp.tasks.translation.task.Translation"


@pytest.mark.parametrize("module", ["msbp.tasks.translation", "msbp.tasks.translation.bleu", "msbp.later"])
def test_classes_are_known_by_name_in_whatever_module_of_the_project_they_were(config, module):
    config["task"]["_target_"] = f"{module}.Translation"
    config["task"]["bleu"]["_target_"] = f"{module}.Bleu"
    task = trusted(config).task
    assert task._target_ == "msbp.tasks.translation.task.Translation"
    assert task.bleu._target_ == "msbp.tasks.translation.task.Bleu"


EVIL = [
    ("task", "_target_", "os.system"),
    ("task", "_target_", "msbp.config.compose"),
    ("task", "_target_", "Translation"),
    ("task", "_target_", "msbp.tasks.translation.task.Translation.translate"),
    ("model", "_target_", "torch.load"),
    ("model", "_target_", "pathlib.Path"),
    ("model", "hidden", {"_target_": "os.getcwd"}),
    ("model", "hidden", [{"x": {"_target_": "os.getcwd"}}]),
    ("task", "bleu", {"_target_": "builtins.eval", "_args_": ["1"]}),
    ("task", "bleu", {"_target_": "msbp.tasks.translation.task.Bleu", "_partial_": True}),
    ("task", "alpha", "${oc.env:HOME}"),
    ("task", "alpha", "${data_dir:}"),
    ("model", "hidden", "${${task.name}:x}"),
    ("model", "hidden", "${oc.create:${task.bleu}}"),
    ("model", "hidden", "a ${oc.env:HOME} b"),
    ("model", "hidden", ["${oc.env:HOME}"]),
]


@pytest.mark.parametrize(("part", "key", "value"), EVIL, ids=str)
def test_no_other_class_is_built_and_no_resolver_read(config, monkeypatch, part, key, value):
    for name in ("hydra.utils.instantiate", "msbp.config.instantiate"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("it was built"))
    monkeypatch.setenv("HOME", "somewhere")
    config[part][key] = value
    with pytest.raises(ValueError) as refusal:
        trusted(config)
    assert part in str(refusal.value) and "somewhere" not in str(refusal.value)


def test_resolvers_elsewhere_in_the_configuration_are_not_called(config, monkeypatch):
    monkeypatch.setenv("WIDTH", "7")
    config["paper"]["hidden"] = "${oc.env:WIDTH}"
    config["model"]["hidden"] = "${paper.hidden}"
    assert trusted(config).model.hidden is None


@pytest.mark.parametrize("kept", [[], ["task"], ["task", "model"]])
def test_a_truncated_configuration_is_refused(config, kept):
    with pytest.raises(ValueError, match="it has not all of task, model, method"):
        trusted({key: config[key] for key in kept})
    with pytest.raises(ValueError, match="it has not all of"):
        trusted([1])


OWN = """
from pickle import Unpickler
from msbp.tasks.translation.task import Translation
open({mark!r}, "w").close()
class Mine(Translation):
    pass
def function(**_):
    raise AssertionError
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's, which leaves a mark when it is imported."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "my_tasks.py").write_text(OWN.format(mark=str(tmp_path / "imported")))
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("my_tasks", None)


def test_a_class_of_the_users_is_trusted_below_a_folder_that_is_allowed(config, own, tmp_path):
    config["task"]["_target_"] = "my_tasks.Mine"
    for allow in ([], [tmp_path / "elsewhere"]):
        with pytest.raises(ValueError, match=r"task\._target_=my_tasks\.Mine .* in allow="):
            trusted(config, allow)
        assert not (tmp_path / "imported").exists()
    assert trusted(config, [tmp_path]).task._target_ == "my_tasks.Mine"


@pytest.mark.parametrize("name", ["function", "Unpickler", "Translation", "nothing", "open"])
def test_only_classes_that_a_users_module_defines_are_trusted(config, own, tmp_path, name):
    config["model"]["_target_"] = f"my_tasks.{name}"
    with pytest.raises(ValueError, match=r"model\._target_=my_tasks\."):
        trusted(config, [tmp_path])


def test_loading_a_checkpoint_calls_no_class_of_it(tmp_path):
    evil = {"_target_": "pathlib.Path", "_args_": [str(tmp_path / "mark")]}
    settings = {"task": evil, "model": evil, "method": {}}
    torch.save({"format": 1, "settings": settings, "model": {}, "keep": {}}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"a\.pt is no whole part of a run of translation \(task"):
        load(tmp_path / "a.pt")


def test_the_task_of_a_run_must_be_translation(config):
    config["task"] = {"_target_": "msbp.tasks.mnist.Mnist", "name": "mnist", "batch_size": 3}
    with pytest.raises(ValueError, match=r"Mnist is none of the classes that a translator consists of"):
        trusted(config)
