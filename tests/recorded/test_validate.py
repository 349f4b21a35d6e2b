"""Recorded ids against what text alone would give."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.cli.app import main
from eagletui.core.errors import InputError
from eagletui.embedded.data import tokenizer_dir
from eagletui.recorded.ids import RecordedIds, read_recorded_ids
from eagletui.recorded.lines import write_lines
from eagletui.recorded.reconstruct import prepare, reconstruct_file
from eagletui.recorded.replies import read_recorded
from eagletui.recorded.validate import compare, validate_file
from eagletui.tokens.formats import load_format
from eagletui.tokens.load import Tokenizer, load_tokenizer

DATA = Path(__file__).parents[1] / "data"
TRUTH = DATA / "captures" / "kimi-shaped-truth.jsonl"
SMOLLM2 = load_tokenizer(tokenizer_dir())


@pytest.fixture(scope="module")
def kimi() -> Tokenizer:
    return load_tokenizer(DATA / "tokenizers" / "kimi-shaped")


def test_non_canonical_samples_are_counted_by_data_set_and_shown_as_resegmentations(kimi: Tokenizer) -> None:
    compared, summary = validate_file(read_recorded_ids(TRUTH, kimi), kimi, load_format("kimi-k2.5"))
    assert summary["by_dataset"] == {
        "B1_glaive": {"samples": 11, "mismatched": 1},
        "B3_magicoder": {"samples": 12, "mismatched": 3},
    }
    assert set(summary["by_kind"]) == {"~"}
    assert "all same-bytes resegmentations" in summary["verdict"]
    assert summary["findings"] == []
    for found in compared:
        for span in found.spans:
            assert kimi.vocabulary.decode(span.a_ids) == kimi.vocabulary.decode(span.b_ids)


def test_a_lost_end_token_and_another_familys_format_are_findings(tmp_path: Path, kimi: Tokenizer) -> None:
    lines = [json.loads(line) for line in TRUTH.read_text().splitlines()]
    for line in lines:
        line["output_ids"][-1] = 163533
    path = tmp_path / "ids.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, summary = validate_file(read_recorded_ids(path, kimi), kimi, load_format("kimi-k2.5"))
    (finding,) = summary["findings"]
    assert finding["kind"] == "end_token"
    assert "163533" in finding["sentence"]
    assert "arbete" in finding["sentence"]
    assert "Not to be accepted" in summary["verdict"]
    _, other = validate_file(read_recorded_ids(TRUTH, kimi), kimi, load_format("smollm2"))
    assert any("</think>" in finding["sentence"] for finding in other["findings"])


def test_prompts_and_answers_with_a_loss_mask_are_compared_by_their_sampled_ids(tmp_path: Path) -> None:
    ask, answer = SMOLLM2.encode("Say it."), [*SMOLLM2.encode("One. Two."), SMOLLM2.vocabulary.special_id("<|im_end|>")]
    split = [*SMOLLM2.encode("O"), *SMOLLM2.encode("ne. Two."), answer[-1]]
    lines = [
        {"id": "one", "input_ids": [*ask, *answer], "loss_mask": [0] * len(ask) + [1] * len(answer)},
        {
            "id": "two",
            "input_ids": [*ask, *split, *ask, *answer],
            "loss_mask": [0] * len(ask) + [1] * len(split) + [0] * len(ask) + [1] * len(answer),
        },
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    records = read_recorded_ids(path, SMOLLM2)
    assert [(record.id, list(record.output_ids)) for record in records] == [
        ("one", answer),
        ("two#1", split),
        ("two#2", answer),
    ]
    _, summary = validate_file(records, SMOLLM2, load_format("smollm2"))
    assert (summary["samples"], summary["mismatched"], summary["accepted"]) == (3, 1, True)


def test_lines_that_reconstruct_wrote_can_be_validated_with_their_finish_reasons(tmp_path: Path) -> None:
    capture = DATA / "captures" / "smollm2-vllm-served.jsonl"
    recorded = read_recorded(capture, SMOLLM2)
    fmt = load_format("smollm2")
    out = tmp_path / "out.jsonl"
    write_lines(out, reconstruct_file(recorded, prepare(recorded, SMOLLM2, fmt, "kept")).lines)
    records = read_recorded_ids(out, SMOLLM2)
    assert [r.finish_reason for r in records] == [r.reply.finish_reason for r in recorded]
    assert {r.finish_reason for r in records} == {"stop", "length"}
    _, summary = validate_file(records, SMOLLM2, fmt)
    assert summary["accepted"]


@given(st.lists(st.integers(0, SMOLLM2.vocabulary.size - 1).filter(lambda i: i in SMOLLM2.vocabulary), max_size=20))
def test_any_ids_come_back_with_their_bytes_and_their_special_tokens(ids: list[int]) -> None:
    found = compare(RecordedIds("x", "d", tuple(ids), None), SMOLLM2)
    vocabulary = SMOLLM2.vocabulary
    assert vocabulary.decode(found.rebuilt) == vocabulary.decode(ids)
    assert {span.kind for span in found.spans} <= {"~"}
    assert found.mismatched == (found.rebuilt != tuple(ids))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"id": "a"}', "field output_ids: found nothing, expected a list of token ids, or input_ids with a loss_mask"),
        ('{"id": "a", "output_ids": null}', "field output_ids: found null"),
        ('{"id": "a", "input_ids": [1, 2]}', "field loss_mask: found nothing, expected 2 of 0 and 1"),
        ('{"id": "a", "input_ids": [1, 2], "loss_mask": [1]}', "field loss_mask: found 1 numbers, expected 2"),
        ('{"id": "a", "input_ids": [1, 2], "loss_mask": [0, 2]}', r"field loss_mask\[1\]: found 2, expected 0 or 1"),
        ('{"id": "a", "input_ids": [1, 2], "loss_mask": [0, 0]}', "field loss_mask: found no 1"),
        ('{"id": "a", "loss_mask": [1]}', "field input_ids: found null, expected a list of token ids"),
        ('{"output_ids": []}', "field id"),
        ('{"id": "a", "output_ids": [1, 49152]}', r"output_ids\[1\]: found 49152, expected an id of the vocabulary"),
        ('{"id": "a", "output_ids": 3}', "expected a list of token ids"),
        ('{"id": "a", "output_ids": [], "dataset": 3}', "field dataset"),
        ('{"id": "a", "output_ids": [], "finish_reason": 3}', "field finish_reason"),
        ("nonsense", "expected JSON"),
    ],
)
def test_a_broken_line_is_named(line: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "ids.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match=f"ids.jsonl:1.*{complaint}"):
        read_recorded_ids(path, SMOLLM2)


def test_the_command_prints_one_json_object(kimi: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    given_args = ["validate", "--tokenizer", str(kimi.folder), "--format", "kimi-k2.5", str(TRUTH)]

    def said(*more: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as end:
            main([*given_args, *more])
        assert end.value.code == code
        return capsys.readouterr().out

    told = json.loads(said("--json"))
    assert {"samples", "mismatched", "by_dataset", "by_kind", "findings", "verdict"} <= set(told)
    assert told["mismatched"] == 4
    said("--format", "smollm2", code=1)
    shown = said()
    assert "B3_magicoder" in shown
    assert "verdict" in shown
