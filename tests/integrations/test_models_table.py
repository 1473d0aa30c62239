"""The table of measured models: rendered from a published file into the method card."""

import re

import pytest

from msbp.files import json_text, parsed
from scripts.measure_models import table


def published():
    """Return the published file of a model that learns, of one measured for speed, and of a refused one."""
    speed = {
        count: {"bp_ms": [30.0, 10.0, 5.0], "total_ms": total}
        for count, total in (("1", [40.0, 20.0, 32.0, 16.0]), ("2", [30.0, 20.0, 30.0, None]))
    }
    losses = {"dense": [0.1, 0.2, 0.3], "0.04": [0.4, 0.5, 0.6], "0.1, per slot": [0.2, 0.2, 0.2]}
    row = {"name": "BERT", "width": 256, "converted": 12, "linear": 14, "speed": speed, "losses": losses}
    refused = {"name": "FT-Transformer", "width": 64, "converted": 0, "linear": 7, "speed": {}, "losses": {}}
    part = {**row, "name": "T5", "losses": {"dense": [1.0, 1.0, 1.0], "0.04": [1.5, 1.5, 1.6]}}
    trainings = ["dense", "0.04", "0.1, per slot"]
    return {
        "r": 0.04, "trainings": trainings, "steps": 500, "rounds": 15, "batch": [8, 64], "seeds": [0, 1, 2],
        "learning_batch": [8, 9], "torch": "2", "transformers": "5", "cpu": "CPU", "threads": [1, 2],
        "wide": 768, "commits": {"speed": ["0123456789"], **{name: ["9876543210"] for name in trainings}},
        "models": [row, part, {**row, "name": "GPT-2", "width": 768, "losses": {}}, refused],
    }  # fmt: skip


@pytest.fixture
def lines(tmp_path):
    file, card = tmp_path / "models.json", tmp_path / "README.md"
    file.write_text(json_text(published()))
    card.write_text("before\n<!-- table: models -->\nold\n<!-- end of table -->\nafter\n")
    table.render(file, card)
    return card.read_text().splitlines()


def test_a_published_file_becomes_the_tables_of_the_card(lines):
    assert lines[0] == "before" and lines[-1] == "after" and "old" not in lines
    assert "| BERT | 256 | 12 of 14 | 3.00× | 2.00× | 1.25× | 2.50× | 2.67× | 1.50× |" in lines
    assert "| FT-Transformer | 64 | 0 of 7 | – | – | – | – | – | – |" in lines
    assert "| loss | dense | r = 0.04 | r = 0.1, per slot |" in lines
    assert "| BERT | 0.2 (0.1–0.3) | 0.5 (0.4–0.6) | 0.2 (0.2–0.2) |" in lines
    assert "| T5 | 1 (1–1) | 1.53 (1.5–1.6) | – |" in lines
    assert not any(line.startswith("| GPT-2") and "0.2" in line for line in lines)


def test_the_captions_have_the_conditions_and_where_r_costs_learning(lines):
    speed, losses = (line for line in lines if "commit" in line)
    assert "15 steps of each" in speed and "01234567" in speed and "98765432" not in speed
    assert "3 seeds" in losses and "500 steps" in losses and "98765432" in losses
    assert "More than 1.5 times the dense loss: at r = 0.04: BERT, T5." in lines


def test_the_card_shows_the_published_file():
    card = table.CARD.read_text(encoding="utf-8")
    if not table.FILE.exists():
        assert "Not measured yet" in card
        return
    within = re.split("<!-- .* -->", card)[1]
    assert within.strip() == table.rendered(parsed(table.FILE.read_bytes()))
