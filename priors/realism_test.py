"""The program `//priors:realism`, run as users run it."""

import json
import pathlib

import numpy as np
import pytest
from sklearn import datasets

from eval.program_session import Result, run_commands
from priors.families import Family
from priors.generation import ensure_shards
from priors.mixture import PriorConfig
from priors.recipe import ShardConfig
from priors.task import TaskKind
from tools.failure import ExitCode
from tools.tracking import load_mlflow

_FEW = ("--num-tasks", "30", "--parts", "2")
_BAD = {
    "no set": (("EMPTY", "--tables", "TABLES"), ExitCode.SHARD_MISSING, "MANIFEST.json"),
    "no tables": (("SET", "--tables", "EMPTY"), ExitCode.NOT_FOUND, "manifest.json"),
    "few tables": (("SET", "--tables", "TABLES", "--half", "choosing"), ExitCode.TABLE_EMPTY, "--tables"),
    "no peer": (("SET", "--tables", "TABLES", "--peer", "nowhere.npz"), ExitCode.NOT_FOUND, "nowhere.npz"),
    "peer of text": (("SET", "--tables", "TABLES", "--peer", "FILE"), ExitCode.TABLE_FILE, "FILE"),
    "peer of regression": (("NUMBERS", "--tables", "TABLES", "--peer", "peer-3.npz"), ExitCode.BAD_FLAG, "--peer"),
    "few tasks": (("SET", "--tables", "TABLES", "--num-tasks", "3"), ExitCode.BAD_FLAG, "--num-tasks is 3"),
    "no process": (("SET", "--tables", "TABLES", "--workers", "0"), ExitCode.BAD_FLAG, "--workers is 0"),
    "more processes than cores": (
        ("SET", "--tables", "TABLES", "--workers", "100000"),
        ExitCode.TOO_FEW_RESOURCES,
        "--workers 100000 is more than the",
    ),
    "a few tasks for each family": (
        ("SET", "--tables", "TABLES", "--num-tasks", "19"),
        ExitCode.BAD_FLAG,
        "--num-tasks 19 over 2 families is fewer than 10 of each: give 20 or more",
    ),
    "seed of no forest": (
        ("SET", "--tables", "TABLES", "--seed", f"{2**32}"),
        ExitCode.BAD_FLAG,
        "give 2^32−1 or less",
    ),
    "store of no kind": (("SET", "--tables", "TABLES", "--tracking-uri", "files"), ExitCode.BAD_FLAG, "'files'"),
    "no place": (("SET", "--tables", "TABLES", "--out", "FILE/x"), ExitCode.NOT_WRITABLE, "--out"),
    "no argument": ((), ExitCode.BAD_FLAG, "--tables"),
}


def _make(folder: pathlib.Path, *, kind: TaskKind, only: tuple[Family, ...]) -> None:
    prior = PriorConfig(kind=kind, max_rows=64, max_features=6, only=only)
    ensure_shards(ShardConfig(prior=prior, group_size=16, groups_per_part=2), out=folder, num_tasks=64, seed=3)


def _write_tables(folder: pathlib.Path) -> None:
    """Five tables of classes, and five of numbers, from scikit-learn's generators."""
    folder.mkdir()
    entries = []
    for index in range(10):
        kind = "cls" if index < 5 else "reg"
        make = datasets.make_classification if kind == "cls" else datasets.make_regression
        x, y = make(n_samples=80, n_features=5, n_informative=3, random_state=index)
        rows = [",".join(f"{value:.5g}" for value in (*features, label)) for features, label in zip(x, y, strict=True)]
        (folder / f"{index}.csv").write_text("\n".join(["a,b,c,d,e,target", *rows]) + "\n")
        entries.append({"name": f"made{index}", "task": kind, "file": f"{index}.csv"})
    (folder / "manifest.json").write_text(json.dumps(entries))


@pytest.fixture(name="root", scope="module")
def _root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("realism")
    _make(root / "SET", kind=TaskKind.CLASSIFICATION, only=(Family.FOREST, Family.RULES))
    _make(root / "NUMBERS", kind=TaskKind.REGRESSION, only=(Family.FOREST,))
    _write_tables(root / "TABLES")
    (root / "EMPTY").mkdir()
    (root / "FILE").write_text("no tasks")
    generator = np.random.default_rng(0)
    named = {f"x_{i}": generator.normal(size=(64, 3)).astype(np.float32) for i in range(12)}
    named |= {f"y_{i}": generator.integers(0, 2, 64) for i in range(12)}
    np.savez(root / "peer-3.npz", **named)
    return root


@pytest.fixture(name="results", scope="module")
def _results(root: pathlib.Path) -> dict[str, Result]:
    commands = {name: [_place(root, word) for word in words] for name, (words, _, _) in _BAD.items()}
    good = ["SET", "--tables", "TABLES", "--peer", "peer-3.npz", *_FEW]
    commands["good"] = [_place(root, word) for word in good] + ["--json", f"{root}/good.json", "--out", f"{root}/out"]
    numbers = [_place(root, word) for word in ("NUMBERS", "--tables", "TABLES", *_FEW)]
    commands["numbers"] = [*numbers, "--json", f"{root}/numbers.json", "--workers", "2"]
    commands["numbers"] += ["--tracking-uri", "http://127.0.0.1:9"]
    commands = {name: [*words, "--root", f"{root}/runs"] if words else [] for name, words in commands.items()}
    return run_commands("priors.realism", commands)


def _place(root: pathlib.Path, word: str) -> str:
    return str(root / word) if (root / word.split("/")[0]).exists() else word


def test_families_mixture_and_another_prior_are_measured_beside_the_floor(
    root: pathlib.Path, results: dict[str, Result]
) -> None:
    """2.1: proxy A-distance and coverage, per family and for the mixture, beside real tables against real tables."""
    shown = results["good"]
    assert shown.status == 0, shown.err
    record = json.loads((root / "good.json").read_text())
    assert [row["name"] for row in record["rows"]] == ["mixture", "forest", "rules", "peer peer"]
    assert (record["kind"], record["tables"], record["parts"]) == ("classification", 5, 10)
    for row in record["rows"]:
        assert -2 <= row["distance"]["low"] <= row["distance"]["value"] <= row["distance"]["high"] <= 2
        assert f"{row['distance']['value']:.2f}" in shown.out and row["name"] in shown.out
        assert 0 <= row["coverage"]["value"] <= 1
    names = [part["name"] for part in record["rows"][0]["separations"]]
    assert any(name.startswith("landmarkers.") for name in names)
    assert "real against real" in shown.out and "real tables have " in shown.out
    assert record["floor"]["low"] <= record["floor"]["value"] <= record["floor"]["high"]


def test_pictures_are_written_and_named(root: pathlib.Path, results: dict[str, Result]) -> None:
    written = {path.name for path in (root / "out").iterdir()}
    assert written == {
        "classification-plane.svg",
        "classification-distance.svg",
        "classification-mixture-separations.svg",
        "classification-peer-peer-separations.svg",
    }
    assert all(name in results["good"].out for name in written)


@pytest.mark.filterwarnings("ignore:The ``noload`` loader")  # sqlalchemy's word to mlflow
def test_the_page_and_the_store_hold_the_distance_of_every_family(
    root: pathlib.Path, results: dict[str, Result]
) -> None:
    """2.1: the distance is shown per prior family in a report."""
    record = json.loads((root / "good.json").read_text())
    client = load_mlflow().MlflowClient(f"sqlite:///{root}/runs/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("priors").experiment_id])
    assert run.info.status == "FINISHED" and run.data.tags["shards.digest"] == record["shards"]
    folder = root / "runs" / run.info.run_name
    page = (folder / "realism.html").read_text()
    assert f"page: {folder / 'realism.html'}\n" in results["good"].out and page.count("<figure") == 4
    for row in record["rows"]:
        assert run.data.metrics[f"{row['name']}/distance"] == row["distance"]["value"]
        assert f'<th scope="row">{row["name"]}</th>' in page and f"<td>{row['distance']['value']:.2f}</td>" in page
    assert run.data.metrics["real against real/distance"] == record["floor"]["value"]
    stored = {path.name for path in (root / "runs" / "artifacts").rglob("*") if path.is_file()}
    assert stored == {"realism.html", "realism.json"}


def test_an_outage_of_the_store_stops_nothing(root: pathlib.Path, results: dict[str, Result]) -> None:
    """K1: it is said in a line, and the work is done."""
    assert results["numbers"].status == 0 and "does not answer" in results["numbers"].err
    assert "page: " in results["numbers"].out and len(list((root / "runs").glob("realism-*/realism.html"))) == 2


def test_the_kind_of_the_set_chooses_the_tables(root: pathlib.Path, results: dict[str, Result]) -> None:
    """Also: measured by two processes."""
    assert results["numbers"].status == 0, results["numbers"].err
    record = json.loads((root / "numbers.json").read_text())
    assert (record["kind"], record["tables"]) == ("regression", 5)
    names = {part["name"] for part in record["rows"][0]["separations"]}
    assert "target.skew" in names and "landmarkers.naive_bayes" not in names


@pytest.mark.parametrize("name", _BAD)
def test_bad_input_gets_one_line_and_its_exit_code(results: dict[str, Result], name: str) -> None:
    _, code, words = _BAD[name]
    result = results[name]
    assert result.status == code and words in result.err
    assert [line for line in result.err.splitlines() if "error: " in line] and result.out == ""
