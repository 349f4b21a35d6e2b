"""Ask the arbiter about many answers, and gather what they show together."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple

import torch

from eagletui.arbitration.arbiter import Arbiter
from eagletui.core.errors import ModelError
from eagletui.core.findings import Finding
from eagletui.core.likelihood import FAR_OFF, Likelihood, Structure, impostor_finding, structure_findings
from eagletui.core.opinions import Answer, Opinion, Ruling, rule
from eagletui.core.vocabulary import Vocabulary
from eagletui.models.load import DTypeChoice, load_target

PACE: Final = ("seconds_per_sample", "slowest_s", "cpu_s_per_sample", "cpu_s_p95", "cpu_s_slowest")
"""Names of what `Arbitration.pace` returns."""


class Ruled(NamedTuple):
    """An answer that the arbiter was asked about."""

    answer: Answer
    opinion: Opinion
    ruling: Ruling
    seconds: float
    cpu_s: float
    """Of all threads of this process."""
    structure: Mapping[str, float]
    """For each special token among the ids of the opinion, the lowest log-probability that one has."""

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
    _cpu_s: list[float] = field(default_factory=list)
    _likelihoods: dict[str, list[tuple[str, Likelihood]]] = field(default_factory=dict)
    """Of answers whose cut stayed, by endpoint."""
    _as_found: dict[str, list[tuple[str, Likelihood]]] = field(default_factory=dict)
    """Of all answers."""
    _structure: list[Structure] = field(default_factory=list)

    def ask(self, answer: Answer) -> Ruled:
        """Ask about one answer.

        Raises:
            ModelError: the model cannot score branches.
        """
        started, cpu_started = perf_counter(), process_time()
        opinion = self.arbiter.ask(answer.question)
        structure = self._structure_of(opinion)
        ruling = rule(answer, opinion)
        ruled = Ruled(answer, opinion, ruling, perf_counter() - started, process_time() - cpu_started, structure)
        self.asked += 1
        self.changed += ruled.is_changed
        self.inferred += ruled.ruling.is_inferred
        self.tokens += opinion.tokens
        self.seconds += ruled.seconds
        self.slowest_s = max(self.slowest_s, ruled.seconds)
        self._cpu_s.append(ruled.cpu_s)
        if opinion.ids == answer.question.ids:
            # Ids that are not what was sampled look unlikely under any model.
            self._likelihoods.setdefault(answer.endpoint, []).append((answer.id, opinion.likelihood))
        self._as_found.setdefault(answer.endpoint, []).append((answer.id, _as_found(answer, opinion)))
        self._structure += (Structure(answer.id, text, score) for text, score in structure.items())
        return ruled

    def findings(self) -> list[Finding]:
        """Say what all answers show together."""
        impostors = [
            # Text that the target would not write has hardly an answer whose cut stays: then all of them speak.
            impostor_finding(endpoint, self._likelihoods.get(endpoint, ()))
            or impostor_finding(endpoint, samples, least_off=FAR_OFF)
            for endpoint, samples in self._as_found.items()
        ]
        return [*(finding for finding in impostors if finding is not None), *structure_findings(self._structure)]

    def likelihoods(self) -> dict[str, Likelihood]:
        """How likely the answers of each endpoint are, against how likely they should be."""
        return {
            endpoint: sum((one for _, one in samples), Likelihood()) for endpoint, samples in self._likelihoods.items()
        }

    def pace(self) -> dict[str, float]:
        """How long an answer took, in seconds, as JSON values: by the clock, and on the CPU."""
        if not self.asked:
            return dict.fromkeys(PACE, 0.0)
        cpu_s = sorted(self._cpu_s)
        of_95_percent = cpu_s[ceil(0.95 * len(cpu_s)) - 1]
        figures = (self.seconds / self.asked, self.slowest_s, sum(cpu_s) / self.asked, of_95_percent, cpu_s[-1])
        return {name: round(value, 3) for name, value in zip(PACE, figures, strict=True)}

    def _structure_of(self, opinion: Opinion) -> dict[str, float]:
        found: dict[str, float] = {}
        for token_id, score in zip(opinion.ids, opinion.scores, strict=True):
            text = self.vocabulary.special_text(token_id)
            if text is not None:
                found[text] = min(score, found.get(text, score))
        return found


def _as_found(answer: Answer, opinion: Opinion) -> Likelihood:
    """Tell how likely the cut is that was found.

    What the target expects is taken from the given cut, and where the sampling cuts tokens off, so is what came: a
    margin there is also about what could come at all.
    """
    gained = opinion.margin if answer.question.sampling.is_plain else 0.0
    return replace(opinion.likelihood, own=opinion.likelihood.own + gained)


def likelihood_objects(by_endpoint: Mapping[str, Likelihood]) -> dict[str, Any]:
    """Likelihoods as JSON values; the server's own where there is no endpoint is called `-`."""
    return {
        endpoint or "-": {
            "tokens": one.tokens,
            "nats_per_token": round(one.own / one.tokens, 4) if one.tokens else None,
            "expected": round(one.expected / one.tokens, 4) if one.tokens else None,
            "standard_errors": round(one.sigmas, 1),
        }
        for endpoint, one in sorted(by_endpoint.items())
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
