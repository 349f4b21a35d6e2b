"""SpecForge 0.2.0 reads what `export --to specforge` writes, and sees the target's own distribution."""

import contextlib
import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from eagletui.core.loaders import SPECFORGE_OFFLINE, SPECFORGE_ONLINE, SampleLength, loader_effect
from tests.conformance.conftest import ROUNDING, apart
from tests.export.exported_run import DRAFT_TOKENS, ExportedRun, export, make_run

pytestmark = pytest.mark.conformance


def _refs(out: Path) -> list[Any]:
    from specforge.runtime.data_plane.offline_reader import OfflineManifestReader

    return list(OfflineManifestReader(str(out), validate_files=True).read())


def _raw(ref: Any) -> dict[str, torch.Tensor]:
    from specforge.runtime.data_plane.feature_store import load_feature_file

    content: dict[str, torch.Tensor] = load_feature_file(ref.feature_store_uri.removeprefix("file://"))
    return content


def _providers() -> Any:
    from specforge.algorithms.builtin import builtin_algorithm_registry

    return builtin_algorithm_registry().resolve("eagle3")


def test_the_reader_finds_every_sample_with_the_keys_of_the_contract(
    made: ExportedRun, specforge_export: tuple[Path, Any]
) -> None:
    out, _ = specforge_export
    required = _providers().spec.feature_contract("offline", "text").storage.required_tensors
    found = {}
    for ref in _refs(out):
        raw = _raw(ref)
        assert set(raw) == set(required)
        found[tuple(raw["input_ids"].tolist())] = raw["loss_mask"].tolist()
    expected = {
        (*(prompt or ()), *output): [0] * len(prompt or ()) + [1] * len(output)
        for prompt, output in made.samples.values()
    }
    assert found == expected


def test_the_target_head_over_loaded_features_gives_the_models_own_logits(
    made: ExportedRun, specforge_export: tuple[Path, Any], logits: dict[tuple[int, ...], torch.Tensor]
) -> None:
    from specforge.modeling.target.target_head import TargetHead
    from specforge.runtime.data_plane.feature_dataloader import FeatureDataLoader
    from specforge.runtime.data_plane.feature_store import LocalFeatureStore

    out, printed = specforge_export
    config = json.loads((out / "specforge.json").read_text())
    head = TargetHead.from_pretrained(str(made.model), lm_head_key=config["model"]["lm_head_key"])
    provider = _providers().providers.offline_for("text")
    loader = FeatureDataLoader(
        LocalFeatureStore(),
        refs=_refs(out),
        batch_size=1,
        collate_fn=provider.build_collator(),
        per_sample_transform=provider.build_normalizer(printed["loaders"][0]["max_length"]),
        strategy="eagle3",
        ack=False,
    )
    seen = 0
    for batch in loader:
        ids = tuple(batch.tensors["input_ids"][0].tolist())
        with torch.inference_mode():
            found = head(batch.tensors["target"])[0]
        assert apart(found, logits[ids]) <= ROUNDING
        assert batch.tensors["hidden_state"].shape == (1, len(ids), 3 * 64)
        seen += 1
    assert seen == len(made.samples)


def test_the_draft_vocabulary_loads_and_covers_as_much_as_their_own_choice(specforge_export: tuple[Path, Any]) -> None:
    from specforge.core.compact_teacher import validate_vocab_mapping_consistency
    from specforge.data.preprocessing import process_token_dict_to_mappings
    from specforge.training.vocab_mapping import count_effective_feature_tokens

    out, printed = specforge_export
    mapping = torch.load(out / "vocab_mapping" / "vocab_mapping.pt", weights_only=True)
    validate_vocab_mapping_consistency(mapping["t2d"], mapping["d2t"])
    counts = count_effective_feature_tokens(str(out), target_vocab_size=512)
    assert (mapping["d2t"].dtype, tuple(mapping["d2t"].shape)) == (torch.int64, (DRAFT_TOKENS,))
    assert (mapping["t2d"].dtype, tuple(mapping["t2d"].shape)) == (torch.bool, (512,))
    ours = sum(counts[token] for token in mapping["t2d"].nonzero().flatten().tolist())
    assert printed["draft_vocabulary"]["coverage"] == pytest.approx(ours / counts.total(), abs=1e-6)
    with contextlib.redirect_stdout(io.StringIO()):
        _, theirs = process_token_dict_to_mappings(counts.copy(), DRAFT_TOKENS, 512)
    assert ours == sum(counts[token] for token in theirs.nonzero().flatten().tolist())


@pytest.mark.parametrize("online", [False, True])
def test_the_printed_command_is_a_plan_that_specforge_accepts(made: ExportedRun, tmp_path: Path, online: bool) -> None:
    from specforge.cli import main
    from specforge.config import load_config

    args = ("--online", "--model", str(made.model)) if online else ()
    printed = export(made, "specforge", tmp_path / "out", *args)
    program, *words = shlex.split(printed["command"])
    assert program == "specforge"
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([*words, "--plan"]) == 0
    config = load_config(words[2], words[3:])
    assert config.mode == ("online" if online else "offline")
    assert config.model.aux_hidden_state_layer_ids == [1, 3, 4]
    assert config.data.max_length == printed["loaders"][0]["max_length"]


def test_the_draft_config_of_an_uncommon_size_is_one_that_specforge_accepts(
    specforge_export: tuple[Path, Any],
) -> None:
    from specforge.config import load_config
    from specforge.training.model_loading import resolve_draft_config

    out, _ = specforge_export
    config = load_config(str(out / "specforge.json"))
    draft = resolve_draft_config(config, provider=_providers().providers.model.draft_config)
    assert (draft.draft_vocab_size, draft.vocab_size, draft.hidden_size) == (DRAFT_TOKENS, 512, 64)


def test_a_target_with_a_nested_config_loads_from_the_head_beside_its_features(tmp_path: Path) -> None:
    from specforge.cli import main
    from specforge.config import load_config
    from specforge.modeling.target.target_head import TargetHead
    from specforge.training.model_loading import resolve_draft_config
    from transformers import AutoModelForImageTextToText

    kimi = make_run(tmp_path, (17, 9), kind="kimi_k25")
    out = tmp_path / "out"
    _, *words = shlex.split(export(kimi, "specforge", out, "--draft-vocab-size", "64")["command"])
    with pytest.raises(AttributeError):
        TargetHead.from_pretrained(str(kimi.model), lm_head_key="language_model.lm_head.weight")
    config = load_config(words[2], words[3:])
    head = TargetHead.from_pretrained(config.model.target_model_path, lm_head_key=config.model.lm_head_key)
    target = AutoModelForImageTextToText.from_pretrained(str(kimi.model), dtype=torch.bfloat16, local_files_only=True)
    for ref in _refs(out):
        raw = _raw(ref)
        with torch.inference_mode():
            expected = target.eval()(raw["input_ids"][None]).logits[0]
            assert apart(head(raw["hidden_state"])[0], expected) <= ROUNDING
    provider = _providers().providers.model
    draft_config = resolve_draft_config(config, provider=provider.draft_config)
    assert (draft_config.hidden_size, draft_config.vocab_size, draft_config.draft_vocab_size) == (64, 512, 64)
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([*words, "--plan"]) == 0


@pytest.mark.parametrize("limit", [2048, 33, 21, 8])
def test_the_offline_loader_changes_as_many_samples_as_the_rule_says(
    specforge_export: tuple[Path, Any], limit: int
) -> None:
    normalize = _providers().providers.offline_for("text").build_normalizer(limit)
    lengths, truncated, dropped = [], 0, 0
    for ref in _refs(specforge_export[0]):
        raw = _raw(ref)
        sampled = int(raw["loss_mask"].sum())
        lengths.append(SampleLength(len(raw["input_ids"]) - sampled, sampled))
        made = normalize(raw)
        if not int(made["loss_mask"].sum()):
            dropped += 1
        elif made["input_ids"].shape[1] < len(raw["input_ids"]):
            truncated += 1
    effect = loader_effect(SPECFORGE_OFFLINE, lengths, limit)
    assert (effect.truncated, effect.dropped) == (truncated, dropped)


@pytest.mark.parametrize("form", ["jsonl", "specforge"])
@pytest.mark.parametrize("limit", [2048, 33, 21, 8])
def test_the_online_loader_takes_the_ids_as_they_are(made: ExportedRun, tmp_path: Path, form: str, limit: int) -> None:
    from specforge.data.prompt_builder import prepare_prompt_tasks

    args = () if form == "jsonl" else ("--online", "--model", str(made.model))
    printed = export(made, form, tmp_path / "out", *args)
    file = tmp_path / "out" / ("train.jsonl" if form == "jsonl" else "prompts.jsonl")
    tasks = prepare_prompt_tasks(
        str(file),
        None,
        chat_template=None,
        max_length=limit,
        is_preformatted=False,
        train_only_last_turn=False,
        cache_dir=None,
        cache_key=None,
        num_proc=None,
    )
    loaded = {tuple(task["payload"]["input_ids"]) for task in tasks}
    whole = {(*(prompt or ()), *output) for prompt, output in made.samples.values()}
    lengths = [SampleLength(len(prompt or ()), len(output)) for prompt, output in made.samples.values()]
    effect = loader_effect(SPECFORGE_ONLINE, lengths, limit)
    assert len(whole) - len(tasks) == effect.dropped
    assert len(loaded - whole) == effect.truncated
    assert printed["loaders"][0]["changed"] == 0
    if limit == 2048:
        assert loaded == whole
