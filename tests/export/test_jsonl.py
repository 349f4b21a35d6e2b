import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from eagletui.cli.app import main
from eagletui.cli.loader_lines import by_text_line
from eagletui.core.errors import RunError
from eagletui.core.row_order import joins_validation
from eagletui.core.tokdiff import Span
from eagletui.export.held_out import validation_last
from eagletui.export.jsonl import export_jsonl
from eagletui.export.rows import TrainingRow
from eagletui.export.selection import read_selection
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.orders import TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.folder import RunFolder
from tests.extract.small_run import answer_samples, create_run
from tests.tiny_models import save_tiny_model


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = create_run(tmp_path_factory.mktemp("original") / "run", None)
    answer_samples(run, [((1, 2), (3, 4, 5)), ((6,), (7,))])
    answer_samples(run, [((8,), (9, 10))], first=2, usability="resegmented")
    answer_samples(run, [((11,), (12,))], first=3, usability="text_suspect")
    answer_samples(run, [(None, (13, 14))], first=4)
    return run


@pytest.fixture
def folder(original: RunFolder, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(original.path, tmp_path / "run")))


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _run(*args: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(args)
    assert isinstance(end.value.code, int)
    return end.value.code


def test_rows_hold_exact_ids_an_unshifted_mask_and_their_evidence(folder: RunFolder, tmp_path: Path) -> None:
    exported = export_jsonl(folder, tmp_path / "out")
    first, second, third = _lines(exported.file)
    assert first == {
        "id": "s0",
        "input_ids": [1, 2, 3, 4, 5],
        "loss_mask": [0, 0, 1, 1, 1],
        "evidence": "served",
        "usability": "usable",
        "finish_reason": "stop",
        "dataset": "tiny",
        "endpoint": "tiny/endpoint",
        "prompt_tokens": 2,
        "output_tokens": 3,
        "resegmented_spans": 0,
        "tail_trimmed": False,
    }
    assert (second["id"], third["id"], third["usability"]) == ("s1", "s2", "resegmented")


def test_rows_to_validate_on_come_last_and_stay_there_when_answers_come_late(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", None)
    answer_samples(run, [((1, 2), (3, number)) for number in range(60)])
    first = export_jsonl(run, tmp_path / "out")
    before = [line["id"] for line in _lines(first.file)]
    held_out = before[-first.validation_rows :]
    assert 0 < first.validation_rows < 20
    assert held_out == [f"s{number}" for number in range(60) if joins_validation(f"s{number}", 10)]
    answer_samples(run, [((1, 2), (3, number)) for number in range(40)], first=60)
    second = export_jsonl(run, tmp_path / "out")
    after = [line["id"] for line in _lines(second.file)]
    assert sorted(after) == sorted(f"s{number}" for number in range(100))
    assert set(after[-second.validation_rows :]) & set(before) == set(held_out)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["validation_rows"] == second.validation_rows > first.validation_rows


def test_rows_to_validate_on_go_into_a_file_of_their_own_and_one_that_is_stale_goes(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", None)
    answer_samples(run, [((1, 2), (3, number)) for number in range(60)])
    whole = [line["id"] for line in _lines(export_jsonl(run, tmp_path / "whole").file)]
    apart = export_jsonl(run, tmp_path / "out", validation_apart=True)
    assert apart.validation_file == tmp_path / "out" / "validation.jsonl"
    parts = [[line["id"] for line in _lines(file)] for file in (apart.file, apart.validation_file)]
    assert [*parts[0], *parts[1]] == whole
    assert len(parts[1]) == apart.validation_rows > 0
    manifest = json.loads(apart.manifest.read_text())
    sha256 = hashlib.sha256(apart.validation_file.read_bytes()).hexdigest()
    size = apart.validation_file.stat().st_size
    assert manifest["validation_file"] == {"file": "validation.jsonl", "bytes": size, "sha256": sha256}
    picked = tmp_path / "picked.txt"
    picked.write_text("s1\n", encoding="utf-8")
    export_jsonl(run, tmp_path / "out", only=read_selection(picked), validation_apart=True)
    assert not apart.validation_file.exists()


def test_a_set_that_would_only_be_validated_on_is_trained_on(tmp_path: Path) -> None:
    held_out = next(f"s{number}" for number in range(100) if joins_validation(f"s{number}", 10))
    row = TrainingRow(held_out, (1, 2), (0, 1), "served", "usable", None, "d", None, 1, 1, 0, False)
    assert list(validation_last([row], tmp_path)) == [(row, False)]


def test_the_file_says_that_trainers_train_on_all_of_it_to_people_and_in_json(
    folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_samples(folder, [((1, 2), (3, number)) for number in range(60)], first=5)
    args = ("export", str(folder.path), "--to", "jsonl", "--out", str(tmp_path / "out"))
    assert _run(*args, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    held_out = sum(joins_validation(line["id"], 10) for line in _lines(tmp_path / "out" / "train.jsonl"))
    sides = (printed["train_rows"], printed["validation_rows"], printed["validation_file"])
    assert sides == (63 - held_out, held_out, None)
    assert json.loads(Path(printed["manifest"]).read_text())["validation_rows"] == held_out > 0
    assert any("prepare-data of speculators shuffles all rows together" in note for note in printed["notes"])
    assert any("SpecForge and prepare-data train on the whole file" in note for note in printed["notes"])
    assert _run(*args) == 0
    told = capsys.readouterr().out
    share = (
        f"{63 - held_out} to train on, {held_out} to validate on ({100 * held_out / 63:.1f} %), these last in the file"
    )
    assert share in told
    assert all(note in told for note in printed["notes"])


def test_a_file_whose_tail_is_far_from_a_tenth_says_the_real_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held_out = next(number for number in range(1, 100) if joins_validation(f"s{number}", 10))
    run = create_run(tmp_path / "run", None)
    answer_samples(run, [((1, 2), (3, 4))] * 2, first=held_out - 1)
    assert _run("export", str(run.path), "--to", "jsonl", "--out", str(tmp_path / "out"), "--json") == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert any("1 of 2 rows, 50.0 %, are to validate on, and 10 % were asked" in note for note in notes)
    assert not any("tenth" in note for note in notes)


def test_a_hidden_tail_alone_is_no_other_id_in_the_ledger_and_in_an_export(tmp_path: Path) -> None:
    """One sample differs inside its text, one only behind it, where a cut hides half a character."""
    run = create_run(tmp_path / "run", None)
    answer_samples(run, [((1, 2), (3, 4)), ((5,), (6, 7))])
    inside, tail = Span(0, 2, (3,), (9,), "~"), Span(4, 1, (7,), (), "+")
    with LedgerWriter(run.ledger_path) as writer, LedgerReader(run.ledger_path) as reader:
        for key, spans in (("s0", (inside,)), ("s1", (tail,))):
            detail = reader.sample(key)
            assert detail is not None
            assert detail.tokens is not None
            prompt, output = (tuple(ids or ()) for ids in (detail.tokens.prompt_ids, detail.tokens.output_ids))
            result = TokensResult(output, "text", "served", "usable", prompt_ids=prompt, spans=spans)
            writer.store_tokens(detail.row.id, result)
        in_ledger = sum(bool(row.spans) for row in reader.page(SampleFilter(), None, 9))
    exported = export_jsonl(run, tmp_path / "out")
    assert [line["resegmented_spans"] for line in _lines(exported.file)] == [1, 0]
    assert exported.by_text_changed == in_ledger == 1


def test_a_file_of_one_row_says_that_speculators_refuses_it_and_how_to_add_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(tmp_path / "run", None)
    answer_samples(run, [((1, 2), (3, 4))])
    assert _run("export", str(run.path), "--to", "jsonl", "--out", str(tmp_path / "out"), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    told = (
        f"refuses a set of one row: no command trains on this one. Add prompts with eagletui add {run.argument} PROMPTS"
    )
    assert told in printed["notes"][0]
    assert [command.split()[:2] for command in printed["commands"]] == [["speculators", "prepare-data"]]


def test_answers_to_one_prompt_lie_on_one_side(tmp_path: Path) -> None:
    rows = [
        TrainingRow(f"p{prompt}.a{answer}", (1, 2), (0, 1), "served", "usable", None, "d", None, 1, 1, 0, False)
        for answer in range(3)
        for prompt in range(40)
    ]
    placed = list(validation_last(rows, tmp_path))
    assert [is_held_out for _, is_held_out in placed] == sorted(is_held_out for _, is_held_out in placed)
    sides = {(row.id.partition(".")[0], is_held_out) for row, is_held_out in placed}
    assert len(sides) == 40
    assert any(is_held_out for _, is_held_out in sides)
    assert {row.id: row for row, _ in placed} == {row.id: row for row in rows}


def test_only_the_picked_samples_are_written_in_their_order(folder: RunFolder, tmp_path: Path) -> None:
    picked = tmp_path / "picked.txt"
    picked.write_text("s2\n\n s0 \ns3\ns2\n", encoding="utf-8")
    assert _run("export", str(folder.path), "--to", "jsonl", "--out", str(tmp_path / "out"), "--only", str(picked)) == 0
    assert [line["id"] for line in _lines(tmp_path / "out" / "train.jsonl")] == ["s2", "s0"]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["picked"], manifest["left_out"]) == (3, {"text_suspect": 1})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"s0\nnobody\n", "picked.txt:2: found nobody, expected the id of a sample of run"),
        (b"\n \n", "found no sample id"),
        (b"\xff", "byte 0 is not UTF-8"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_a_selection_that_names_nothing_known_is_refused_and_nothing_is_written(
    folder: RunFolder, tmp_path: Path, content: bytes | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    picked = tmp_path / "picked.txt"
    if content is not None:
        picked.write_bytes(content)
    assert _run("export", str(folder.path), "--to", "jsonl", "--out", str(tmp_path / "out"), "--only", str(picked)) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out" / "train.jsonl").exists()


def test_the_manifest_counts_what_is_in_and_what_is_left_out(folder: RunFolder, tmp_path: Path) -> None:
    exported = export_jsonl(folder, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["samples"], manifest["tokens"], manifest["sampled_tokens"]) == (3, 10, 6)
    assert manifest["left_out"] == {"no_prompt_ids": 1, "text_suspect": 1}
    assert manifest["by_usability"] == {"usable": 2, "resegmented": 1}
    assert manifest["sha256"] == hashlib.sha256(exported.file.read_bytes()).hexdigest()
    assert (manifest["model"], manifest["tokenizer_hash"]) == ("tiny/random", "00ff")


def test_other_usabilities_come_in_only_when_asked_for(folder: RunFolder, tmp_path: Path) -> None:
    exported = export_jsonl(folder, tmp_path / "out", also=("text_suspect",))
    assert [line["id"] for line in _lines(exported.file)] == ["s0", "s1", "s2", "s3"]
    assert dict(exported.census.left_out) == {"no_prompt_ids": 1}


def test_a_failed_export_leaves_the_earlier_one_untouched(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = export_jsonl(folder, tmp_path / "out")
    before = exported.file.read_bytes()

    def full(_row: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("msgspec.json.encode", full)
    with pytest.raises(RunError, match="cannot be written: No space left on device"):
        export_jsonl(folder, tmp_path / "out")
    assert exported.file.read_bytes() == before
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["manifest.json", "train.jsonl"]


def test_a_run_without_samples_says_so_and_writes_nothing(tmp_path: Path) -> None:
    empty = create_run(tmp_path / "run", None)
    with pytest.raises(RunError, match="no samples to export yet"):
        export_jsonl(empty, tmp_path / "out" / "inner")
    assert not (tmp_path / "out").exists()


def test_what_text_would_change_is_a_lower_bound_and_says_what_cannot_be_told() -> None:
    said = by_text_line(13, 200, {"served": 20, "streamed": 30, "counted": 140, "canonical": 8, "conflict": 2})
    assert "other ids in at least 13 of 200 samples; 150 more cannot be told, their ids are not proved." in said
    assert said.endswith("reasoning for one, and what a cut in mid-character hides come on top")
    assert "cannot be told" not in by_text_line(0, 5, {"served": 5})


def test_the_command_prints_one_json_object(
    folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("export", str(folder.path), "--to", "jsonl", "--out", str(tmp_path / "out"), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(loader["by_text_changed"], loader["by_text_unproved"]) for loader in printed["loaders"]] == [(0, 0)] * 2
    assert (printed["run"], printed["samples"], printed["file"]) == ("run", 3, str(tmp_path / "out" / "train.jsonl"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--to", "arrow"), "--to: found arrow, expected jsonl, specforge"),
        (("--to", "jsonl", "--online"), "--online does not go with --to jsonl; it is for specforge, speculators"),
        (("--to", "torchspec"), "--model (model.target_model_path), --max-length (training.max_seq_length), --chat-"),
        (("--to", "speculators", "--chat-template", "qwen"), "--chat-template does not go with --to speculators"),
        (("--to", "jsonl", "--include", "everything"), "--include: found everything, expected text_suspect"),
    ],
)
def test_unknown_choices_exit_2_and_write_nothing(
    folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
) -> None:
    assert _run("export", str(folder.path), *args, "--out", str(tmp_path / "out")) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_commands_name_the_layers_where_the_runs_target_is_known(
    folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a target with 8 layers: speculators names the layers that a stream enters, vLLM the end as well."""
    assert _run("export", str(folder.path), "--to", "jsonl", "--out", str(tmp_path / "out"), "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["commands"]) == 1
    model = save_tiny_model(tmp_path / "model", "qwen3")
    known = create_run(tmp_path / "known", model)
    answer_samples(known, [((1, 2), (3, 4, 5)), ((1, 2), (3, 4))])
    assert _run("export", str(known.path), "--to", "jsonl", "--out", str(tmp_path / "out"), "--json") == 0
    _, server, training = json.loads(capsys.readouterr().out)["commands"]
    assert '"eagle_aux_hidden_state_layer_ids": [2, 4, 5, 8]' in server
    assert "--target-layer-ids 2 4 5" in training
    assert _run("export", str(known.path), "--to", "jsonl", "--out", str(tmp_path / "out")) == 0
    heading, *shown = capsys.readouterr().out.splitlines()[-4:]
    assert heading == "# Next, one after the other; vllm serve stays up, in a shell of its own:"
    assert [line.split()[:2] for line in shown] == [
        ["speculators", "prepare-data"],
        ["vllm", "serve"],
        ["speculators", "train"],
    ]


def test_without_a_form_the_config_says_which_and_files_go_into_the_run(
    folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.config_path.write_text(
        f'[run]\nname = "r"\n[prompts]\npath = ["p.jsonl"]\n[model]\nid = "m"\ntokenizer = "{tmp_path}"\n'
        'format = "smollm2"\n[provider]\nkind = "vllm"\nbase_url = "http://127.0.0.1:1/v1"\n'
        '[spend]\nstop_at_usd = "1"\ncap_usd = "1"\n[export]\nto = ["jsonl", "torchspec"]\n'
    )
    assert _run("export", str(folder.path), "--out", str(tmp_path / "out")) == 2
    assert "[export] names jsonl, torchspec; expected one FORM" in capsys.readouterr().err
    folder.config_path.write_text(folder.config_path.read_text().replace(', "torchspec"', ""))
    assert _run("export", str(folder.path)) == 0
    assert len(_lines(folder.exports_dir / "jsonl" / "train.jsonl")) == 3
