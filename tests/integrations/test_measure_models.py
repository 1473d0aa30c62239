"""The table of measured models: rendered from a published file, which the method card shows."""

import json
import re

import pytest

pytest.importorskip("transformers")

from scripts import measure_models as script


def published(losses):
    row = {"model": "BERT", "width": 256, "parameters": 9, "threads": {}}
    row["threads"] = {
        count: {"converted": 12, "linear": 14, "bp_ms": [30.0, 10.0], "total_ms": total}
        for count, total in (("1", [40.0, 20.0]), ("2", [30.0, 20.0]))
    }
    return {
        "r": 0.04, "steps": 500, "batch": [16, 64], "commit": "0123456789", "torch": "2", "transformers": "5",
        "cpu": "CPU", "models": [row | {"losses": losses}, {**row, "model": "GPT-2", "width": 768}],
    }  # fmt: skip


LOSSES = {"dense": [0.1, 0.2, 0.3], "0.04": [0.4, 0.5, 0.6], "0.1": [0.2, 0.3, 0.4]}


def test_a_published_file_becomes_the_table_of_the_card(tmp_path):
    file, card = tmp_path / "models.json", tmp_path / "README.md"
    file.write_text(json.dumps(published(LOSSES)))
    card.write_text("before\n<!-- table: models -->\nold\n<!-- end of table -->\nafter\n")
    script.render(file, card)
    lines = card.read_text().splitlines()
    assert lines[0] == "before" and lines[-1] == "after" and "old" not in lines
    assert (
        "| BERT | 256 | 12 of 14 | 3.00× | 2.00× | 1.50× | 0.2 (0.1–0.3) | 0.5 (0.4–0.6) | 0.3 (0.2–0.4) |"
        in lines
    )
    assert "| GPT-2 | 768 | 12 of 14 | 3.00× | 2.00× | 1.50× | – | – | – |" in lines
    assert "3 seeds" in card.read_text()


def test_the_card_shows_the_published_file():
    if not script.FILE.exists():
        assert "Not measured yet" in script.CARD.read_text(encoding="utf-8")
        return
    within = re.split("<!-- .* -->", script.CARD.read_text(encoding="utf-8"))[1]
    assert within.strip() == script.rendered(json.loads(script.FILE.read_text(encoding="utf-8")))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", script.MODELS)
def test_every_model_is_measured_on_its_task(name):
    kind, _, batches = script.MODELS[name]
    found = script.speed(lambda: script.sized_model(kind, 128, 9), batches, (2, 9), rounds=1)
    assert found["converted"] >= 2 and min(*found["bp_ms"], *found["total_ms"]) > 0
