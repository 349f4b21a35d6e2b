"""Layer ids for trainers that let SGLang run the target: none are written that it would take for other layers."""

from typing import TYPE_CHECKING

from eagletui.core.errors import ModelError
from eagletui.core.sglang_layers import misread_by_sglang

if TYPE_CHECKING:
    from eagletui.models.checkpoint import Checkpoint


def require_layers_as_meant(checkpoint: "Checkpoint | None", outputs: tuple[int, ...] | None, argument: str) -> None:
    """Refuse layers that SGLang would take for others.

    Args:
        checkpoint: of the target; None where it is only named, see `unknown_target_note`.
        outputs: layers whose output the trainer will ask SGLang for; None leaves them to the trainer.
        argument: the run as commands take it.

    Raises:
        ModelError: it would; says what to do instead.
    """
    misread = None if checkpoint is None or outputs is None else misread_by_sglang(checkpoint.kind, outputs)
    if misread is not None:
        raise ModelError(
            f"extract.layers: {misread} This trainer would learn from the wrong streams. Nothing was written. Take "
            f"eagletui export {argument} --to speculators --online, whose vLLM counts the layers of all models alike, "
            "or a run whose extract.layers is left out (2, L//2, L-3)."
        )


def unknown_target_note(checkpoint: "Checkpoint | None", outputs: tuple[int, ...] | None) -> str | None:
    """Say what to look out for where nothing tells which model class SGLang will run; None where nothing is."""
    if checkpoint is not None or outputs is None or outputs[0] == 1:
        return None
    return (
        "The target is only named, so that nothing here tells how SGLang will count its layers: for DeepSeek, Kimi "
        f"and GLM-5 ids that do not begin with 1, like {list(outputs)}, are other layers. Give its folder with --model "
        "or model.weights to have it checked."
    )


def served_note(checkpoint: "Checkpoint | None", outputs: tuple[int, ...]) -> str | None:
    """Say that SGLang would misread the ids when it serves the draft model; None where it does not."""
    misread = None if checkpoint is None else misread_by_sglang(checkpoint.kind, outputs)
    return (
        None
        if misread is None
        else f"{misread} It does so, too, when it serves a draft model whose config states them."
    )
