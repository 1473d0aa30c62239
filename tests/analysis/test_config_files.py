"""Files of conf that were edited by hand: one line names file and key."""

import shutil
from copy import deepcopy
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from msbp.analysis.settings import catalogue, chosen
from msbp.config import CONF
from msbp.config_files import MODELS, Block, Question, RowOfTable, checked, read

ROW = "blocks.0.rows.0"
WRONG = {  # by file: the key, its value, and what the message says besides the file
    "table/main": [
        ("sedes", 3, "there is no key sedes; there are _target_, against"), ("seeds", "five", "seeds: "),
        ("seeds", -5, "seeds: "), ("seeds", 10**9, "seeds: "), ("seeds", True, "seeds: "),
        ("name", "", "name: "),
        ("caption", None, "caption: "), ("columns", "bp_s", "columns: "),
        ("columns", ["bpp_s"], "columns.0: "),
        ("blocks.0.task", "../method/sbp", "blocks.0.task: a name has letters, digits, _ and - alone, got "),
        (f"{ROW}.overrides", ["seed=3"], "'seed=3' is no override of a row: seeds are given by the key "),
        (f"{ROW}.overrides", ["+task=pos"], "'+task=pos' is no override of a row: tasks are given by the"),
        ("blocks", [], "blocks: "), ("blocks.0.tsak", "x", "blocks.0.tsak: "),
        ("blocks.0.title", 5, "title: "),
        ("blocks.0.rows", [], "blocks.0.rows: "), (f"{ROW}.overide", [], f"{ROW}.overide: "),
        (f"{ROW}.label", "+ SBP (r=0.04)", "blocks.0: '+ SBP (r=0.04)' is there twice"),
        ("blocks.0.title", "Parsing", "'Parsing' is there twice"),
        (f"{ROW}.paper.bp_s", 0, f"{ROW}.paper.bp_s: "),
        (f"{ROW}.paper.bp_s", "fast", f"{ROW}.paper.bp_s: "),
        (f"{ROW}.overrides", [5], f"{ROW}.overrides.0: "),
        (f"{ROW}.overrides", ["method"], "an override is KEY=VALUE, got 'method'"),
        ("_target_", "msbp.analysis.nope", "_target_: there is no function msbp.analysis.nope"),
    ],
    "table/memory_controls": [
        ("against", ["SPB"], "there is no row 'SPB' of the block 'MNIST, k = 5'"),
        ("questions.0.less", [], "questions.0.less: "), ("questions.0.more", ["x"], "there is no row 'x'"),
        ("questions.0.margin", -1, "questions.0.margin: "),
        ("questions.0.low", None, "questions.0: low or high must be there"),
        ("questions.0.high", -1, "questions.0: low or high must be there, and low not above high"),
        ("questions.0.sentence", None, "questions.0.sentence: Field required"),
    ],
    "table/t_test": [("paper", {5: [0]}, "paper.5.0: "), ("critical", "x", "critical: ")],
    "table/headline": [("lines.0.table", "../figure/angle", "lines.0.table: a name has ")],
    "figure/accuracy": [("grid", "../table/zz", "grid: a name has letters, digits, _ and - alone, got")],
    "figure/bp_time": [("benchmarks", [{"case": "a b", "sweep": "k"}], "benchmarks.0.case: a name has "),
                       ("benchmarks", [{"case": "mnist", "swep": "k"}], "benchmarks.0.sweep: "),
                       ("benchmarks", [], "benchmarks: ")],
    "figure/angle": [("shows", "angels", "shows: ")],
    "grid/gamma": [("gamma", [9], "gamma.0: "), ("sparse", {"five": "method.r=1"}, "sparse.five"),
                   ("baseline", "method=baseline", "baseline: "), ("gama", [], "gama: ")],
    "claim/forward": [
        ("unit", "percents", "unit: "), ("margin", -1, "margin."), ("order", "two", "order: "),
        ("reason", None, "reason: "), ("low", 0.5, "low not above high"),
        ("margin", None, "margin: Field required"),
        ("low", -1, "must be above -1 in percent"),
        ("column", "forward", "column: "), ("than", "dense", "than: "), ("than", "msbp", "different methods"),
        ("tables", "main", "tables: "),
        ("_target_", "msbp.analysis.claim_rules.time", "_target_: there is no function"),
        ("hgih", 1, "no key hgih"), ("margin", "score", "a named one has its own"),
    ],
    "claim/angle": [("margin", 1.0, "reason: a margin that is a number needs one")],
    "margin/score": [("margin", -1, "margin: "), ("reason", None, "reason: Field required")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "key", "value", "message"),
    [(file, *each) for file in WRONG for each in WRONG[file]],
    ids=lambda value: str(value)[:30],
)
def test_a_wrong_key_of_a_file_is_named(file, key, value, message):
    config = OmegaConf.load(Path(CONF, f"{file}.yaml"))
    OmegaConf.update(config, key, value, merge=False, force_add=True)
    with pytest.raises(ValueError) as error:
        checked(config, file.split("/")[0], "x.yaml")
    text = str(error.value)
    assert text.startswith("x.yaml: ") and message in text and "\n" not in text


def test_a_claim_needs_an_edge_as_a_question_does():
    config = OmegaConf.load(Path(CONF, "claim/forward.yaml"))
    config.low = config.high = None
    with pytest.raises(ValueError, match=r"^x\.yaml: ClaimFile: low or high must be there"):
        checked(config, "claim", "x.yaml")


@pytest.mark.parametrize("file", ["table/memory_controls", "table/main", "figure/angle", "claim/faster"])
def test_a_key_without_a_value_is_as_good_as_missing_at_any_depth(file):
    group, bare = file.split("/")[0], OmegaConf.load(Path(CONF, f"{file}.yaml"))
    filled = OmegaConf.to_container(bare)
    blocks = filled.get("blocks", [])
    parts = [(MODELS[group], filled), *((Block, block) for block in blocks)]
    parts += [(RowOfTable, row) for block in blocks for row in block["rows"]]
    parts += [(Question, question) for question in filled.get("questions", [])]
    for model, part in parts:
        optional = {each.alias or key for key, each in model.model_fields.items() if not each.is_required()}
        part |= dict.fromkeys(optional - part.keys())
    assert checked(OmegaConf.create(filled), group, "x.yaml") == checked(bare, group, "x.yaml")


@pytest.mark.parametrize(
    "text", ["", "- 1\n", "name: [", "name: a\nname: b\n", "name: ${nope}\n", "5\n", "\x00"]
)
def test_a_file_that_is_no_table_is_named(text, tmp_path):
    path = tmp_path / "table" / "x.yaml"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ValueError, match=f"^{path}: "):
        read(path)


def test_a_key_that_a_function_needs_and_the_file_lacks_is_named():
    config = OmegaConf.load(Path(CONF, "figure/accuracy.yaml"))
    file = checked(OmegaConf.masked_copy(config, ["name", "caption", "_target_"]), "figure", "x.yaml")
    with pytest.raises(ValueError, match=r"^x\.yaml: grid is missing$"):
        file["grid"]


def test_a_function_elsewhere_may_read_keys_of_its_own():
    config = OmegaConf.create({"_target_": "shutil.copy", "name": "x", "caption": "", "own": 5})
    assert checked(config, "table", "x.yaml")["own"] == 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A conf with few files."""
    conf = tmp_path_factory.mktemp("conf")
    for file in (
        "table/main",
        "table/headline",
        "table/extreme",
        "grid/gamma",
        "figure/deviation",
        "claim/sbp_varies",
        "table/t_test",
        "claim/better_than_sbp",
        "margin/deviation",
        "margin/score",
    ):
        (conf / file).parent.mkdir(exist_ok=True)
        config = OmegaConf.load(Path(CONF, f"{file}.yaml"))
        if file == "table/headline":
            config.lines = config.lines[:1]
        if file == "claim/better_than_sbp":
            config.tables = ["main"]
        OmegaConf.save(config, conf / f"{file}.yaml")
    return conf


@pytest.mark.parametrize(
    ("file", "key", "value", "message"),
    [
        ("table/headline", "lines.0.table", "mian", "there is no file"),
        ("table/headline", "lines.0.table", "headline", "blocks is missing"),
        ("table/headline", "lines.0.block", "MNITS", "there is no block 'MNITS' in"),
        ("figure/deviation", "grid", "gama", "there is no file"),
        ("claim/sbp_varies", "margin", "deviance", "there is no file"),
        ("claim/sbp_varies", "figures", ["deviance"], "figures: deviance is no table or figure; there are "),
        ("claim/sbp_varies", "paper_table", "x", "paper_table: x is no table with numbers in paper"),
        ("claim/sbp_varies", "paper_table", "main", "paper_table: main is no table with numbers in paper"),
        (
            "claim/better_than_sbp",
            "tables",
            ["deviation"],
            "tables: deviation is no table with rows; ",
        ),
        (
            "claim/better_than_sbp",
            "tables",
            ["main", "t_test"],
            "tables: t_test is no table with rows; ",
        ),
        ("table/main", "name", "extreme", "name must be that of the file, main, got extreme"),
    ],
)
def test_what_a_file_names_of_others_must_be_there(folder, tmp_path, file, key, value, message):
    conf = shutil.copytree(folder, tmp_path / "conf")
    assert list(catalogue(conf)) == ["extreme", "headline", "main", "t_test", "deviation", "claims"]
    config = OmegaConf.load(conf / f"{file}.yaml")
    OmegaConf.update(config, key, value, merge=False)
    OmegaConf.save(config, conf / f"{file}.yaml")
    with pytest.raises(ValueError) as error:
        catalogue(conf)
    text = str(error.value)
    assert f"{file}.yaml: " in text.replace("table/headline", file) and message in text


def test_what_the_command_line_changes_of_a_table_is_checked_alike():
    config = OmegaConf.create({"table": deepcopy(OmegaConf.load(Path(CONF, "table/main.yaml")))})
    assert chosen(config, Path(CONF))[0]["name"] == "main"
    config.table.seeds = 0
    with pytest.raises(ValueError, match="^table=main: seeds: "):
        chosen(config, Path(CONF))
