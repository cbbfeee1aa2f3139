"""The gate of 5.G: closed unless audits, weights and stamp agree."""

import copy
from typing import Any

import pytest

from eval.results import REQUIRED_AUDITS, Status
from reports.sample_run import audit_of
from reports.verdict import audit_rows, judge

SHA = "a" * 64


def _judge(audit: dict[str, Any] | None, *, sha: str | None = SHA, stamp: str | None = "verified") -> tuple[str, str]:
    verdict = judge(audit=audit, weights_sha256=sha, stamp=stamp)
    assert verdict.is_verified == (not verdict.reasons)
    return verdict.status, " | ".join(verdict.reasons)


def test_a_pass_for_exactly_the_scored_weights_opens_the_gate() -> None:
    """5.G: verified needs a pass for exactly this subject."""
    assert _judge(audit_of(SHA)) == (Status.VERIFIED, "")


def test_a_failed_audit_closes_it_and_names_audit_and_stage() -> None:
    """5.G, 5.F: not-yet-verified, and where."""
    assert _judge(audit_of(SHA, failed="query_set")) == (Status.UNVERIFIED, "audit query_set failed at stage mask")


@pytest.mark.parametrize("name", REQUIRED_AUDITS)
def test_an_audit_that_was_not_run_closes_it(name: str) -> None:
    """5.G: leakage and mask audits must have been run."""
    audit = audit_of(SHA)
    audit["audits"] = [item for item in audit["audits"] if item["name"] != name]
    status, reasons = _judge(audit)
    assert status is Status.UNVERIFIED and name in reasons


def test_other_weights_no_audit_no_scores_or_an_early_stamp_close_it() -> None:
    """5.G: whatever does not agree is not verified."""
    assert "not been run" in _judge(None)[1]
    assert "aaaaaaaaaaaa, the scores belong to bbbbbbbbbbbb" in _judge(audit_of(SHA), sha="b" * 64)[1]
    assert "no scores yet" in _judge(audit_of(SHA), sha=None)[1]
    assert "before the audits had passed" in _judge(audit_of(SHA), stamp="not-yet-verified")[1]


@pytest.mark.parametrize(
    "damage",
    [{"passed": False}, {"passed": "yes"}, {"subject": None}, {"subject": {"weights_sha256": SHA}}, {"audits": None}],
)
def test_a_damaged_audit_file_verifies_nothing(damage: dict[str, Any]) -> None:
    """5.G: the gate is closed in doubt."""
    assert _judge({**copy.deepcopy(audit_of(SHA)), **damage})[0] is Status.UNVERIFIED


def test_an_audit_without_a_clear_pass_is_shown_as_failed() -> None:
    rows = audit_rows({"audits": [{"name": "leakage"}, {"name": "slices", "passed": 1}]})
    assert [row.passed for row in rows] == [False, False]
