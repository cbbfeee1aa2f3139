"""Tests of priors.shards: bytes, hashes, and what damage is called."""

import json
import pathlib
import shutil
import time

import numpy as np
import pyarrow as pa
import pytest

from priors import shards
from priors.group import TaskGroup
from priors.task import TaskKind
from tools import stores
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


def refusal(folder: shards.Location) -> Failure:
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
    assert metadata["format_version"] == "2" and metadata["index"] == "1" and metadata["seed"] == "3"
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
    path.write_text(path.read_text().replace('"format_version": 2', '"format_version": 1'))
    failure = refusal(tmp_path)
    assert failure.code == ExitCode.FORMAT_VERSION and "format version 1" in failure.message
    assert "--anew" in failure.message


def test_a_shard_that_changes_after_opening_is_refused(tmp_path: pathlib.Path) -> None:
    shard_set = make_set(tmp_path)
    (tmp_path / "part-00000.arrow").write_bytes(b"short")
    with pytest.raises(Failure) as caught:
        shard_set.group(0)
    assert caught.value.code == ExitCode.SHARD_CORRUPT


def test_an_entry_counts_only_with_its_data(tmp_path: pathlib.Path) -> None:
    make_set(tmp_path)
    store = shards.as_store(tmp_path)
    (tmp_path / "part-00000.arrow").write_bytes(b"short")
    (tmp_path / "part-00001.json").write_bytes(b"{")
    entries = shards.claimed_entries(store)
    assert list(entries) == [0, 2]
    assert [shards.is_whole(store, entry) for entry in entries.values()] == [False, True]
    data = bytearray((tmp_path / "part-00002.arrow").read_bytes())
    data[900] ^= 1
    (tmp_path / "part-00002.arrow").write_bytes(data)
    assert not shards.is_whole(store, entries[2])


def test_no_flipped_bit_of_an_entry_is_believed(tmp_path: pathlib.Path) -> None:
    """D3: shapes and counts stand in the entry alone, and the manifest is made of entries."""
    make_set(tmp_path, parts=1)
    path, store = tmp_path / "part-00000.json", shards.as_store(tmp_path)
    whole = path.read_bytes()
    (entry,) = shards.claimed_entries(store).values()
    believed = 0
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        claims = list(shards.claimed_entries(store).values())
        believed += sum(claim["format_version"] == shards.FORMAT_VERSION for claim in claims)
    assert believed == 0
    path.write_bytes(whole)
    assert list(shards.claimed_entries(store).values()) == [entry]


def test_a_set_is_read_and_verified_through_a_uri(tmp_path: pathlib.Path) -> None:
    """D3 and D4 hold for any store."""
    make_set(tmp_path)
    shard_set = shards.ShardSet.open(f"file://{tmp_path}", threads=2)
    local = shards.ShardSet.open(tmp_path)
    assert shard_set.digest == local.digest and shard_set.folder == f"file://{tmp_path}"
    for index in range(6):
        group = shard_set.group(index)
        np.testing.assert_array_equal(group.x, local.group(index).x)
        group.x[...] = 7
    assert not (shard_set.group(0).x == 7).any()
    for name in sorted(path.name for path in tmp_path.iterdir()):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[:-1])
        failure = refusal(f"file://{tmp_path}")
        assert failure.code == ExitCode.SHARD_CORRUPT and name in failure.message
        (tmp_path / name).unlink()
        failure = refusal(f"file://{tmp_path}")
        assert failure.code == ExitCode.SHARD_MISSING and name in failure.message
        (tmp_path / name).write_bytes(whole)


def test_a_manifest_sums_what_was_drawn_and_rejected(tmp_path: pathlib.Path) -> None:
    counts = [({"a": 3, "b": 1}, {"a": 0, "b": 1}), ({"a": 2, "c": 4}, {"a": 2, "c": 0})]
    for index, (drawn, rejected) in enumerate(counts):
        group = make_group(6, 3, count=2, seed=index)
        shards.write_part(tmp_path, [group], source=SOURCE, index=index, drawn=drawn, rejected=rejected)
    entries = list(shards.claimed_entries(shards.as_store(tmp_path)).values())
    shards.write_set(tmp_path, entries, source=SOURCE)
    manifest = shards.ShardSet.open(tmp_path).manifest
    assert manifest["drawn"] == {"a": 5, "b": 1, "c": 4} and manifest["rejected"] == {"a": 2, "b": 1, "c": 0}
    assert manifest["parts"][1]["drawn"] == {"a": 2, "c": 4}


def test_the_digest_names_the_tasks_wherever_they_were_made(tmp_path: pathlib.Path) -> None:
    sets = []
    for machine in ("AVX2", "AVX512"):
        folder = tmp_path / machine
        entry = shards.write_part(folder, [make_group(6, 3, count=2)], source=SOURCE, index=0, machine=machine)
        shards.write_set(folder, [entry], source=SOURCE)
        sets.append(shards.ShardSet.open(folder))
    one, other = (found.manifest for found in sets)
    assert one["digest"] == other["digest"] and one["checksum"] != other["checksum"]
    assert other["parts"][0]["machine"] == "AVX512"
    path = tmp_path / "AVX2" / "MANIFEST.json"
    path.write_text(path.read_text().replace("AVX2", "AVX9"))
    assert refusal(tmp_path / "AVX2").code == ExitCode.SHARD_CORRUPT


def test_a_file_is_hashed_once_in_a_process_and_again_when_it_changed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_set(tmp_path)
    hashed: list[str] = []
    sha256, now = stores.sha256, time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10)  # the files have been there for a while
    monkeypatch.setattr(
        stores, "sha256", lambda store, name, **rest: hashed.append(name) or sha256(store, name, **rest)
    )
    for _ in range(3):
        shards.ShardSet.open(tmp_path)
    assert hashed == [f"part-0000{index}.arrow" for index in range(3)]
    assert not hashed.clear() and shards.ShardSet.open(tmp_path, verified=range(3)) and not hashed
    data = bytearray((tmp_path / "part-00001.arrow").read_bytes())
    data[1000] ^= 1
    (tmp_path / "part-00001.arrow").write_bytes(data)
    assert "part-00001.arrow is damaged" in refusal(tmp_path).message


def test_files_of_others_are_no_shards(tmp_path: pathlib.Path) -> None:
    make_set(tmp_path)
    (tmp_path / "gallery.html").touch()
    assert len(shards.our_files(shards.as_store(tmp_path))) == 7
    assert shards.ShardSet.open(tmp_path).num_tasks == 24
