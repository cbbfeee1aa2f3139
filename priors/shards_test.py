"""Tests of priors.shards: bytes, hashes, and what damage is called."""

import json
import pathlib
import shutil

import numpy as np
import pyarrow as pa
import pytest

from priors import shards
from priors.group import TaskGroup
from priors.task import TaskKind
from tools.failure import ExitCode, Failure

SOURCE = shards.ShardSource(config={"name": "test"}, seed=3, kind=TaskKind.CLASSIFICATION)
SHAPES = ((6, 3, 4), (8, 1, 4))


def make_group(rows: int, features: int, *, count: int, seed: int = 0) -> TaskGroup:
    """A group of random numbers with a hole."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, rows, features)).astype(np.float32)
    x[0, 0, 0] = np.nan
    return TaskGroup(
        x=x,
        y=(np.arange(rows) % 2 + np.zeros((count, 1))).astype(np.float32),
        column_kinds=generator.integers(0, 3, (count, features)).astype(np.int8),
        level_counts=generator.integers(0, 9, (count, features)).astype(np.int32),
        num_classes=np.full(count, 2, np.int32),
        families=tuple(f"family{i}" for i in range(count)),
        seeds=np.arange(count),
        parameters=tuple(json.dumps({"position": i}) for i in range(count)),
        kind=TaskKind.CLASSIFICATION,
    )


def make_set(folder: pathlib.Path, *, parts: int = 3) -> shards.ShardSet:
    """A finished set of `parts` files with two groups each."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for index in range(parts):
        groups = [make_group(r, c, count=n, seed=10 * index + i) for i, (r, c, n) in enumerate(SHAPES)]
        entries.append(shards.write_part(folder, groups, source=SOURCE, index=index))
    shards.write_set(folder, entries, source=SOURCE)
    return shards.ShardSet.open(folder)


def refusal(folder: pathlib.Path) -> Failure:
    """What opening `folder` complains of."""
    with pytest.raises(Failure) as caught:
        shards.ShardSet.open(folder)
    assert "\n" not in caught.value.message
    return caught.value


def test_groups_come_back_as_they_were_written(tmp_path: pathlib.Path) -> None:
    shard_set = make_set(tmp_path / "set")
    assert [(g.rows, g.features, g.count) for g in shard_set.groups] == list(SHAPES) * 3
    assert shard_set.num_tasks == 24
    for index in range(6):
        rows, features, count = SHAPES[index % 2]
        want, got = make_group(rows, features, count=count, seed=10 * (index // 2) + index % 2), shard_set.group(index)
        for name in ("x", "y", "column_kinds", "level_counts", "num_classes", "seeds"):
            np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
            assert getattr(got, name).dtype == getattr(want, name).dtype
        assert (got.families, got.parameters, got.kind) == (want.families, want.parameters, want.kind)


def test_the_files_are_uncompressed_arrow_with_their_origin_in_the_schema(tmp_path: pathlib.Path) -> None:
    make_set(tmp_path)
    reader = pa.ipc.open_file(str(tmp_path / "part-00001.arrow"))
    metadata = {key.decode(): value.decode() for key, value in reader.schema.metadata.items()}
    assert metadata["format_version"] == "1" and metadata["index"] == "1" and metadata["seed"] == "3"
    assert json.loads(metadata["config"]) == {"name": "test"}
    assert reader.num_record_batches == 2


def test_equal_groups_give_equal_bytes() -> None:
    """D2: the bytes of a part do not depend on when or where they were made."""
    groups = [make_group(6, 3, count=4)]
    first = shards.encode_part(groups, source=SOURCE, index=0)
    assert first == shards.encode_part([make_group(6, 3, count=4)], source=SOURCE, index=0)
    assert first != shards.encode_part(groups, source=SOURCE, index=1)


def test_a_part_of_a_group_writes_only_that_part(tmp_path: pathlib.Path) -> None:
    half = make_group(6, 3, count=4).part(2, 4)
    entry = shards.write_part(tmp_path, [half], source=SOURCE, index=0)
    shards.write_set(tmp_path, [entry], source=SOURCE)
    np.testing.assert_array_equal(shards.ShardSet.open(tmp_path).group(0).x, half.x)


def test_writing_into_a_group_leaves_the_file_alone(tmp_path: pathlib.Path) -> None:
    """D4: a group is owned memory."""
    shard_set = make_set(tmp_path)
    group = shard_set.group(0)
    for name in ("x", "y", "column_kinds", "level_counts", "num_classes", "seeds"):
        getattr(group, name)[...] = 7
    assert shards.ShardSet.open(tmp_path).digest == shard_set.digest
    assert not (shard_set.group(0).x == 7).any()


def test_every_flipped_bit_is_found(tmp_path: pathlib.Path) -> None:
    """D3: 200 of 200 bit flips, in data and in both kinds of JSON."""
    make_set(tmp_path)
    generator = np.random.default_rng(0)
    paths = sorted(path for path in tmp_path.iterdir())
    for trial in range(200):
        path = paths[trial % len(paths)]
        whole = path.read_bytes()
        data = bytearray(whole)
        data[generator.integers(len(data))] ^= 1 << int(generator.integers(8))
        path.write_bytes(data)
        failure = refusal(tmp_path)
        assert path.name in failure.message or path.name.replace(".json", "") in failure.message
        path.write_bytes(whole)
    shards.ShardSet.open(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 0.9999])
@pytest.mark.parametrize("name", ["part-00001.arrow", "part-00001.json", "MANIFEST.json"])
def test_truncation_is_found(tmp_path: pathlib.Path, name: str, share: float) -> None:
    """D3: truncation at 0, 1, 50, 99 and 99.99 %."""
    make_set(tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: min(int(len(data) * share), len(data) - 1)])
    failure = refusal(tmp_path)
    assert failure.code == ExitCode.SHARD_CORRUPT and name in failure.message


def test_damage_is_named_with_both_hashes(tmp_path: pathlib.Path) -> None:
    """D3: the message names file, expected and got."""
    shard_set = make_set(tmp_path)
    path = tmp_path / "part-00002.arrow"
    data = bytearray(path.read_bytes())
    data[1000] ^= 4
    path.write_bytes(data)
    failure = refusal(tmp_path)
    assert failure.code == ExitCode.SHARD_CORRUPT
    assert shard_set.manifest["parts"][2]["sha256"][:16] in failure.message
    assert "expected" in failure.message and "got" in failure.message and str(path) in failure.message


def test_swapped_shards_are_found(tmp_path: pathlib.Path) -> None:
    """D3: two shards that changed places."""
    make_set(tmp_path)
    for suffix in ("arrow", "json"):
        first, second = tmp_path / f"part-00000.{suffix}", tmp_path / f"part-00001.{suffix}"
        kept = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(kept)
    assert refusal(tmp_path).code == ExitCode.SHARD_CORRUPT


@pytest.mark.parametrize("name", ["part-00001.arrow", "part-00001.json", "MANIFEST.json"])
def test_missing_files_are_named(tmp_path: pathlib.Path, name: str) -> None:
    """D3: a missing shard."""
    make_set(tmp_path)
    (tmp_path / name).unlink()
    failure = refusal(tmp_path)
    assert failure.code == ExitCode.SHARD_MISSING and name in failure.message


def test_extra_files_are_named(tmp_path: pathlib.Path) -> None:
    """D3: a shard that the manifest does not know."""
    make_set(tmp_path)
    shutil.copy(tmp_path / "part-00000.arrow", tmp_path / "part-00003.arrow")
    failure = refusal(tmp_path)
    assert failure.code == ExitCode.SHARD_MISSING and "extra file part-00003.arrow" in failure.message


def test_another_format_version_is_refused(tmp_path: pathlib.Path) -> None:
    make_set(tmp_path)
    path = tmp_path / "MANIFEST.json"
    path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 2'))
    failure = refusal(tmp_path)
    assert failure.code == ExitCode.FORMAT_VERSION and "format version 2" in failure.message


def test_a_shard_that_changes_after_opening_is_refused(tmp_path: pathlib.Path) -> None:
    shard_set = make_set(tmp_path)
    (tmp_path / "part-00000.arrow").write_bytes(b"short")
    with pytest.raises(Failure) as caught:
        shard_set.group(0)
    assert caught.value.code == ExitCode.SHARD_CORRUPT


def test_an_entry_counts_only_with_its_data(tmp_path: pathlib.Path) -> None:
    make_set(tmp_path)
    assert shards.read_entry(tmp_path, 0) is not None
    assert shards.read_entry(tmp_path, 7) is None
    (tmp_path / "part-00000.arrow").write_bytes(b"short")
    (tmp_path / "part-00001.json").write_bytes(b"{")
    assert shards.read_entry(tmp_path, 0) is None
    assert shards.read_entry(tmp_path, 1) is None
