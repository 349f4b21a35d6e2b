"""How to train on an exported folder: run configs, and command lines whose layer ids are those of the features."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from eagletui.core.draft_vocabulary import DEFAULT_SIZE
from eagletui.core.loaders import Trainer
from eagletui.export import target_head
from eagletui.export.mapping import MAPPING_FILE
from eagletui.export.trainer_folder import TargetFacts
from eagletui.files.replacement import Replacement
from eagletui.models.checkpoint import Checkpoint

SPECFORGE_CONFIG: Final = "specforge.json"
DRAFT_CONFIG: Final = "draft_config.json"
PROMPTS_FILE: Final = "prompts.jsonl"

SPECULATORS_RATIO: Final = 0.9
"""Share of rows to train on where nothing else is asked (`--train-data-ratio` of speculators 0.9.0)."""

SGLANG_HEADROOM: Final = 7
"""Slots that SGLang keeps beyond the longest prompt (SpecForge's SGLANG_CAPTURE_CONTEXT_HEADROOM)."""

_TARGET_FIELDS: Final = (
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "max_position_embeddings",
    "rms_norm_eps",
    "hidden_act",
    "initializer_range",
    "head_dim",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "bos_token_id",
    "eos_token_id",
)
"""What a draft model takes over from its target (`_TARGET_ARCHITECTURE_FIELDS` of SpecForge 0.2.0)."""


def train_ratio(train_rows: int, rows: int) -> float:
    """Return the share that speculators turns into exactly this many training rows, `int(rows * share)`."""
    return round((train_rows + 0.5) / rows, 9)


def speculators_commands(
    out: Path,
    target: TargetFacts,
    model: str,
    vocabulary_size: int,
    max_length: int,
    ratio: float,
    *,
    server_length: int | None = None,
) -> list[str]:
    """Return what to run, in order: the target's server where the trainer has to ask it, then the training.

    Args:
        out: the exported folder.
        target: the target model.
        model: its name or path for the trainer.
        vocabulary_size: of the draft model, D.
        max_length: tokens of a batch.
        ratio: share of rows to train on.
        server_length: context of the vLLM server that the trainer asks for hidden states; None: it reads them here.
    """
    online = server_length is not None
    training = [
        *("speculators", "train", "--verifier-name-or-path", model, "--data-path", str(out)),
        *("--speculator-type", "eagle3", "--target-layer-ids", *map(str, target.layers_entering)),
        *("--draft-vocab-size", str(vocabulary_size), "--total-seq-len", str(max_length)),
        *("--train-data-ratio", repr(ratio), "--on-missing", "generate" if online else "raise"),
    ]
    if not online:
        backend = ("--hidden-states-backend", "fp8") if target.stored == "fp8" else ()
        return [shlex.join([*training, *backend])]
    states = [*target.layers_entering, target.num_layers]
    speculative = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": states}},
    }
    transfer = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": str(out / "generated")},
    }
    server = [
        *("vllm", "serve", model, "--max-model-len", str(server_length)),
        *("--no-enable-prefix-caching", "--no-enable-chunked-prefill"),
        *("--speculative_config", json.dumps(speculative), "--kv_transfer_config", json.dumps(transfer)),
    ]
    return [shlex.join(server), shlex.join([*training, "--vllm-endpoint", "http://localhost:8000/v1"])]


def specforge_commands(out: Path, target: TargetFacts, max_length: int, *, online: bool) -> list[str]:
    """Return what to run: SpecForge reads everything from the run config, the line repeats what must match."""
    data = f"data.prompts_path={out / PROMPTS_FILE}" if online else f"data.hidden_states_path={out}"
    layers = f"model.aux_hidden_state_layer_ids={list(target.layers_output)}".replace(" ", "")
    training = [
        *("specforge", "train", "--config", str(out / SPECFORGE_CONFIG), data, f"data.max_length={max_length}"),
        *(layers, f"model.vocab_mapping_path={out / MAPPING_FILE}"),
    ]
    return [shlex.join(training)]


def write_specforge_configs(
    out: Path,
    target: TargetFacts,
    model: str,
    checkpoint: Checkpoint | None,
    vocabulary_size: int,
    max_length: int,
    *,
    online: bool,
) -> None:
    """Write the run config, and a draft config where SpecForge's own would have another vocabulary.

    Args:
        out: the exported folder.
        target: the target model.
        model: its name or path for the trainer.
        checkpoint: its folder, where it is one.
        vocabulary_size: of the draft model, D.
        max_length: the limit of tokens.
        online: the trainer captures from a server; the deployment is a start for one machine with two GPUs.
    """
    needs_draft = vocabulary_size != DEFAULT_SIZE and checkpoint is not None
    model_section: dict[str, Any] = {
        "target_model_path": model,
        "vocab_mapping_path": str(out / MAPPING_FILE),
        "aux_hidden_state_layer_ids": list(target.layers_output),
    }
    if checkpoint is not None:
        model_section |= {"lm_head_key": checkpoint.head_key, "embedding_key": checkpoint.embedding_key}
        if not online and target_head.is_needed(checkpoint):
            model_section |= {
                "target_model_path": str(out / target_head.FOLDER),
                "lm_head_key": target_head.HEAD_KEY,
                "embedding_key": target_head.EMBEDDING_KEY,
            }
    if needs_draft:
        model_section["draft_model_config"] = str(out / DRAFT_CONFIG)
    config: dict[str, Any] = {
        "model": model_section,
        "data": {"max_length": max_length},
        "training": {"strategy": "eagle3"},
        "run_id": out.name,
        "output_dir": str(out.with_name(f"{out.name}-training")),
    }
    if online:
        model_section["sglang_context_length"] = max_length + SGLANG_HEADROOM
        config["data"]["prompts_path"] = str(out / PROMPTS_FILE)
        config["deployment"] = _one_machine(out)
    else:
        config["data"]["hidden_states_path"] = str(out)
    _write_json(out / SPECFORGE_CONFIG, config)
    if needs_draft and checkpoint is not None:
        _write_json(out / DRAFT_CONFIG, _draft_config(checkpoint, vocabulary_size))


def notes(trainer: Trainer, model: str, checkpoint: Checkpoint | None, *, online: bool) -> Iterator[str]:
    """Yield what to know before training, one sentence each.

    Args:
        trainer: which.
        model: the target's name in the command.
        checkpoint: its folder; None where none is known.
        online: the trainer runs the target itself.
    """
    if checkpoint is None:
        yield (
            "The trainer needs a folder of the target with config.json and *.safetensors; none is known, so that the "
            f"command names {model}. Give it with --model where the features came from such a folder."
        )
    elif trainer == "specforge" and target_head.is_needed(checkpoint):
        yield (
            f"SpecForge 0.2.0 cannot read the head of {checkpoint.path} where it lies: the run config names "
            f"{target_head.FOLDER} in this folder, its embedding, norm and head with the decoder's config."
        )
    if online and trainer == "specforge":
        yield "The deployment in the run config is a start for one machine with two GPUs: set its devices."


def _one_machine(out: Path) -> dict[str, Any]:
    stack = {
        "trainer_cuda_visible_devices": ["0"],
        "capture_servers": [{"port": 30000, "cuda_visible_devices": ["1"], "tp_size": 1}],
    }
    control = str(out.with_name(f"{out.name}-control"))
    return {
        "mode": "disaggregated",
        "disaggregated": {"control_dir": control, "backend": "mooncake", "managed_local": stack},
    }


def _draft_config(checkpoint: Checkpoint, vocabulary_size: int) -> dict[str, Any]:
    taken: dict[str, Any] = {
        name: checkpoint.text_config[name] for name in _TARGET_FIELDS if name in checkpoint.text_config
    }
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **taken,
        "num_hidden_layers": 1,
        "vocab_size": checkpoint.vocab_size,
        "draft_vocab_size": vocabulary_size,
        "pad_token_id": checkpoint.text_config.get("pad_token_id") or 0,
        "tie_word_embeddings": False,
        "use_cache": True,
    }


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with Replacement(path) as stream:
        stream.write(json.dumps(content, indent=2).encode() + b"\n")
