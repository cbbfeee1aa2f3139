"""Whether the scores of a model may be shown as verified (seed 5.G): a hard gate, closed unless everything agrees."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from eval.results import REQUIRED_AUDITS, Status, status_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The gate's answer for one model.

    Args:
        status: `verified` or `not-yet-verified`.
        reasons: why not, one sentence each; empty when verified.
    """

    status: Status
    reasons: tuple[str, ...] = ()

    @property
    def is_verified(self) -> bool:
        """Whether every reason is gone."""
        return self.status is Status.VERIFIED


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditRow:
    """One audit of audit.json.

    Args:
        name: which.
        passed: its verdict.
        stage: the first stage whose output moved, or None.
        figures: what was measured.
        message: what it says.
    """

    name: str
    passed: bool
    stage: str | None
    figures: Mapping[str, Any]
    message: str


def audit_rows(audit: Mapping[str, Any]) -> list[AuditRow]:
    """The audits of audit.json; an entry without a clear pass counts as failed."""
    return [
        AuditRow(
            name=str(item.get("name", "unnamed")),
            passed=item.get("passed") is True,
            stage=item.get("stage") or None,
            figures=item.get("figures") or {},
            message=str(item.get("message") or ""),
        )
        for item in audit.get("audits") or []
    ]


def judge(*, audit: Mapping[str, Any] | None, weights_sha256: str | None, stamp: str | None) -> Verdict:
    """Opens the gate only if the audits passed, for exactly the weights that were scored, before they were scored.

    Args:
        audit: audit.json, or None when there is none.
        weights_sha256: of the weights whose scores are shown, or None without scores.
        stamp: the status written beside the scores.
    """
    reasons = _audit_faults(audit) if audit is not None else ["the audits have not been run"]
    if weights_sha256 is None:
        reasons.append("there are no scores yet")
    elif audit is not None:
        subject = str((audit.get("subject") or {}).get("weights_sha256"))
        if subject != weights_sha256:
            reasons.append(f"the audits judged weights {subject[:12]}, the scores belong to {weights_sha256[:12]}")
        if stamp != Status.VERIFIED:
            reasons.append(f"the scores are stamped {stamp}: they were computed before the audits had passed")
    return Verdict(status=Status.UNVERIFIED if reasons else Status.VERIFIED, reasons=tuple(reasons))


def _audit_faults(audit: Mapping[str, Any]) -> list[str]:
    rows = audit_rows(audit)
    faults = [_failed(row) for row in rows if not row.passed]
    absent = [name for name in REQUIRED_AUDITS if name not in {row.name for row in rows}]
    if absent:
        faults.append(f"audits that the gate needs were not run: {', '.join(absent)}")
    if not faults and status_of(audit, audit.get("subject") or {}) is not Status.VERIFIED:
        faults.append("audit.json is not a pass for a fully named subject")
    return faults


def _failed(row: AuditRow) -> str:
    return f"audit {row.name} failed" + (f" at stage {row.stage}" if row.stage else "")
