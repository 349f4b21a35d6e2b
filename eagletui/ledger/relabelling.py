"""Label an endpoint's answers again when its offset is accepted or withdrawn."""

import sqlite3
from typing import NamedTuple

from eagletui.core.drift import Verdict, distrust, relabel
from eagletui.core.fidelity import Evidence


class _Answer(NamedTuple):
    id: int
    evidence: Evidence
    usability: str | None
    """As it is without a quarantine."""
    finish_reason: str | None
    has_end: int
    counted: int | None
    billed: int | None
    excess: int | None
    offset: int | None
    tail_trimmed: int


def relabel_answers(connection: sqlite3.Connection, endpoint: str, verdict: Verdict) -> int:
    """Apply an endpoint's verdict to every answer of it inside the caller's transaction.

    Drift becomes billed - counted - offset; labels that rest on a count follow `core.drift.relabel`, and with them the
    usability that a conflict alone had lowered.

    Returns:
        How many answers have another label or another offset.
    """
    changed = 0
    for row in connection.execute(
        """SELECT samples.id, samples.evidence, CASE state WHEN 'quarantined' THEN usability_before ELSE usability END,
            finish_reason, has_end, output_tokens, billed_output_tokens, excess_tokens, offset_tokens, tail_trimmed
        FROM samples JOIN tokens ON tokens.sample_id = samples.id WHERE endpoint = ?""",
        (endpoint,),
    ).fetchall():
        answer = _Answer(*row)
        # A tail that no text shows belongs to cut answers, which no end token ends.
        if answer.billed is None or answer.counted is None or answer.tail_trimmed:
            continue
        finish_reason = answer.finish_reason if answer.has_end else None
        applied = verdict.offset(finish_reason)
        evidence = relabel(answer.evidence, answer.excess, finish_reason, verdict)
        if evidence == answer.evidence and applied == (answer.offset or 0):
            continue
        changed += 1
        _write(connection, answer, evidence, applied, verdict)
    return changed


def _write(connection: sqlite3.Connection, answer: _Answer, evidence: Evidence, applied: int, verdict: Verdict) -> None:
    assert answer.billed is not None
    assert answer.counted is not None
    usability = answer.usability
    if (answer.evidence, evidence, usability) == ("conflict", "counted", "resegmented"):
        usability = "usable"
    elif evidence == "conflict" and usability == "usable":
        usability = "resegmented"
    connection.execute(
        """UPDATE samples SET
            evidence = :evidence, offset_tokens = :offset, drift_tokens = :drift, excess_tokens = :excess,
            usability = CASE state WHEN 'quarantined' THEN usability ELSE :usability END,
            usability_before = CASE state WHEN 'quarantined' THEN :usability END WHERE id = :id""",
        {
            "evidence": evidence,
            "offset": applied,
            "drift": answer.billed - answer.counted - applied,
            # Ids that other pieces than tokens gave say nothing about a count.
            "excess": None if (answer.evidence, evidence) == ("streamed", "conflict") else answer.excess,
            "usability": usability,
            "id": answer.id,
        },
    )
    if evidence != answer.evidence:
        named = f", offset {applied} ({verdict.cause.name})" if applied and verdict.cause else ""
        reason = f"{answer.counted} tokens counted and {answer.billed} billed{named}."
        if not verdict.trusted or answer.evidence == "streamed":
            reason = distrust(answer.evidence)
        connection.execute(
            "UPDATE tokens SET evidence = ?, reason = ? WHERE sample_id = ?", (evidence, reason, answer.id)
        )
