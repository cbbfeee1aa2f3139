"""Results files, the tree of the summary, and the gate of 5.G."""

import copy
import json
import math
import pathlib
from typing import Any

import pyarrow as pa
import pytest

from eval import baselines, results
from eval.results import ResultRow, Status
from tools.failure import ExitCode, Failure

_SUBJECT = {
    "weights_sha256": "a" * 64,
    "config_sha256": "b" * 64,
    "code_sha256": "c" * 64,
    "path": "fast",
    "dtype": "float32",
    "scorer": "d" * 64,
}


def _audit() -> dict[str, Any]:
    single = [{"name": name, "passed": True} for name in (*results.REQUIRED_AUDITS, "context_order")]
    return {"format_version": 1, "subject": dict(_SUBJECT), "passed": True, "audits": single}


def _row(**changes: Any) -> ResultRow:
    values = {"kind": "classification", "table": "iris", "model": "veritab", "seed": 0, "metric": "nll"}
    return ResultRow(**(values | {"value": 0.25, "num_episodes": 1} | changes))


def _rows() -> list[ResultRow]:
    return [_row(), _row(model="knn", seed=2), _row(model="untrained", value=math.nan, num_episodes=0, num_undefined=1)]


def test_a_file_gives_back_the_rows_that_were_written(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run" / "results.arrow"
    results.write_results(path, _rows(), weights_sha256="a" * 64, status=Status.VERIFIED)
    found = results.read_results(path)
    assert found.weights_sha256 == "a" * 64 and found.status is Status.VERIFIED
    assert [repr(row) for row in found.rows] == [repr(row) for row in _rows()]
    assert [item.name for item in path.parent.iterdir()] == ["results.arrow"]


def test_no_rows_are_a_file_too(tmp_path: pathlib.Path) -> None:
    results.write_results(tmp_path / "r.arrow", [], weights_sha256="a", status=Status.UNVERIFIED)
    assert results.read_results(tmp_path / "r.arrow").rows == []


@pytest.mark.parametrize("status", list(Status))
def test_the_file_marks_every_row_of_a_network(tmp_path: pathlib.Path, status: Status) -> None:
    """5.G: scores are marked in files, row by row; baselines carry no mark, an unaudited network is never verified."""
    path = tmp_path / "results.arrow"
    results.write_results(path, _rows(), weights_sha256="a" * 64, status=status)
    table = pa.ipc.open_file(path).read_all()
    assert table.column("status").to_pylist() == [status.value, None, "not-yet-verified"]
    assert table.schema.metadata[b"status"] == status.value.encode()


@pytest.mark.parametrize("model", ["untrained", "veritab-ablated"])
@pytest.mark.parametrize("status", list(Status))
def test_a_network_whose_weights_were_not_audited_is_never_verified(model: str, status: Status) -> None:
    """5.G: the verdict holds for the audited weights alone."""
    assert results.row_status(_row(model=model), status) is Status.UNVERIFIED
    assert results.row_status(_row(), status) is status


def test_only_the_baselines_carry_no_mark() -> None:
    """5.G: what no audit concerns."""
    assert {one.name for one in baselines.all_baselines()} == results.UNAUDITED_MODELS


def test_a_pass_for_exactly_this_subject_verifies() -> None:
    """5.G: the positive case."""
    assert results.status_of(_audit(), _SUBJECT) is Status.VERIFIED


@pytest.mark.parametrize("key", results.SUBJECT_KEYS)
def test_a_change_in_any_part_of_the_subject_unverifies(key: str) -> None:
    """5.G: weights + configuration + code digest + attention path + dtype + scorer."""
    assert results.status_of(_audit(), _SUBJECT | {key: "other"}) is Status.UNVERIFIED
    without = {name: value for name, value in _SUBJECT.items() if name != key}
    assert results.status_of(_audit(), without) is Status.UNVERIFIED
    assert results.status_of(_audit() | {"subject": without}, without) is Status.UNVERIFIED
    empty = _SUBJECT | {key: ""}
    assert results.status_of(_audit() | {"subject": empty}, empty) is Status.UNVERIFIED


@pytest.mark.parametrize("name", results.REQUIRED_AUDITS)
def test_a_required_audit_that_is_missing_or_failed_unverifies(name: str) -> None:
    """5.G: an empty list of audits is no pass."""
    missing, failed = _audit(), copy.deepcopy(_audit())
    missing["audits"] = [item for item in missing["audits"] if item["name"] != name]
    for item in failed["audits"]:
        item["passed"] = item["name"] != name
    assert results.status_of(missing, _SUBJECT) is Status.UNVERIFIED
    assert results.status_of(failed, _SUBJECT) is Status.UNVERIFIED


@pytest.mark.parametrize(
    "change",
    [{"passed": False}, {"passed": "true"}, {"passed": 1}, {"audits": []}, {"audits": None}, {"subject": None}],
)
def test_an_audit_that_did_not_pass_or_is_malformed_unverifies(change: dict[str, Any]) -> None:
    """5.G: whatever is not a pass is none."""
    assert results.status_of(_audit() | change, _SUBJECT) is Status.UNVERIFIED


def test_one_failed_extra_audit_unverifies() -> None:
    audit = _audit()
    audit["audits"][-1]["passed"] = False
    assert results.status_of(audit, _SUBJECT) is Status.UNVERIFIED


def test_no_audit_means_not_yet_verified() -> None:
    """5.G: the words of the mark."""
    assert results.status_of(None, _SUBJECT) == "not-yet-verified"


def test_every_flipped_byte_is_found(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "results.arrow"
    results.write_results(path, _rows(), weights_sha256="a" * 64, status=Status.VERIFIED)
    whole, before = path.read_bytes(), results.read_results(path)
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        try:
            assert repr(results.read_results(path)) == repr(before)  # padding
        except Failure as failure:
            assert failure.code in (ExitCode.RESULTS_CORRUPT, ExitCode.FORMAT_VERSION)


def test_a_damaged_value_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "results.arrow"
    rows = [_row(value=0.123456789)]
    results.write_results(path, rows, weights_sha256="a" * 64, status=Status.UNVERIFIED)
    old = pa.array([0.123456789]).buffers()[1].to_pybytes()
    new = pa.array([0.987654321]).buffers()[1].to_pybytes()
    assert path.read_bytes().count(old) == 1
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(Failure, match="differ from their sha256") as caught:
        results.read_results(path)
    assert caught.value.code is ExitCode.RESULTS_CORRUPT


def test_truncated_foreign_and_missing_files_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "results.arrow"
    results.write_results(path, _rows(), weights_sha256="a" * 64, status=Status.VERIFIED)
    whole = path.read_bytes()
    for content in (b"", whole[:50], whole[: len(whole) // 2], whole[:-1], b"not arrow at all"):
        path.write_bytes(content)
        with pytest.raises(Failure) as caught:
            results.read_results(path)
        assert caught.value.code is ExitCode.RESULTS_CORRUPT
    with pytest.raises(Failure) as caught:
        results.read_results(tmp_path / "absent.arrow")
    assert caught.value.code is ExitCode.NOT_FOUND


def test_another_format_version_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.arrow"
    monkeypatch.setattr(results, "FORMAT_VERSION", 2)
    results.write_results(path, _rows(), weights_sha256="a" * 64, status=Status.VERIFIED)
    monkeypatch.undo()
    with pytest.raises(Failure, match="version 2: this version reads 1") as caught:
        results.read_results(path)
    assert caught.value.code is ExitCode.FORMAT_VERSION


def test_the_tree_orders_seeds_and_leaves_undefined_values_out_of_means() -> None:
    rows = [_row(seed=2, value=3.0), _row(seed=0, value=1.0), _row(seed=1, value=math.nan)]
    rows += [_row(model="knn", metric="auc_ovr", value=math.nan)]
    tree = results.scores_tree(rows)
    assert tree["iris"]["veritab"]["nll"] == {"mean": 2.0, "per_seed": [1.0, None, 3.0]}
    assert tree["iris"]["knn"]["auc_ovr"] == {"mean": None, "per_seed": [None]}
    json.dumps(tree, allow_nan=False)


def test_the_tree_refuses_two_kinds_and_twice_given_scores() -> None:
    with pytest.raises(ValueError, match="one tree"):
        results.scores_tree([_row(), _row(kind="regression")])
    with pytest.raises(ValueError, match="twice"):
        results.scores_tree([_row(), _row(value=0.5)])
