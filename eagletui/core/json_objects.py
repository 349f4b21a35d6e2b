"""Spans and findings as the JSON of the commands has them."""

from typing import Any

from eagletui.core.findings import Finding
from eagletui.core.tokdiff import Span


def span_object(span: Span) -> dict[str, Any]:
    """A span as the JSON contract has it."""
    return {
        "offset": span.offset,
        "length": span.length,
        "a_ids": list(span.a_ids),
        "b_ids": list(span.b_ids),
        "kind": span.kind,
    }


def finding_object(finding: Finding) -> dict[str, Any]:
    """A finding as the JSON contract has it."""
    return {
        "kind": finding.kind,
        "endpoint": finding.endpoint or None,
        "sentence": finding.sentence,
        "affected": finding.affected,
        "examined": finding.examined,
        "example": finding.example,
        "action": finding.action,
    }
