"""The program `//priors:describe`, run as users run it."""

import json
import pathlib

import pytest

from eval.program_session import Result, run_commands
from priors import shards
from priors.generation import ensure_shards
from priors.mixture import PriorConfig
from priors.properties import summarise, tabulate
from priors.recipe import ShardConfig
from priors.shards import ShardSet
from tools.failure import ExitCode

_BAD = {
    "no set": (("EMPTY",), ExitCode.SHARD_MISSING, "MANIFEST.json is absent"),
    "no folder": (("nowhere",), ExitCode.SHARD_MISSING, "nowhere"),
    "no argument": ((), ExitCode.BAD_FLAG, "Folder or URI"),
    "unknown flag": (("SET", "--jsn", "x"), ExitCode.BAD_FLAG, "--jsn"),
    "no place for JSON": (("SET", "--json", "FILE/x.json"), ExitCode.NOT_WRITABLE, "--json"),
    "folder for JSON": (("SET", "--json", "EMPTY"), ExitCode.NOT_WRITABLE, "--json"),
    "damaged": (("DAMAGED",), ExitCode.SHARD_CORRUPT, "part-00000.arrow"),
}


def _make(folder: pathlib.Path) -> ShardSet:
    config = ShardConfig(prior=PriorConfig(max_rows=64, max_features=4), group_size=8, groups_per_part=4)
    return ensure_shards(config, out=folder, num_tasks=32, seed=3)


@pytest.fixture(name="root", scope="module")
def _root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("described")
    _make(root / "SET")
    _make(root / "DAMAGED")
    with (root / "DAMAGED" / "part-00000.arrow").open("r+b") as file:
        file.seek(700)
        file.write(b"\xff\x00\xff")
    (root / "EMPTY").mkdir()
    (root / "FILE").touch()
    return root


@pytest.fixture(name="results", scope="module")
def _results(root: pathlib.Path) -> dict[str, Result]:
    commands = {name: [_place(root, word) for word in words] for name, (words, _, _) in _BAD.items()}
    return run_commands("priors.describe", commands | {"good": [root / "SET", "--json", root / "found.json"]})


def _place(root: pathlib.Path, word: str) -> str:
    return str(root / word) if (root / word.split("/")[0]).exists() else word


def test_table_and_json_say_what_the_set_holds(root: pathlib.Path, results: dict[str, Result]) -> None:
    shard_set = shards.ShardSet.open(root / "SET")
    groups = (shard_set.group(index) for index in range(len(shard_set.groups)))
    expected = summarise(tabulate(groups), shard_set=shard_set)
    assert json.loads((root / "found.json").read_text()) == json.loads(json.dumps(expected.to_json()))
    shown = results["good"]
    assert shown.status == 0 and f"digest {shard_set.digest}" in shown.out and "seed 3" in shown.out
    assert f"{shard_set.num_bytes:,} bytes" in shown.out and "32 classification tasks" in shown.out
    for part in (*expected.families, expected.whole):
        (line,) = [line for line in shown.out.split("Realised")[0].splitlines() if line.startswith(f" {part.name} ")]
        assert f" {part.tasks} " in line and f" {part.share:.1%} " in line


@pytest.mark.parametrize("name", _BAD)
def test_bad_input_gets_one_line_and_its_exit_code(results: dict[str, Result], name: str) -> None:
    _, code, words = _BAD[name]
    result = results[name]
    assert result.status == code and words in result.err
    assert result.err.startswith("error: ") and result.err.count("\n") == 1 and result.out == ""
