"""speculators 0.9.0 reads what `export --to speculators` writes, and trains a step on it."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import load_file

from eagletui.core.loaders import SPECULATORS_OFFLINE, SPECULATORS_PREPARE, SampleLength, loader_effect
from tests.conformance.conftest import ROUNDING, apart
from tests.export.exported_run import DRAFT_TOKENS, ExportedRun, add_samples, export, make_run, verify
from tests.tiny_models import streams_of_transformers

pytestmark = pytest.mark.conformance


def _dataset(out: Path, **choices: Any) -> Any:
    from speculators.train.data import ArrowDataset

    return ArrowDataset(4096, str(out), on_missing="raise", **choices)


def _ids(dataset: Any) -> list[tuple[int, ...]]:
    return [tuple(dataset[index]["input_ids"].tolist()) for index in range(len(dataset))]


def _all_ids(made: ExportedRun) -> set[tuple[int, ...]]:
    return {(*(prompt or ()), *output) for prompt, output in made.samples.values()}


def test_every_row_loads_with_its_ids_mask_and_streams(
    made: ExportedRun, speculators_export: tuple[Path, Any], logits: dict[tuple[int, ...], torch.Tensor]
) -> None:
    from transformers import AutoModelForCausalLM

    out, _ = speculators_export
    target = AutoModelForCausalLM.from_pretrained(str(made.model), dtype=torch.bfloat16, local_files_only=True).eval()
    dataset = _dataset(out)
    assert set(_ids(dataset)) == _all_ids(made)
    masks = {(*(prompt or ()), *output): len(prompt or ()) for prompt, output in made.samples.values()}
    for index in range(len(dataset)):
        row = dataset[index]
        ids = tuple(row["input_ids"].tolist())
        assert row["loss_mask"].tolist() == [0] * masks[ids] + [1] * (len(ids) - masks[ids])
        assert row["hidden_states"].shape == (len(ids), 3 * 64)
        assert row["hidden_states"].dtype == torch.bfloat16
        with torch.inference_mode():
            again = target.lm_head(target.model.norm(row["verifier_last_hidden_states"][None]))[0]
        assert apart(again, logits[ids]) <= ROUNDING


def test_the_loader_trains_one_finite_step(made: ExportedRun, speculators_export: tuple[Path, Any]) -> None:
    from speculators.losses import resolve_loss_config
    from speculators.models.eagle3 import Eagle3DraftModel
    from speculators.models.eagle3.data import shift_batch
    from speculators.train.data import CollateFn
    from transformers import LlamaConfig

    out, _ = speculators_export
    dataset = _dataset(out)
    collate = CollateFn(256, 64, 3, dtype=torch.float32, preprocess=shift_batch)
    batch = collate([dataset[index] for index in range(len(dataset))])
    assert batch.pop("error_records") == 0
    torch.manual_seed(7)
    draft = Eagle3DraftModel.from_training_args(
        verifier_config=LlamaConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=512,
        ),
        t2d=torch.from_numpy(numpy.load(out / f"t2d-{DRAFT_TOKENS}.npy")),
        d2t=torch.from_numpy(numpy.load(out / f"d2t-{DRAFT_TOKENS}.npy")),
        num_layers=1,
        ttt_steps=3,
        verifier_name_or_path=str(made.model),
        norm_before_residual=True,
        draft_vocab_size=DRAFT_TOKENS,
        draft_attn_impl="eager",
        norm_before_fc=False,
        embed_requires_grad=False,
    ).float()
    _, loss, _ = draft(**batch, ttt_steps=3, loss_config=resolve_loss_config("kl_div", "eager"))
    loss.backward()
    gradients = [weight.grad for weight in draft.parameters() if weight.grad is not None]
    assert torch.isfinite(loss)
    assert float(loss.detach()) > 0
    assert gradients
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)


def test_the_draft_vocabulary_is_the_one_they_would_choose_from_the_frequencies(
    speculators_export: tuple[Path, Any],
) -> None:
    from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution

    out, _ = speculators_export
    frequencies = torch.load(out / "token_freq.pt", weights_only=True)
    d2t, t2d = build_vocab_mappings_from_distribution(frequencies, DRAFT_TOKENS, 512)
    assert numpy.load(out / f"d2t-{DRAFT_TOKENS}.npy").tolist() == d2t.tolist()
    assert numpy.load(out / f"t2d-{DRAFT_TOKENS}.npy").tolist() == t2d.tolist()


def test_the_frequencies_are_those_they_would_count(speculators_export: tuple[Path, Any], tmp_path: Path) -> None:
    from datasets import load_from_disk
    from speculators.train.vocab_mapping import save_token_frequency_distribution

    out, _ = speculators_export
    save_token_frequency_distribution(load_from_disk(str(out)), tmp_path / "theirs.pt")
    assert torch.load(tmp_path / "theirs.pt", weights_only=True) == torch.load(out / "token_freq.pt", weights_only=True)


def test_the_printed_command_resolves_and_splits_where_the_export_does(speculators_export: tuple[Path, Any]) -> None:
    from speculators.train.config import TrainConfig

    out, printed = speculators_export
    program, verb, *words = shlex.split(printed["command"])
    assert (program, verb) == ("speculators", "train")
    config = TrainConfig.resolve(words)
    assert config.draft.target_layer_ids == [2, 4, 5]
    assert config.draft.draft_vocab_size == DRAFT_TOKENS
    assert config.generation.on_missing == "raise"
    ratio = config.data.train_data_ratio
    train, validation = (_dataset(out, train_ratio=ratio, split=split) for split in ("train", "val"))
    assert (len(train), len(validation)) == (printed["train_rows"], printed["validation_rows"])
    assert printed["validation_rows"] >= 1
    assert set(_ids(train)) | set(_ids(validation)) == set(_ids(_dataset(out)))


@pytest.mark.parametrize("limit", [8192, 33, 21, 8])
def test_prepare_data_takes_the_ids_as_they_are(made: ExportedRun, tmp_path: Path, limit: int) -> None:
    from speculators.data_generation.preprocessing import build_speculator_training_dataset, load_raw_dataset
    from transformers import PreTrainedTokenizerFast

    printed = export(made, "jsonl", tmp_path / "out")
    raw, _ = load_raw_dataset(printed["file"])
    processor = PreTrainedTokenizerFast.__new__(PreTrainedTokenizerFast)
    built = build_speculator_training_dataset(raw, processor, max_length=limit, num_proc=1)
    loaded = {tuple(row["input_ids"].tolist()) for row in built}
    lengths = [SampleLength(len(prompt or ()), len(output)) for prompt, output in made.samples.values()]
    effect = loader_effect(SPECULATORS_PREPARE, lengths, limit)
    assert len(lengths) - len(built) == effect.dropped
    assert len(loaded - _all_ids(made)) == effect.truncated
    assert printed["loaders"][1]["changed"] == 0
    if limit == 8192:
        assert loaded == _all_ids(made)


@pytest.mark.parametrize("limit", [8192, 64, 63, 62, 33, 32, 21, 13, 8])
def test_the_training_keeps_as_much_of_a_row_as_the_rule_says(speculators_export: tuple[Path, Any], limit: int) -> None:
    from speculators.models.eagle3.data import shift_batch
    from speculators.train.data import CollateFn

    dataset = _dataset(speculators_export[0])
    collate = CollateFn(limit, 64, 3, preprocess=shift_batch)
    lengths, truncated, dropped = [], 0, 0
    for index in range(len(dataset)):
        row = dataset[index]
        sampled = int(row["loss_mask"].sum())
        lengths.append(SampleLength(len(row["input_ids"]) - sampled, sampled))
        left = int(collate([row])["loss_mask"].sum())
        dropped += left == 0
        truncated += 0 < left < sampled
    effect = loader_effect(SPECULATORS_OFFLINE, lengths, limit)
    assert (effect.truncated, effect.dropped) == (truncated, dropped)


def test_the_server_of_a_short_limit_takes_whole_rows_and_starts_within_the_models_positions(
    made: ExportedRun, tmp_path: Path
) -> None:
    args = ("--online", "--model", str(made.model))
    printed = export(made, "speculators", tmp_path / "out", *args, "--max-length", "33")
    server = shlex.split(printed["commands"][0])
    assert server[server.index("--max-model-len") + 1] == "65"  # the longest row has 64 tokens
    assert (printed["loaders"][0]["truncated"], printed["loaders"][0]["dropped"]) == (2, 0)
    free = shlex.split(export(made, "speculators", tmp_path / "free", *args)["commands"][0])
    assert free[free.index("--max-model-len") + 1] == "1024"


def test_ids_alone_make_the_same_dataset_without_states(made: ExportedRun, tmp_path: Path) -> None:
    from datasets import load_from_disk

    printed = export(made, "speculators", tmp_path / "out", "--online", "--model", str(made.model))
    assert printed["route"] == "online"
    assert printed["commands"][0].startswith("vllm serve")
    rows = load_from_disk(str(tmp_path / "out"))
    assert {tuple(row["input_ids"].tolist()) for row in rows} == _all_ids(made)
    assert rows.features["input_ids"].feature.dtype == "int64"
    assert not (tmp_path / "out" / "hidden_states").exists()
    assert verify(made, tmp_path / "out", code=0) == {}


@pytest.mark.parametrize(
    ("file", "field", "value", "check", "said"),
    [
        ("state.json", "_format_type", "numpy", "layout", "gives rows out as numpy, and the trainer compares tensors"),
        ("state.json", "_format_columns", ["input_ids", "seq_len"], "layout", "leaves out loss_mask of each row"),
        ("manifest.json", "route", "online", "files", "reads this folder online, and 8 of 8 rows have files"),
    ],
)
def test_a_dataset_without_tensors_or_a_column_and_features_under_another_route_are_found(
    made: ExportedRun,
    speculators_export: tuple[Path, Any],
    tmp_path: Path,
    file: str,
    field: str,
    value: object,
    check: str,
    said: str,
) -> None:
    out = Path(shutil.copytree(speculators_export[0], tmp_path / "out"))
    stated = json.loads((out / file).read_text())
    (out / file).write_text(json.dumps({**stated, field: value}))
    assert said in verify(made, out, code=1)[check]


def test_features_in_fp8_go_in_as_they_are_and_load_through_their_own_transfer(tmp_path: Path) -> None:
    from hs_connectors import FP8Transfer
    from speculators.train.config import TrainConfig

    made = make_run(tmp_path, (17, 33), dtype="fp8")
    out = tmp_path / "out"
    printed = export(made, "speculators", out)
    config = TrainConfig.resolve(shlex.split(printed["command"])[2:])
    assert config.data.hidden_states_backend == "fp8"
    dataset = _dataset(out, transfer=FP8Transfer(out / "hidden_states"))
    assert set(_ids(dataset)) == _all_ids(made)
    for index in range(len(dataset)):
        row = dataset[index]
        ids = tuple(row["input_ids"].tolist())
        aux, _ = streams_of_transformers(made.model, ids, dtype=torch.bfloat16)
        difference = torch.linalg.vector_norm(row["hidden_states"].float() - aux.reshape(len(ids), -1).float())
        assert float(difference / torch.linalg.vector_norm(aux.float())) < 0.04
    assert verify(made, out, code=0) == {}


def test_adding_samples_keeps_order_sides_vocabulary_and_files(tmp_path: Path) -> None:
    made = make_run(tmp_path, (17, 33, 20, 21))
    out = tmp_path / "out"
    first = export(made, "speculators", out, "--draft-vocab-size", "64", "--validation", "30")
    parts = [_ids(_dataset(out, train_ratio=_ratio(first), split=split)) for split in ("train", "val")]
    vocabulary = (out / "d2t-64.npy").read_bytes()
    states = {tuple(load_file(file)["token_ids"].tolist()): file.read_bytes() for file in _state_files(out)}
    add_samples(made, (12, 30, 26, 15, 18, 11))
    second = export(made, "speculators", out)
    grown = [_ids(_dataset(out, train_ratio=_ratio(second), split=split)) for split in ("train", "val")]
    assert (second["added"], second["files_written"], second["samples"]) == (6, 6, 10)
    for before, after in zip(parts, grown, strict=True):
        assert after[: len(before)] == before
    assert set(grown[0]).isdisjoint(grown[1])
    assert set(grown[0]) | set(grown[1]) == _all_ids(made)
    assert (out / "d2t-64.npy").read_bytes() == vocabulary
    kept = {tuple(load_file(file)["token_ids"].tolist()): file.read_bytes() for file in _state_files(out)}
    assert {ids: kept[ids] for ids in states} == states
    assert verify(made, out, code=0) == {}


def test_a_folder_of_one_row_can_be_trained_on_once_it_has_grown(tmp_path: Path) -> None:
    from speculators.train.dataloader import create_train_val_loaders

    made = make_run(tmp_path, (17,))
    out = tmp_path / "out"
    first = export(made, "speculators", out)
    (note,) = first["notes"]
    assert "refuses a set of one row: no command trains on this one. Add prompts with eagletui add " in note
    assert (first["commands"], first["command"]) == ([], None)
    add_samples(made, (12, 30))
    ratio = _ratio(export(made, "speculators", out))
    train, validation = create_train_val_loaders(
        data_path=str(out),
        total_seq_len=8192,
        hidden_states_dtype=torch.bfloat16,
        vllm_endpoint="http://127.0.0.1:1/v1",
        on_missing="raise",
        verifier_name_or_path=str(made.model),
        request_timeout=1.0,
        max_retries=0,
        generation_validation_retries=0,
        max_consecutive_generation_failures=1,
        hidden_size=64,
        num_target_layers=3,
        num_workers=0,
        prefetch_factor=1,
        preprocess=None,
        train_data_ratio=ratio,
    )
    assert (len(train.dataset), len(validation.dataset)) in ((2, 1), (1, 2))


def _ratio(printed: Any) -> float:
    words = shlex.split(printed["command"])
    return float(words[words.index("--train-data-ratio") + 1])


def _state_files(out: Path) -> list[Path]:
    return sorted((out / "hidden_states").iterdir())
