"""`eagletui inspect`: one sample in full."""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

from eagletui.cli.output import counted, print_json, print_pairs
from eagletui.cli.worth_a_look import print_worth_a_look
from eagletui.config.run_config import load_config
from eagletui.core.errors import InputError, RunError
from eagletui.core.fidelity import PROVED
from eagletui.core.money import format_usd, pico_to_usd_string, usd_to_pico
from eagletui.core.text import clean_block, clean_line, visible
from eagletui.core.vocabulary import Vocabulary, unpack_vocabulary
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_samples import SampleDetail, StoredTokens
from eagletui.ledger.rows import OpinionRow
from eagletui.runs.find import find
from eagletui.runs.folder import RunFolder
from eagletui.tokens.formats import AUTO, load_format
from eagletui.tokens.profiles import UNTOUCHED

TAIL_IDS = 8
CONTEXT_CHARACTERS = 120
SHOWN_REPLY_CHARACTERS = 2_000
NEAR_KEYS = 5


def inspect(
    run: Annotated[str, typer.Argument(help="A run's name, folder or ledger.", metavar="RUN")],
    sample: Annotated[
        str | None,
        typer.Argument(help="The sample's key; left out: the samples worth a look, and why.", metavar="[SAMPLE]"),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Show one sample: its raw text, spans, ids, the tail of its ids alone and in context, and the reply.

    Without a sample: list those that failed, drift, conflict with the bill, or whose ids re-encoding would not give.
    """
    folder = find(run)
    with LedgerReader(folder.ledger_path) as reader:
        if sample is None:
            return print_worth_a_look(folder, reader, json_=json_)
        detail = reader.sample(sample)
        if detail is None:
            near = reader.keys_like(sample, NEAR_KEYS)
            keys = f"Keys that contain it: {', '.join(near)}."
            hint = f" {keys}" if near else f" List some with: eagletui inspect {folder.argument}"
            raise InputError(f"Run {folder.name} has no sample with the key {clean_line(sample, 80)}.{hint}")
        format_name = reader.run().format
        opinion = reader.opinion(detail.row.id)
        profile = _profile_of(folder, reader, detail.row.endpoint)
    described = {
        **describe(detail, read_vocabulary(folder), format_name, profile),
        "opinion": describe_opinion(opinion),
    }
    if json_:
        print_json(described)
    else:
        _print(described)
    return 0


def _profile_of(folder: RunFolder, reader: LedgerReader, endpoint: str | None) -> str | None:
    """The loss profile under which a sample was rebuilt."""
    name = load_config(folder.config_path).model.profile
    if endpoint is None or name != AUTO:
        return None if endpoint is None else name
    chosen = next((row.profile for row in reader.endpoints() if row.tag == endpoint), None)
    return f"{UNTOUCHED} (auto has not chosen yet)" if chosen is None else f"{chosen} (chosen by auto)"


def describe(
    detail: SampleDetail, vocabulary: Vocabulary | None, format_name: str, profile: str | None = None
) -> dict[str, Any]:
    """Return everything known about a sample as JSON values."""
    row, tokens = detail.row, detail.tokens
    return {
        "id": row.sample_key,
        "dataset": row.dataset,
        "state": row.state,
        "failure": None if row.failure_kind is None else {"kind": row.failure_kind, "detail": row.failure_detail},
        "endpoint": row.endpoint,
        "profile": profile,
        "finish_reason": row.finish_reason,
        "evidence": row.evidence,
        "reason": None if tokens is None else tokens.reason,
        "usability": row.usability,
        "counted": row.output_tokens,
        "billed": row.billed_output_tokens,
        "offset": row.offset_tokens,
        "drift": row.drift_tokens,
        "tail_trimmed": None if tokens is None else tokens.tail_trimmed,
        "cost_usd": None if row.cost_pico is None else pico_to_usd_string(row.cost_pico),
        "latency_s": row.latency_s,
        "extracted": row.extracted,
        "attempts": [
            {
                "number": attempt.number,
                "endpoint": attempt.endpoint,
                "state": attempt.state,
                "hold_usd": pico_to_usd_string(attempt.hold_pico),
                "cost_usd": None if attempt.cost_pico is None else pico_to_usd_string(attempt.cost_pico),
                "generation_id": attempt.generation_id,
                "http_status": attempt.http_status,
                "error": None
                if attempt.error_kind is None
                else {"kind": attempt.error_kind, "detail": attempt.error_detail},
            }
            for attempt in detail.attempts
        ],
        "prompt": {
            "messages": [
                {"role": message.role, "content": message.content, "reasoning": message.reasoning}
                for message in detail.prompt.messages
            ],
            "tools": None if detail.prompt.tools_json is None else json.loads(detail.prompt.tools_json),
        },
        "reply": None
        if detail.reply is None
        else {"encoding": detail.reply.encoding, "body": detail.reply.body.decode("utf-8", "replace")},
        "raw": None if tokens is None else tokens.raw,
        "prompt_ids": None if tokens is None or tokens.prompt_ids is None else list(tokens.prompt_ids),
        "output_ids": None if tokens is None or tokens.output_ids is None else list(tokens.output_ids),
        "spans": [] if tokens is None else _spans(tokens, vocabulary),
        "tail": None if tokens is None else _tail(tokens, vocabulary, format_name, row.finish_reason),
    }


def describe_opinion(opinion: OpinionRow | None) -> dict[str, Any] | None:
    """Return what the target model said of a sample as JSON values; None where it was not asked."""
    if opinion is None:
        return None
    return {
        "posterior": opinion.posterior,
        "margin": opinion.margin,
        "changed": bool(opinion.changed),
        "inferred": bool(opinion.inferred),
        "model": opinion.model,
        "nats_per_token": round(opinion.own / opinion.tokens, 4) if opinion.tokens else None,
        "expected": round(opinion.expected / opinion.tokens, 4) if opinion.tokens else None,
    }


def read_vocabulary(folder: RunFolder) -> Vocabulary | None:
    """Read the run's vocabulary; None where the run keeps none."""
    if not folder.vocabulary_path.exists():
        return None
    try:
        return unpack_vocabulary(folder.vocabulary_path.read_bytes())
    except ValueError as error:
        raise RunError(f"{folder.vocabulary_path}: {error} Restore it, or make the run again.") from error


def tokens_text(ids: Sequence[int], vocabulary: Vocabulary | None) -> str:
    """Write ids with their text on one line: `·ST 4242 | OP 3217`."""
    return _lane(_pieces(ids, vocabulary), ids)


def _lane(pieces: Sequence[str] | None, ids: Sequence[int]) -> str:
    named = zip(pieces or [""] * len(ids), ids, strict=True)
    return " | ".join(f"{piece} {token}".strip() for piece, token in named) or "-"


def _spans(tokens: StoredTokens, vocabulary: Vocabulary | None) -> list[dict[str, Any]]:
    return [
        {
            "offset": span.offset,
            "length": span.length,
            "a_ids": list(span.a_ids),
            "b_ids": list(span.b_ids),
            "a": _pieces(span.a_ids, vocabulary),
            "b": _pieces(span.b_ids, vocabulary),
            "kind": span.kind,
        }
        for span in tokens.spans
    ]


def _pieces(ids: Sequence[int], vocabulary: Vocabulary | None) -> list[str] | None:
    """Return each id's text with every byte visible."""
    if vocabulary is None:
        return None
    return [visible(vocabulary.bytes_of(token)) if token in vocabulary else f"<unknown id {token}>" for token in ids]


def _tail(
    tokens: StoredTokens, vocabulary: Vocabulary | None, format_name: str, finish_reason: str | None
) -> dict[str, Any] | None:
    """Return the last ids each alone, the text they end, and the end token the format expects."""
    if tokens.output_ids is None or vocabulary is None:
        return None
    ids = list(tokens.output_ids[-TAIL_IDS:])
    expected = None if finish_reason is None else load_format(format_name).end_token(finish_reason)
    expected_id = None if expected is None else vocabulary.specials.get(expected)
    return {
        "ids": [
            {"id": token, "text": text, "special": vocabulary.is_special(token)}
            for token, text in zip(ids, _pieces(ids, vocabulary) or (), strict=True)
        ],
        "context": tokens.raw[-CONTEXT_CHARACTERS:],
        "expected_end": None if expected is None else {"id": expected_id, "text": expected},
        "ends_with_it": None if expected_id is None else bool(ids) and ids[-1] == expected_id,
    }


def _print(sample: dict[str, Any]) -> None:
    evidence = sample["evidence"] or "-"
    if sample["reason"]:
        evidence += f": {clean_line(sample['reason'])}"
    cost = "-" if sample["cost_usd"] is None else format_usd(usd_to_pico(sample["cost_usd"]), 9)
    print_pairs(
        [
            ("sample", clean_line(sample["id"])),
            ("data set", clean_line(sample["dataset"])),
            ("state", sample["state"] if sample["failure"] is None else _failure(sample)),
            ("answered by", clean_line(f"{sample['endpoint'] or '-'}, finish {sample['finish_reason'] or '-'}")),
            ("evidence", evidence),
            *_opinion_pairs(sample["opinion"]),
            ("usability", sample["usability"] or "-"),
            ("loss profile", clean_line(sample["profile"] or "-")),
            ("tokens", f"{_number(sample['counted'])} counted, {_number(sample['billed'])} billed, {_drift(sample)}"),
            ("cost", f"{cost} in {counted(len(sample['attempts']), 'attempt')}"),
            ("features", "extracted" if sample["extracted"] else "-"),
        ]
    )
    for message in sample["prompt"]["messages"]:
        _print_block(f"prompt: {message['role']}", message["content"] or "")
    if sample["raw"] is not None:
        _print_block("raw text", sample["raw"])
    first = "proved" if sample["evidence"] in PROVED else "inferred" if sample["evidence"] == "inferred" else "received"
    for span in sample["spans"]:
        print(f"\nspan {span['kind']} at byte {span['offset']}, {counted(span['length'], 'byte')}")
        print(f"  {first:<9}  {_lane(span['a'], span['a_ids'])}")
        print(f"  canonical  {_lane(span['b'], span['b_ids'])}")
    if sample["output_ids"] is not None:
        _print_block(f"ids ({len(sample['output_ids'])})", " ".join(map(str, sample["output_ids"])))
    if sample["tail"] is not None:
        _print_tail(sample["tail"])
    if sample["reply"] is not None:
        body = folded(sample["reply"]["body"])
        _print_block(f"reply ({sample['reply']['encoding']})", body, SHOWN_REPLY_CHARACTERS)


def folded(text: str) -> str:
    """Leave empty lines out and write a line that repeats once, with how often: a stream's keep-alive comments."""
    lines = [(line, len(list(same))) for line, same in groupby(filter(None, text.splitlines()))]
    return "\n".join(line if times == 1 else f"{line}  ({times} times)" for line, times in lines)


def _opinion_pairs(opinion: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Say what was asked and changed nothing; what was decided stands in the evidence."""
    if opinion is None or opinion["inferred"]:
        return []
    cut = "another cut" if opinion["changed"] else "these ids"
    return [("target model", f"finds {cut} likeliest, posterior {opinion['posterior']:.2f}; nothing was decided")]


def _print_tail(tail: dict[str, Any]) -> None:
    print("\ntail, each id alone:")
    for token in tail["ids"]:
        print(f"  {token['id']:>8}  {token['text']}{'  (special)' if token['special'] else ''}")
    print(f"tail in context: {visible(tail['context'])}")
    if tail["expected_end"] is None:
        print("expected end: none, the answer was cut")
    else:
        answer = "yes" if tail["ends_with_it"] else "NO"
        print(
            f"expected end: {tail['expected_end']['id']} {visible(tail['expected_end']['text'])}; it is there: {answer}"
        )


def _print_block(title: str, text: str, limit: int | None = None) -> None:
    print(f"\n{title}:")
    shown = clean_block(text if limit is None else text[:limit])
    print("\n".join(f"  {line}" for line in shown.splitlines()) or "  -")
    if limit is not None and len(text) > limit:
        print(f"  ... {len(text) - limit:,} more characters; --json has them all")


def _failure(sample: dict[str, Any]) -> str:
    return clean_line(f"{sample['state']}: {sample['failure']['kind']}, {sample['failure']['detail'] or '-'}")


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _drift(sample: dict[str, Any]) -> str:
    return "drift unknown" if sample["drift"] is None else f"drift {sample['drift']:+,}"
