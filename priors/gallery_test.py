"""The program `//priors:gallery`, run as users run it."""

import importlib
import json
import pathlib
import re

import pytest

from eval.program_session import Result, run_commands
from priors import shards
from priors.families import Family
from priors.generation import ensure_shards
from priors.mixture import PriorConfig
from priors.recipe import ShardConfig, sample_part
from priors.shards import ShardSet, ShardSource
from priors.task import TaskKind
from tools.failure import ExitCode
from tools.tracking import load_mlflow

_FAMILIES = (Family.FOREST, Family.RULES)
_BAD = {
    "no preset": (("tinny",), ExitCode.UNKNOWN_PRESET, "did you mean tiny?"),
    "no set": (("./EMPTY",), ExitCode.SHARD_MISSING, "MANIFEST.json is absent"),
    "unknown family": (("tiny", "--only", "forrest"), ExitCode.BAD_FLAG, "did you mean forest?"),
    "no tasks": (("tiny", "--num-tasks", "0"), ExitCode.BAD_FLAG, "--num-tasks 0"),
    "no tables": (("tiny", "--tasks-per-family", "0"), ExitCode.BAD_FLAG, "--tasks-per-family 0"),
    "unknown kind": (("tiny", "--kind", "both"), ExitCode.BAD_FLAG, "--kind"),
    "impossible seed": (("tiny", "--seed", "-1"), ExitCode.BAD_FLAG, "--seed -1"),
    "unknown flag": (("tiny", "--familys", "rules"), ExitCode.BAD_FLAG, "--familys"),
    "other kind": (("./SET", "--kind", "classification"), ExitCode.BAD_FLAG, "holds regression tasks"),
    "family that the set lacks": (("./SET", "--only", "small_tree"), ExitCode.BAD_FLAG, "forest, rules"),
    "too many tables": (("./SET", "--tasks-per-family", "19"), ExitCode.OVER_LIMIT, "give 18"),
    "store of no kind": (("./SET", "--tracking-uri", "files"), ExitCode.BAD_FLAG, "'files'"),
    "a folder as a page": (("tiny", "--out", "./EMPTY"), ExitCode.NOT_WRITABLE, "--out"),
    "no place": (("./SET", "--out", "FILE/page.html"), ExitCode.NOT_WRITABLE, "--out"),
}


@pytest.fixture(name="root", scope="module")
def _root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("runs")
    (root / "EMPTY").mkdir()
    (root / "FILE").touch()
    prior = PriorConfig(kind=TaskKind.REGRESSION, only=_FAMILIES)
    config = ShardConfig(prior=prior, group_size=8, groups_per_part=8)
    ensure_shards(config, out=root / "SET", num_tasks=64, seed=6)
    then = ShardSource(config={"version": 1}, seed=6, kind=prior.kind)
    entry = shards.write_part(root / "OLD", sample_part(config, seed=6, index=0), source=then, index=0)
    shards.write_set(root / "OLD", [entry], source=then)
    return root


@pytest.fixture(name="results", scope="module")
def _results(root: pathlib.Path) -> dict[str, Result]:
    """Sets with their stores, a preset without one, then everything that cannot be."""
    small = ("--only", "rules", "--tasks-per-family", "1", "--num-tasks", "128", "--kind", "regression")
    commands: dict[str, list[object]] = {
        "set": [root / "SET", "--tasks-per-family", "1", "--root", root],
        "older": [root / "OLD", "--tasks-per-family", "1", "--only", "rules", "--root", root / "then"],
        "preset": ["tiny", *small, "--root", root / "away", "--tracking-uri", "http://127.0.0.1:9"],
    }
    for name, (words, _, _) in _BAD.items():
        placed = [str(root / word) if word.startswith(("./", "FILE/")) else word for word in words]
        commands[name] = [*placed, "--root", root]
    return run_commands("priors.gallery", commands)


def _page(root: pathlib.Path) -> pathlib.Path:
    (page,) = root.glob("gallery-*/gallery.html")
    return page


def test_the_page_shows_each_family_with_the_words_of_its_file(root: pathlib.Path, results: dict[str, Result]) -> None:
    done, page = results["set"], _page(root)
    assert done.status == 0 and f"gallery: {page}\n" in done.out and f"//reports:ui -- --root {root}" in done.out
    text = page.read_text()
    for family in _FAMILIES:
        words = importlib.import_module(f"priors.{family}").__doc__ or ""
        assert f">{family}</h3>" in text and words.split("\n")[0] in text
    assert text.count("<figure") == 3 + 2 * len(_FAMILIES)


def test_the_page_is_one_small_file_without_address_or_script(root: pathlib.Path, results: dict[str, Result]) -> None:
    """K3: no external URL, < 5 MB, readable without JavaScript."""
    data = _page(root).read_bytes()
    text = re.sub(r"data:image/png;base64,[^\"]*", "", data.decode())
    assert results["set"].status == 0 and len(data) < 1_500_000 and "<script" not in text
    assert "//" not in text.replace("//priors:gallery", "")


@pytest.mark.filterwarnings("ignore:The ``noload`` loader")  # sqlalchemy's word to mlflow
def test_the_store_holds_page_digest_config_and_figures_of_each_family(
    root: pathlib.Path, results: dict[str, Result]
) -> None:
    shard_set = ShardSet.open(root / "SET")
    client = load_mlflow().MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("priors")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (
        results["set"].status == 0
        and run.info.status == "FINISHED"
        and run.data.tags["shards.digest"] == shard_set.digest
    )
    assert run.data.params["seed"] == "6" and run.data.params["config.prior.max_rows"] == "256"
    (data,) = run.inputs.dataset_inputs
    assert json.loads(data.dataset.source)["sha256"] == shard_set.digest and data.dataset.name == "prior-regression"
    counts = [group.families for group in map(shard_set.group, range(len(shard_set.groups)))]
    for family in _FAMILIES:
        number = sum(families.count(family) for families in counts)
        assert run.data.metrics[f"{family}/tasks"] == number > 0
        assert 0 <= run.data.metrics[f"{family}/rejected_share"] < 1
    stored = {path.name for path in (root / "artifacts").rglob("*") if path.is_file()}
    assert stored == {"gallery.html", "properties.json"}


def test_a_preset_makes_a_set_of_its_own_and_needs_no_tracking_server(
    root: pathlib.Path, results: dict[str, Result]
) -> None:
    """K1: an outage is said in a line, and the work is done."""
    done, text = results["preset"], _page(root / "away").read_text()
    assert done.status == 0 and "does not answer" in done.err
    assert "<h1>tiny, regression</h1>" in text and ">rules</h3>" in text and ">forest</h3>" not in text
    (folder,) = (root / "away" / "shards").iterdir()
    made = ShardSet.open(folder)
    families = {name for index in range(len(made.groups)) for name in made.group(index).families}
    assert made.num_tasks == 128 and made.digest in text and families == {"rules"}


def test_a_set_of_another_version_is_shown_without_planes_and_says_why(
    root: pathlib.Path, results: dict[str, Result]
) -> None:
    text = _page(root / "then").read_text()
    assert results["older"].status == 0 and "drawn by version 1 of the prior" in text
    assert "tasks of two features, made" not in text and text.count("<figure") == 2 + 1


@pytest.mark.parametrize("name", _BAD)
def test_bad_input_gets_one_line_and_its_exit_code(results: dict[str, Result], name: str) -> None:
    _, code, words = _BAD[name]
    done = results[name]
    said = [line for line in done.err.splitlines() if not line.startswith("read: ")]
    assert done.status == code and done.out == "" and len(said) == 1
    assert said[0].startswith("error: ") and words in said[0]
