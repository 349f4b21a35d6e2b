"""Ask the arbiter about many answers, and gather what they show together."""

from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch

from eagletui.arbiter import Arbiter
from eagletui.core.errors import ModelError
from eagletui.core.findings import Finding
from eagletui.core.likelihood import Likelihood, Structure, impostor_finding, structure_findings
from eagletui.core.opinions import Answer, Opinion, Ruling, rule
from eagletui.core.vocabulary import Vocabulary
from eagletui.models.load import DTypeChoice, load_target


class Ruled(NamedTuple):
    """An answer that the arbiter was asked about."""

    answer: Answer
    opinion: Opinion
    ruling: Ruling
    seconds: float

    @property
    def is_changed(self) -> bool:
        """Tell whether its ids are others now."""
        return self.ruling.ids != self.answer.question.ids


@dataclass
class Arbitration:
    """One session with a target model."""

    arbiter: Arbiter
    vocabulary: Vocabulary
    asked: int = 0
    changed: int = 0
    inferred: int = 0
    tokens: int = 0
    """Computed, without the prompts."""
    seconds: float = 0.0
    slowest_s: float = 0.0
    _likelihoods: dict[str, list[tuple[str, Likelihood]]] = field(default_factory=dict)
    _structure: list[Structure] = field(default_factory=list)

    def ask(self, answer: Answer) -> Ruled:
        """Ask about one answer.

        Raises:
            ModelError: the model cannot score branches.
        """
        started = perf_counter()
        opinion = self.arbiter.ask(answer.question)
        ruled = Ruled(answer, opinion, rule(answer, opinion), perf_counter() - started)
        self.asked += 1
        self.changed += ruled.is_changed
        self.inferred += ruled.ruling.is_inferred
        self.tokens += opinion.tokens
        self.seconds += ruled.seconds
        self.slowest_s = max(self.slowest_s, ruled.seconds)
        if opinion.ids == answer.question.ids:
            # Ids that are not what was sampled look unlikely under any model.
            self._likelihoods.setdefault(answer.endpoint, []).append((answer.id, opinion.likelihood))
        self._structure += (
            Structure(answer.id, text, score)
            for token_id, score in zip(opinion.ids, opinion.scores, strict=True)
            if (text := self.vocabulary.special_text(token_id)) is not None
        )
        return ruled

    def findings(self) -> list[Finding]:
        """Say what all answers show together."""
        impostors = (impostor_finding(endpoint, samples) for endpoint, samples in self._likelihoods.items())
        return [*(finding for finding in impostors if finding is not None), *structure_findings(self._structure)]

    def likelihoods(self) -> dict[str, Likelihood]:
        """How likely the answers of each endpoint are, against how likely they should be."""
        return {
            endpoint: sum((one for _, one in samples), Likelihood()) for endpoint, samples in self._likelihoods.items()
        }


def load_arbiter(
    model: Path, vocabulary: Vocabulary, *, dtype: DTypeChoice = "auto", threads: int | None = None
) -> Arbiter:
    """Load a target model to ask.

    Args:
        model: a folder or a `.gguf` file.
        vocabulary: of the ids.
        dtype: `auto` takes bfloat16, which most servers compute in, where this machine computes in it.
        threads: CPU threads; None takes half of the usable cores.

    Raises:
        ModelError: it cannot be loaded, or has fewer ids than the vocabulary.
    """
    if dtype == "auto" and (torch.cuda.is_available() or _computes_in_bfloat16()):
        dtype = "bfloat16"
    target = load_target(model, dtype=dtype, threads=threads)
    if target.vocab_size < vocabulary.size:
        raise ModelError(
            f"{model} has {target.vocab_size:,} ids, the tokenizer {vocabulary.size:,}: it is another model's."
        )
    return Arbiter(target, vocabulary)


def _computes_in_bfloat16() -> bool:
    """Tell whether this CPU multiplies in bfloat16; others only imitate it, slowly."""
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))
