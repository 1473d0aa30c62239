"""Run folders of an earlier version, whose stored configurations name modules that have moved since."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from msbp.config import compose
from src.train import train
from src.translate import translate

EARLIER = Path(__file__).parent / "tasks/translation/earlier_run"
LINES = ["the red kettle found a boat .", "", "every small river saw the stone !"]
TRANSLATIONS = ["a dlo a dlo dlo dlo dlo elttek dnuof", "", "a dlo a dlo dlo dlo dlo elttek dnuof"]


@pytest.mark.parametrize("source", ["", "weights.pt", "checkpoint.pt"])
def test_an_earlier_run_translates_as_it_did(tmp_path, source):
    (tmp_path / "in.txt").write_text("\n".join(LINES) + "\n")
    paths = [f"checkpoint={EARLIER / source}", f"input={tmp_path}/in.txt", f"output={tmp_path}/out.txt"]
    translate(compose([*paths, "beam=2"], config="translate"))
    assert (tmp_path / "out.txt").read_text().split("\n")[:-1] == TRANSLATIONS


def test_an_earlier_checkpoint_is_resumed_to_the_same_record(tmp_path):
    settings = OmegaConf.load(EARLIER / "config.yaml")
    assert settings.task._target_ == "msbp.tasks.translation.Translation"
    words = ["task=multi30k", "experiment=smoke", "trainer.epochs=14", "optimizer.lr=0.02", "method=baseline",
             "model.hidden=8", "model.dropout=0", "model.embedding_dropout=0"]  # fmt: skip
    own = [f"paths.outputs={tmp_path}", f"resume={EARLIER}/checkpoint.pt"]
    record = train(compose([*words, *own]), tmp_path / "run", [])
    scores = {"signature": "2de59e27", "dev": 0.3551289827017662, "test": 0.6138643898669729}
    assert {name: record[name] for name in scores} == scores and record["resumed"]
