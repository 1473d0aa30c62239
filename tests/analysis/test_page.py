"""The page of claims, from all that conf has and what is published."""

import re
import tomllib
from pathlib import Path

import pytest

from msbp.analysis.catalogue import CLAIMS, catalogue
from msbp.analysis.documents import document
from msbp.analysis.formats import renderings
from msbp.analysis.page import page
from msbp.analysis.sources import Sources
from msbp.config import CONF, ROOT

BASE, SBP, MSBP = (f"task=mnist method={method}" for method in ("baseline", "sbp", "msbp"))


@pytest.fixture(scope="module")
def conf():
    return catalogue(Path(CONF))


@pytest.fixture
def sources(record_of, runs_of, settle):
    runs = [record_of(words, seed, test=98 + seed / 10) for words in (BASE, MSBP) for seed in range(3)]
    runs += [record_of(SBP, seed, test=97 - seed / 9) for seed in range(3)]
    return Sources(runs_of(runs), settle)


@pytest.fixture
def text(conf, sources):
    return page([document(config, sources) for config in conf.values()], sources)


def test_the_page_opens_without_a_network(text):
    addresses = re.findall(r"""(?:src|href)=["']([^"']+)""", text)
    assert addresses and all(address.startswith(("data:", "#")) for address in addresses)
    assert "url(" not in text and "@import" not in text and "<script" not in text


def test_every_link_has_its_place_and_every_claim_its_verdict(text, conf):
    places = set(re.findall(r'id="([^"]+)"', text))
    assert {link.removeprefix("#") for link in re.findall(r'href="(#[^"]+)"', text)} <= places
    assert set(conf[CLAIMS]["claims"]) <= places
    assert text.count('<span class="verdict') == 2 * len(conf[CLAIMS]["claims"])


def test_numbers_agree_in_every_format(conf, sources, text):
    made = document(conf[CLAIMS], sources)
    texts = renderings(made)
    cells = made.sheets[1].grids[0].rows[0]
    assert cells[0] == "MNIST: MSBP (γ=0.8)" and cells[3] == "3"
    assert f"| {cells[0]} " in texts["md"] and f"{cells[1]} |" in texts["md"] and f">{cells[1]}<" in text
    assert cells[1] in texts["tex"] and cells[2] in texts["tex"]
    assert float(made.numbers[0]["estimate"]) == pytest.approx(float(cells[1].split()[0]), abs=0.005)


def test_latex_has_no_letter_that_needs_another_engine(conf, sources):
    for config in conf.values():
        tex = renderings(document(config, sources))["tex"]
        assert all(letter.isascii() for letter in re.sub("(?m)^% .*", "", tex)), config["name"]


def test_an_installed_package_has_every_file_that_is_not_python():
    package = ROOT / "src" / "msbp"
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    taken = {path for pattern in config["package-data"]["msbp"] for path in package.glob(pattern)}
    files = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert taken == {path for path in files if path.suffix != ".py"} and taken


def test_what_is_missing_is_said_with_its_command(text):
    assert "Not drawn: nothing was measured yet." in text
    assert "python -m src.bench case=mnist sweep=k" in text
