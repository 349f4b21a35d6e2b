"""Layer ids for trainers that let SGLang run the target."""

from functools import partial
from pathlib import Path
from typing import Final

import pytest

from eagletui.core.sglang_layers import misread_by_sglang
from eagletui.export.jsonl import export_jsonl
from tests.export.exported_run import command
from tests.extract.small_run import answer_samples, create_run
from tests.tiny_models import save_tiny_model

ROUTES: Final = (
    ("specforge", ("--online",)),
    ("parquet", ()),
    ("torchspec", ("--model", "named/target", "--max-length", "64", "--chat-template", "deepseek")),
)


@pytest.mark.parametrize(
    ("kind", "outputs", "is_misread"),
    [
        ("DeepseekV3ForCausalLM", (2, 3, 5), True),
        ("KimiK25ForConditionalGeneration", (0, 3, 5), True),
        ("kimi_k2", (2, 3, 5), True),
        ("GlmMoeDsaForCausalLM", (2, 3, 5), True),
        ("MistralLarge3ForCausalLM", (2, 3, 5), True),
        ("DeepseekV3ForCausalLM", (1, 3, 5), False),
        ("Glm4MoeForCausalLM", (2, 3, 5), False),
        ("Qwen3ForCausalLM", (2, 3, 5), False),
    ],
)
def test_classes_that_count_otherwise_are_known_by_architecture_and_model_type(
    kind: str, outputs: tuple[int, ...], is_misread: bool
) -> None:
    assert (misread_by_sglang(kind, outputs) is not None) == is_misread


@pytest.mark.parametrize(("form", "flags"), ROUTES)
def test_layers_that_sglang_would_take_for_others_are_refused_and_nothing_is_written(
    tmp_path: Path, form: str, flags: tuple[str, ...]
) -> None:
    model = save_tiny_model(tmp_path / "model", "deepseek_v3")
    run = create_run(tmp_path / "run", model, layers=[3, 4, 6])
    answer_samples(run, [((1, 2), (3, 4, 5)), ((6,), (7,))])
    out = tmp_path / "out"
    said = command("export", str(run.path), "--to", form, "--out", str(out), *flags, "--json", code=2)["error"]
    assert "[2, 3, 5] would be the streams that enter these layers" in said
    assert f"eagletui export {run.argument} --to speculators --online" in said
    assert not out.exists()


def test_a_target_that_is_only_named_is_told_about(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", None, layers=[3, 4, 6])
    answer_samples(run, [((1, 2), (3, 4, 5))])
    form, flags = ROUTES[-1]
    (note,) = command("export", str(run.path), "--to", form, "--out", str(tmp_path / "out"), *flags, "--json")["notes"]
    assert "for DeepSeek, Kimi and GLM-5 ids that do not begin with 1, like [2, 3, 5], are other layers" in note


def test_layers_of_the_config_reach_torchspec_where_the_target_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_run(tmp_path / "run", None, layers=[3, 4, 6])
    answer_samples(run, [((1, 2), (3, 4, 5))])
    exported = partial(export_jsonl, validation_apart=True)
    monkeypatch.setattr("eagletui.export.parquet.export_parquet", exported)  # pyarrow need not be installed
    printed = command("export", str(run.path), "--to", "parquet", "--out", str(tmp_path / "out"), "--json")
    assert "inference.aux_hidden_states_layers=[2,3,5]" in printed["command"]
    assert any("like [2, 3, 5], are other layers" in note for note in printed["notes"])
