"""Every way in which an answer can go wrong, by the name that fault scripts use.

A kind is a row of `refusals` or a function: another order of `Exchange`'s steps. Its keyword arguments are the
script's `params`, and the first line of its docstring says what it does (`eagletui serve --kinds` lists them).
"""

import inspect
from collections.abc import Mapping
from typing import Final, NamedTuple

from eagletui.embedded import broken_answers, odd_bills
from eagletui.embedded.refusals import FaultKind, refusal_kinds

KINDS: Final[Mapping[str, FaultKind]] = {
    **refusal_kinds(),
    **{
        kind.__name__: kind
        for kind in (
            broken_answers.http_524,
            broken_answers.redirect,
            broken_answers.html_from_edge,
            broken_answers.error_in_200,
            broken_answers.empty_choices,
            broken_answers.mid_stream_error,
            broken_answers.disconnect_before_headers,
            broken_answers.disconnect_after_headers,
            broken_answers.no_generation_id,
            broken_answers.slow,
            broken_answers.slow_trickle,
            broken_answers.stalled_stream,
            broken_answers.keep_alive_flood,
            broken_answers.wrong_content_type,
            broken_answers.gzip_garbage,
            broken_answers.truncated_json,
            broken_answers.two_finish_chunks,
            broken_answers.duplicate_chunk,
            broken_answers.missing_done,
            broken_answers.missing_finish,
            broken_answers.reordered_fields,
            broken_answers.nan_logprobs,
            broken_answers.empty_answer,
            broken_answers.content_filter,
            broken_answers.other_model,
            odd_bills.no_usage,
            odd_bills.no_cost,
            odd_bills.usage_only_chunk,
            odd_bills.usage_on_choice,
            odd_bills.odd_cost,
            odd_bills.overbilled,
            odd_bills.excess_reasoning,
            odd_bills.late_bill,
            odd_bills.late_generation,
            odd_bills.key_wrong,
        )
    },
}
"""Every kind by name."""


class KindRow(NamedTuple):
    """One kind, for people who write scripts."""

    name: str
    does: str
    params: dict[str, object]
    """Defaults by name."""


def kind_rows() -> list[KindRow]:
    """Describe every kind from its own signature and docstring."""
    rows = []
    for name, kind in KINDS.items():
        parameters = inspect.signature(kind).parameters
        defaults = {given: parameter.default for given, parameter in parameters.items() if given != "exchange"}
        rows.append(KindRow(name, (inspect.getdoc(kind) or "").split("\n")[0], defaults))
    return rows
