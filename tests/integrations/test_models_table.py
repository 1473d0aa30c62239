"""The table of measured models: rendered from a published file, which the method card shows."""

import re

import pytest

from msbp.files import json_text, parsed
from scripts.measure_models import table


def published():
    """Return the published file of a model that learns, of one measured for speed, and of a refused one."""
    speed = {
        count: {"bp_ms": [30.0, 10.0], "total_ms": total}
        for count, total in (("1", [40.0, 20.0]), ("2", [30.0, 20.0]))
    }
    losses = {"dense": [0.1, 0.2, 0.3], "0.04": [0.4, 0.5, 0.6], "0.1": [0.2, 0.2, 0.2]}
    row = {"name": "BERT", "width": 256, "converted": 12, "linear": 14, "speed": speed, "losses": losses}
    refused = {"name": "FT-Transformer", "width": 64, "converted": 0, "linear": 7, "speed": {}, "losses": {}}
    return {
        "r": 0.04, "ratios": [0.04, 0.1], "steps": 500, "rounds": 15, "batch": [8, 64], "seeds": [0, 1, 2],
        "learning_batch": [8, 9], "commit": "0123456789", "torch": "2", "transformers": "5", "cpu": "CPU",
        "threads": [1, 2], "wide": 768,
        "models": [row, {**row, "name": "GPT-2", "width": 768, "losses": {}}, refused],
    }  # fmt: skip


@pytest.fixture
def lines(tmp_path):
    file, card = tmp_path / "models.json", tmp_path / "README.md"
    file.write_text(json_text(published()))
    card.write_text("before\n<!-- table: models -->\nold\n<!-- end of table -->\nafter\n")
    table.render(file, card)
    return card.read_text().splitlines()


def test_a_published_file_becomes_the_table_of_the_card(lines):
    assert lines[0] == "before" and lines[-1] == "after" and "old" not in lines
    assert (
        "| BERT | 256 | 12 of 14 | 3.00× | 2.00× | 1.50× | 0.2 (0.1–0.3) | 0.5 (0.4–0.6) | 0.2 (0.2–0.2) |"
        in lines
    )
    assert "| GPT-2 | 768 | 12 of 14 | 3.00× | 2.00× | 1.50× | – | – | – |" in lines
    assert "| FT-Transformer | 64 | 0 of 7 | – | – | – | – | – | – |" in lines


def test_the_caption_has_the_conditions_and_where_r_costs_learning(lines):
    text = " ".join(lines)
    assert "3 seeds" in text and "500 steps" in text and "15 steps of each" in text and "01234567" in text
    assert "At r = 0.04: BERT." in text and "At r = 0.1:" not in text


def test_the_card_shows_the_published_file():
    card = table.CARD.read_text(encoding="utf-8")
    if not table.FILE.exists():
        assert "Not measured yet" in card
        return
    within = re.split("<!-- .* -->", card)[1]
    assert within.strip() == table.rendered(parsed(table.FILE.read_bytes()))
