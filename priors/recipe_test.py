"""Tests of priors.recipe: sets that are made again from a description, whole or in ranges."""

import dataclasses
import functools
import json
import pathlib
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence

import numpy as np
import pytest
import torch

from priors import recipe, shards
from priors.families import Family
from priors.generation import Order, ensure_shards, make_range, make_set, run_here
from priors.mixture import VERSION, PriorConfig
from priors.recipe import Recipe, ShardConfig, machine, read_manifest_of, recipe_of, sample_part
from priors.task import TaskKind
from tools import files, stores
from tools.failure import ExitCode, Failure

PRIOR = PriorConfig(min_rows=32, max_rows=64, max_features=4, kind=TaskKind.REGRESSION, only=(Family.FOREST,))
CONFIG = ShardConfig(prior=PRIOR, group_size=4, groups_per_part=2)
RECIPE = Recipe(config=CONFIG, seed=7, num_parts=3)
HERE = functools.partial(run_here, workers=1)


def hashes(folder: pathlib.Path) -> dict[str, str]:
    """File name → sha256 of everything in a folder."""
    return {path.name: files.sha256_file(path) for path in sorted(folder.iterdir())}


def refusal(call: Callable[[], object]) -> Failure:
    """The one line that a call is refused with."""
    with pytest.raises(Failure) as caught:
        call()
    assert "\n" not in caught.value.message
    return caught.value


@pytest.fixture(name="original", scope="module")
def _original(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A finished set."""
    folder = tmp_path_factory.mktemp("original")
    ensure_shards(CONFIG, out=folder, num_tasks=24, seed=7)
    return folder


def test_a_manifest_alone_gives_the_recipe_and_the_recipe_the_bytes(
    tmp_path: pathlib.Path, original: pathlib.Path
) -> None:
    """D2: config, seed and range are all that the bytes depend on."""
    copy = tmp_path / "mailed.json"
    shutil.copy(original / "MANIFEST.json", copy)
    for location in (str(original), str(copy), f"file://{copy}", f"file://{original}"):
        manifest = read_manifest_of(location)
        assert recipe_of(manifest, where=location) == RECIPE
    like = {entry["index"]: entry for entry in manifest["parts"]}
    make_set(Order(recipe=RECIPE, out=tmp_path / "again", run=HERE, like=like))
    assert hashes(tmp_path / "again") == hashes(original)


def test_other_seeds_and_configs_make_other_bytes(tmp_path: pathlib.Path, original: pathlib.Path) -> None:
    kind = dataclasses.replace(CONFIG, prior=dataclasses.replace(PRIOR, kind=TaskKind.CLASSIFICATION))
    ensure_shards(CONFIG, out=tmp_path / "seed", num_tasks=8, seed=8)
    ensure_shards(kind, out=tmp_path / "kind", num_tasks=8, seed=7)
    folders = (tmp_path / "seed", tmp_path / "kind", original)
    assert len({hashes(folder)["part-00000.arrow"] for folder in folders}) == 3


def test_sets_are_rounded_up_to_whole_files() -> None:
    assert (CONFIG.rounded(1), CONFIG.rounded(20), CONFIG.rounded(24)) == (8, 24, 24)


def test_ranges_made_apart_are_completed_together(tmp_path: pathlib.Path, original: pathlib.Path) -> None:
    """Two clusters make a range each; where their files lie together, the whole order only adds the manifest."""
    for first, count in ((0, 1), (1, 2)):
        part = dataclasses.replace(RECIPE, first_part=first, num_parts=count)
        folder = tmp_path / str(first)
        assert make_range(Order(recipe=part, out=folder, run=HERE)) > 0
        assert len(list(folder.iterdir())) == 2 * count
    for path in (tmp_path / "1").iterdir():
        path.replace(tmp_path / "0" / path.name)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "0").iterdir()}
    make_set(Order(recipe=RECIPE, out=tmp_path / "0", run=HERE))
    assert hashes(tmp_path / "0") == hashes(original)
    assert all((tmp_path / "0" / name).stat().st_mtime_ns == stamp for name, stamp in before.items())


def test_a_range_leaves_the_parts_of_others_alone(tmp_path: pathlib.Path, original: pathlib.Path) -> None:
    folder = tmp_path / "set"
    shutil.copytree(original, folder)
    make_range(Order(recipe=dataclasses.replace(RECIPE, first_part=0, num_parts=1), out=folder, run=HERE))
    assert hashes(folder) == hashes(original)
    make_range(Order(recipe=dataclasses.replace(RECIPE, first_part=4, num_parts=1), out=folder, run=HERE))
    assert "MANIFEST.json" not in hashes(folder)  # it would not hold all that lies there
    assert shards.claimed_entries(shards.as_store(folder)).keys() == {0, 1, 2, 4}


def test_a_range_is_never_begun_anew(tmp_path: pathlib.Path, original: pathlib.Path) -> None:
    shutil.copytree(original, tmp_path / "set")
    part = dataclasses.replace(RECIPE, first_part=1, num_parts=1)
    failure = refusal(lambda: make_range(Order(recipe=part, out=tmp_path / "set", run=HERE, anew=True)))
    assert failure.code == ExitCode.BAD_FLAG and hashes(tmp_path / "set") == hashes(original)
    assert "--anew with --first-part 1" in failure.message and "leave --anew out" in failure.message


def test_what_killed_processes_began_beyond_a_set_is_removed_before_it_is_made(
    tmp_path: pathlib.Path, original: pathlib.Path
) -> None:
    """D1: killed between data and entry, then asked for fewer tasks. A range leaves the files of others alone."""
    names = ("part-00003.arrow", "part-00004.json", "part-00005.arrow")
    for name in names:
        (tmp_path / name).write_bytes(b"begun")
    make_range(Order(recipe=dataclasses.replace(RECIPE, num_parts=1), out=tmp_path, run=HERE))
    assert hashes(tmp_path).keys() > set(names)
    make_set(Order(recipe=RECIPE, out=tmp_path, run=HERE))
    assert hashes(tmp_path) == hashes(original)


def test_a_finished_set_that_has_lost_an_entry_is_not_made_smaller(
    tmp_path: pathlib.Path, original: pathlib.Path
) -> None:
    shutil.copytree(original, tmp_path / "set")
    (tmp_path / "set" / "part-00002.json").unlink()
    smaller = dataclasses.replace(RECIPE, num_parts=2)
    failure = refusal(lambda: make_set(Order(recipe=smaller, out=tmp_path / "set", run=HERE)))
    assert failure.code == ExitCode.CONFIG_MISMATCH and "16 tasks, fewer than the 24" in failure.message
    make_set(Order(recipe=RECIPE, out=tmp_path / "set", run=HERE))
    assert hashes(tmp_path / "set") == hashes(original)


def test_what_killed_processes_leave_during_a_run_is_removed(tmp_path: pathlib.Path, original: pathlib.Path) -> None:
    """D1: a worker dies while it writes, another makes its part."""

    def run(recipe: Recipe, store: stores.Store, *, indices: Sequence[int]) -> Iterator[shards.Entry]:
        (tmp_path / ".part-00001.arrow.4194305.0123abcd.tmp").touch()
        yield from HERE(recipe, store, indices=indices)

    make_set(Order(recipe=RECIPE, out=tmp_path, run=run))
    assert hashes(tmp_path) == hashes(original)


def test_a_part_that_comes_out_otherwise_is_named_with_both_hashes_and_machines(
    tmp_path: pathlib.Path, original: pathlib.Path
) -> None:
    like = {entry["index"]: entry for entry in read_manifest_of(str(original))["parts"]}
    found = like[1]["sha256"]
    like[1] = {**like[1], "sha256": "ab" * 32, "machine": "SVE, torch 9.9"}

    def run_all_first(
        recipe: Recipe, store: stores.Store, *, indices: Sequence[int]
    ) -> Generator[shards.Entry, None, None]:
        yield from list(HERE(recipe, store, indices=indices))

    like[2] = {**like[2], "sha256": "cd" * 32}
    failure = refusal(lambda: make_set(Order(recipe=RECIPE, out=tmp_path, run=run_all_first, like=like)))
    assert failure.code == ExitCode.CONFIG_MISMATCH and "run the same command again on" in failure.message
    words = (f"{tmp_path}/part-00001.arrow", "ab" * 8, "SVE, torch 9.9", found[:16], machine())
    assert [word for word in words if word not in failure.message] == []
    assert hashes(tmp_path).keys() == {"part-00000.arrow", "part-00000.json"}  # none that differs stays


@pytest.mark.parametrize("uri", [False, True])
def test_a_repetition_goes_on_where_another_machine_left_parts(
    tmp_path: pathlib.Path, original: pathlib.Path, uri: bool
) -> None:
    """D2: parts that differ from the manifest are made again; a finished set that differs is not touched."""
    like = {entry["index"]: entry for entry in read_manifest_of(str(original))["parts"]}
    for index in (0, 1):
        groups = sample_part(CONFIG, seed=7, index=index)[:1]
        shards.write_part(tmp_path, groups * 2, source=RECIPE.source, index=index, machine="other")
    order = Order(recipe=RECIPE, out=f"file://{tmp_path}" if uri else tmp_path, run=HERE, like=like)
    make_range(dataclasses.replace(order, recipe=dataclasses.replace(RECIPE, num_parts=1)))
    assert len([name for name, value in hashes(original).items() if hashes(tmp_path).get(name) == value]) == 2
    make_set(order)
    assert hashes(tmp_path) == hashes(original)
    other = dataclasses.replace(order, like={**like, 1: {**like[1], "sha256": "ab" * 32}})
    failure = refusal(lambda: make_set(other))
    assert failure.code == ExitCode.CONFIG_MISMATCH and "--anew" in failure.message
    assert "finished set, whose part-00001.arrow is not" in failure.message and hashes(tmp_path) == hashes(original)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"version": VERSION + 1}, f"version {VERSION + 1} of the prior"),
        ({"colour": "red"}, "no field 'colour'"),
        ({"group_size": 3}, "another source"),
    ],
)
def test_a_set_of_another_prior_cannot_be_made_again(change: dict[str, object], word: str) -> None:
    config = {**RECIPE.source.config, **change}
    manifest = {"config": config, "seed": 7, "parts": [], "source": RECIPE.source.digest()}
    failure = refusal(lambda: recipe_of(manifest, where="--like set"))
    assert failure.code == ExitCode.CONFIG_MISMATCH
    assert word in failure.message and failure.message.startswith("--like set ")


def test_a_manifest_that_is_absent_or_damaged_is_named(tmp_path: pathlib.Path, original: pathlib.Path) -> None:
    assert refusal(lambda: read_manifest_of(str(tmp_path / "none.json"))).code == ExitCode.NOT_FOUND
    assert refusal(lambda: read_manifest_of(str(tmp_path))).code == ExitCode.SHARD_MISSING
    manifest = json.loads((original / "MANIFEST.json").read_bytes())
    (tmp_path / "m.json").write_text(json.dumps({**manifest, "seed": 8}))
    failure = refusal(lambda: read_manifest_of(str(tmp_path / "m.json")))
    assert failure.code == ExitCode.SHARD_CORRUPT and "m.json" in failure.message


def test_the_machine_names_what_floats_depend_on() -> None:
    assert machine() == f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__.split('+')[0]}"


def test_parts_are_sampled_on_one_thread_and_the_setting_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    draw = recipe.draw_group
    monkeypatch.setattr(
        recipe, "draw_group", lambda *args, **rest: threads.append(torch.get_num_threads()) or draw(*args, **rest)
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = sample_part(CONFIG, seed=1, index=0)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    second = sample_part(CONFIG, seed=1, index=0)
    assert threads == [1] * 4
    np.testing.assert_array_equal(first[0].x, second[0].x)
