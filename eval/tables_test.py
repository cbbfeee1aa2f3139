"""Real tables: loading, refusals, and splits that look at context rows only."""

import dataclasses
import gzip
import hashlib
import json
import pathlib
from typing import Any

import numpy as np
import pandas as pd
import pytest

from eval import tables
from priors.task import ColumnKind, TaskKind
from tools.failure import ExitCode, Failure

CLS, REG = TaskKind.CLASSIFICATION, TaskKind.REGRESSION
NUMBER, CATEGORY = ColumnKind.NUMBER, ColumnKind.CATEGORY
_CSV = "size,color,flag,target\n1.5,red,True,yes\n,blue,False,no\n-2,,True,yes\ninf,red,False,no\n"


def _folder(path: pathlib.Path, *, csv: str = _CSV, **entry: Any) -> pathlib.Path:
    """A folder of one table, `toy`, gzipped; `entry` changes its manifest entry."""
    (path / "data").mkdir(exist_ok=True)
    (path / "data" / "toy.csv.gz").write_bytes(gzip.compress(csv.encode(), mtime=0))
    whole = {"name": "toy", "task": "cls", "file": "data/toy.csv.gz", "cat": ["color"], "group": "core", "n": 4} | entry
    (path / "manifest.json").write_text(json.dumps([whole]))
    return path


def _table(
    columns: dict[str, list[Any]], *, target: list[Any], kind: TaskKind = CLS, **kinds: ColumnKind
) -> tables.Table:
    frame = pd.DataFrame(columns)
    of_columns = np.array([kinds.get(name, NUMBER) for name in frame], np.int8)
    return tables.Table(name="toy", kind=kind, frame=frame, target=np.array(target, dtype=object), kinds=of_columns)


def _refusal(table: tables.Table) -> Failure:
    with pytest.raises(Failure) as caught:
        tables.split(table, seed=0)
    assert "\n" not in str(caught.value) and "toy" in str(caught.value)
    return caught.value


def test_scikit_learn_ships_five_tables() -> None:
    shapes = {table.name: table.frame.shape for kind in TaskKind for table in tables.load_sklearn_tables(kind)}
    expected = {"breast_cancer": (569, 30), "iris": (150, 4), "wine": (178, 13), "digits": (1797, 64)}
    assert shapes == expected | {"diabetes": (442, 10)}


def test_a_folder_is_read_by_its_manifest(tmp_path: pathlib.Path) -> None:
    folder = _folder(tmp_path, sha256=hashlib.sha256(_CSV.encode()).hexdigest())
    (table,) = tables.load_folder(folder)
    assert (table.name, table.kind, table.group) == ("toy", CLS, "core")
    assert table.kinds.tolist() == [NUMBER, CATEGORY, NUMBER]
    assert table.target.tolist() == ["yes", "no", "yes", "no"]
    assert tables.load_folder(folder, kind=REG) == [] and tables.load_folder(folder, group="large") == []
    x = tables.split(table, seed=0).task.x
    assert np.sort(x[:, 0])[:3].tolist() == [-2.0, 1.5, np.inf] and np.isnan(x[:, 0]).sum() == 1
    assert sorted(x[:, 2]) == [0, 0, 1, 1]


def test_an_uncompressed_file_is_read_too(tmp_path: pathlib.Path) -> None:
    folder = _folder(tmp_path, file="plain.csv")
    (folder / "plain.csv").write_text(_CSV)
    assert len(tables.load_folder(folder)[0].frame) == 4


def test_split_halves_are_stratified_disjoint_and_depend_on_the_seed() -> None:
    (table,) = [one for one in tables.load_sklearn_tables(CLS) if one.name == "iris"]
    first, again, other = (tables.split(table, seed=seed) for seed in (0, 0, 1))
    assert first.num_context == 75 and np.bincount(first.answers().astype(int)).tolist() == [25, 25, 25]
    assert np.array_equal(first.task.x, again.task.x) and not np.array_equal(first.task.x, other.task.x)
    assert np.array_equal(np.sort(first.task.x, axis=0), np.sort(table.frame.to_numpy(np.float32), axis=0))
    assert (first.task.family, first.task.seed, first.task.num_classes) == ("real", 0, 3)


def test_each_half_is_cut_to_its_maximum() -> None:
    (table,) = [one for one in tables.load_sklearn_tables(CLS) if one.name == "digits"]
    episode = tables.split(table, seed=0, max_context=50, max_query=30)
    assert (episode.num_context, len(episode.answers())) == (50, 30)
    assert np.bincount(episode.task.y[:50].astype(int)).tolist() == [5] * 10


def test_levels_come_from_context_rows_and_an_unseen_level_gets_its_own_code() -> None:
    """6.5: the vocabulary is task-local; 6.12: nothing is fitted on query rows."""
    colors = [f"level{row:02d}" for row in range(40)]
    table = _table({"color": colors, "size": list(range(40))}, target=[0, 1] * 20, color=CATEGORY)
    episode = tables.split(table, seed=0)
    context, query = episode.evidence().x_context[:, 0], episode.evidence().x_query[:, 0]
    assert sorted(context) == list(range(20)) and set(query) == {20.0}
    assert episode.task.level_counts.tolist() == [20, 0]
    names = [colors[int(row)] for row in episode.task.x[:20, 1]]
    assert [sorted(names)[int(code)] for code in context] == names


def test_missing_levels_stay_missing() -> None:
    table = _table({"color": ["a", None, "b", "a"] * 5}, target=[0, 1] * 10, color=CATEGORY)
    task = tables.split(table, seed=0).task
    assert int(np.isnan(task.x).sum()) == 5 and task.level_counts.tolist() == [2]


def test_ordinals_are_coded_in_numeric_order() -> None:
    table = _table({"grade": [10] * 12 + [9] * 6 + [100] * 4}, target=[0, 1] * 11, grade=ColumnKind.ORDINAL)
    task = tables.split(table, seed=0).task
    assert [(task.x[:, 0] == code).sum() for code in range(3)] == [6, 12, 4]


def test_classes_come_from_context_rows_and_foreign_queries_are_counted() -> None:
    """6.5: ids 0..K-1 of the classes that the context holds."""
    labels = ["b", "c"] * 20 + ["z-once"]
    episodes = [tables.split(_table({"size": list(range(41))}, target=labels), seed=seed) for seed in range(8)]
    dropped = [episode.task.parameters["dropped_queries"] for episode in episodes]
    assert set(dropped) == {0, 1}
    for episode, count in zip(episodes, dropped, strict=True):
        classes = ["b", "c"] if count else ["b", "c", "z-once"]
        assert episode.task.parameters["classes"] == classes and episode.task.num_classes == len(classes)
        assert len(episode.task.y) == 41 - count and set(episode.answers()) <= {0.0, 1.0}
        rows = episode.task.x[:, 0].astype(int)
        assert [labels[row] for row in rows] == [classes[int(y)] for y in episode.task.y]


def test_string_labels_of_a_classification_table_are_fine() -> None:
    episode = tables.split(_table({"size": [1, 2, 3, 4]}, target=["no", "yes", "no", "yes"]), seed=0)
    assert episode.task.num_classes == 2 and set(episode.answers()) <= {0.0, 1.0}


def test_more_classes_than_rows_to_draw_still_split() -> None:
    table = _table({"size": list(range(12))}, target=[0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7])
    assert tables.split(table, seed=0).num_context == 6
    table = _table({"size": list(range(40))}, target=list(range(10)) * 4)
    assert tables.split(table, seed=0, max_context=5).num_context == 5


def test_a_table_without_rows_or_columns_is_refused() -> None:
    assert _refusal(_table({"size": []}, target=[])).code is ExitCode.TABLE_EMPTY
    no_columns = dataclasses.replace(_table({"size": [1] * 4}, target=[0, 1] * 2), frame=pd.DataFrame(index=range(4)))
    assert _refusal(no_columns).code is ExitCode.TABLE_EMPTY


@pytest.mark.parametrize("target", [[1] * 6, ["a", "a", "a", "b"], ["a", "b", "c", "d"]])
def test_a_table_with_one_class_is_refused(target: list[Any]) -> None:
    failure = _refusal(_table({"size": list(range(len(target)))}, target=target))
    assert failure.code is ExitCode.TABLE_ONE_CLASS and f"only class {target[0]}" in str(failure)


def test_text_in_a_number_column_is_refused_with_the_first_value() -> None:
    table = _table({"size": [1, 2, 3, 4], "color": ["1", "2", "dark red", "blue"]}, target=[0, 1, 0, 1])
    failure = _refusal(table)
    assert failure.code is ExitCode.TABLE_TEXT_COLUMN
    assert "'color'" in str(failure) and "dark red" in str(failure) and "blue" not in str(failure)


def test_dates_count_as_text() -> None:
    table = _table({"day": list(pd.date_range("2020-01-01", periods=4))}, target=[0, 1, 0, 1])
    assert _refusal(table).code is ExitCode.TABLE_TEXT_COLUMN


@pytest.mark.parametrize("kind", [NUMBER, CATEGORY])
def test_a_column_without_any_value_is_refused(kind: ColumnKind) -> None:
    failure = _refusal(_table({"size": [1, 2, 3, 4], "void": [None] * 4}, target=[0, 1, 0, 1], void=kind))
    assert failure.code is ExitCode.TABLE_EMPTY_COLUMN and "'void'" in str(failure)


@pytest.mark.parametrize(
    ("target", "kind", "words"),
    [
        ([0.5, "high", 2.0, 3.0], REG, "row 2 of table toy is high"),
        ([0.5, 1.0, None, 3.0], REG, "row 3 of table toy is missing"),
        ([0.5, 1.0, 2.0, float("inf")], REG, "row 4 of table toy is inf"),
        ([1e300, 1.0, 2.0, 3.0], REG, "row 1 of table toy is 1e"),
        (["a", None, "b", "a"], CLS, "row 2 of table toy is missing"),
        ([0, 1, 0], CLS, "3 labels: each of its 4 rows"),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(target: list[Any], kind: TaskKind, words: str) -> None:
    failure = _refusal(_table({"size": [1, 2, 3, 4]}, target=target, kind=kind))
    assert failure.code is ExitCode.TABLE_LABELS and words in str(failure)


def test_a_table_over_a_limit_is_refused_with_both_numbers() -> None:
    table = _table({"a": [1, 2, 3, 4, 5, 6], "b": [1, 2, 3, 4, 5, 6]}, target=[0, 1, 2, 0, 1, 2])
    tables.check_limits(table, max_classes=3, max_features=2)
    for limits, words in (((2, 2), "3 classes, the model takes 2"), ((3, 1), "2 features, the model takes 1")):
        with pytest.raises(Failure, match=words) as caught:
            tables.check_limits(table, max_classes=limits[0], max_features=limits[1])
        assert caught.value.code is ExitCode.OVER_LIMIT


def _folder_refusal(folder: pathlib.Path) -> Failure:
    with pytest.raises(Failure) as caught:
        tables.load_folder(folder)
    return caught.value


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"task": "ranking"}, ExitCode.TABLE_FILE),
        ({"task": None}, ExitCode.TABLE_FILE),
        ({"file": "../outside.csv"}, ExitCode.TABLE_FILE),
        ({"file": "data/absent.csv"}, ExitCode.NOT_FOUND),
        ({"cat": "color"}, ExitCode.TABLE_FILE),
        ({"cat": ["colour"]}, ExitCode.TABLE_FILE),
        ({"sha256": "0" * 64}, ExitCode.TABLE_FILE),
        ({"name": "a/b"}, ExitCode.BAD_NAME),
        ({"name": "synthetic"}, ExitCode.BAD_NAME),
        ({"cat": []}, ExitCode.TABLE_TEXT_COLUMN),
        ({"task": "reg"}, ExitCode.TABLE_LABELS),
    ],
)
def test_a_wrong_manifest_entry_is_refused(tmp_path: pathlib.Path, entry: dict[str, Any], code: ExitCode) -> None:
    assert _folder_refusal(_folder(tmp_path, **entry)).code is code


@pytest.mark.parametrize(
    ("csv", "code"),
    [
        ("", ExitCode.TABLE_EMPTY),
        ("size,color,target\n", ExitCode.TABLE_EMPTY),
        ("size,color,answer\n1,red,yes\n", ExitCode.TABLE_FILE),
        ('size,color,target\n1,"red,yes\n', ExitCode.TABLE_FILE),
        (_CSV.replace("-2", "NA"), ExitCode.TABLE_TEXT_COLUMN),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: pathlib.Path, csv: str, code: ExitCode) -> None:
    assert _folder_refusal(_folder(tmp_path, csv=csv)).code is code


@pytest.mark.parametrize(
    ("csv", "words"),
    [
        ("size,target,target\n1,yes,yes\n", ("line 1", "columns 2 and 3", "'target'", "rename or delete")),
        ("size,color,size,target\n1,red,2,yes\n", ("line 1", "columns 1 and 3", "'size'")),
        (_CSV + "1,red,True,yes,no\n", ("line 6", "5 cells for 4 columns", "'target'", "one cell")),
        ("\n" + _CSV + "\n1,red,True\n", ("line 8", "3 cells for 4 columns", "'flag'", "one cell")),
        (_CSV.replace("blue", "light, blue"), ("line 3", "5 cells for 4 columns", "quote")),
    ],
)
def test_a_column_named_twice_and_a_row_of_another_length_are_refused(
    tmp_path: pathlib.Path, csv: str, words: tuple[str, ...]
) -> None:
    """A second `target` would be the answer as a feature."""
    failure = _folder_refusal(_folder(tmp_path, csv=csv, cat=[]))
    assert failure.code is ExitCode.TABLE_FILE and "\n" not in str(failure)
    assert all(word in str(failure) for word in (*words, "toy.csv.gz")), str(failure)


def test_blank_lines_quoted_commas_and_a_byte_order_mark_are_fine(tmp_path: pathlib.Path) -> None:
    csv = "\ufeff\n" + _CSV.replace("blue", '"light,\nblue"').replace("\n-2", "\n \n\n-2") + "\n"
    (table,) = tables.load_folder(_folder(tmp_path, csv=csv))
    assert table.frame.shape == (4, 3) and "light,\nblue" in set(table.frame["color"])


def test_a_truncated_file_is_refused(tmp_path: pathlib.Path) -> None:
    file = _folder(tmp_path) / "data" / "toy.csv.gz"
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:5], b"no gzip"):
        file.write_bytes(content)
        assert _folder_refusal(tmp_path).code is ExitCode.TABLE_FILE


def test_a_folder_without_a_readable_manifest_is_refused(tmp_path: pathlib.Path) -> None:
    absent = _folder_refusal(tmp_path / "absent")
    assert absent.code is ExitCode.NOT_FOUND
    assert absent.message.startswith(f"--tables {tmp_path / 'absent'} holds no manifest.json that can be opened")
    for content in ("{", "{}", "[1]", "[{}]"):
        (tmp_path / "manifest.json").write_text(content)
        assert _folder_refusal(tmp_path).code is ExitCode.TABLE_FILE


def test_a_name_given_twice_is_refused(tmp_path: pathlib.Path) -> None:
    folder = _folder(tmp_path)
    (entry,) = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps([entry, entry]))
    assert _folder_refusal(folder).code is ExitCode.BAD_NAME
