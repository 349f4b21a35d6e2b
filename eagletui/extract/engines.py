"""Open what computes features, as a caller orders it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from eagletui.core.errors import InputError
from eagletui.core.features import FeatureLayers, Stored, feature_layers
from eagletui.core.reports import Report
from eagletui.core.text import clean_line
from eagletui.extract.computing import Backend, Engine
from eagletui.models.facts import ModelFacts, read_facts
from eagletui.models.load import DTypeChoice

StoredChoice = Literal["float32", "bfloat16", "float16", "fp8", "auto"]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to compute, and how."""

    model: Path
    """A folder of safetensors, or for the local engine a `.gguf` file."""
    engine: Engine = "local"
    server: str | None = None
    """Address of the server; None for the local engine."""
    dtype: StoredChoice = "auto"
    """Of the computation and the states; `fp8` rounds states that are computed in the model's own type."""
    device: str = "auto"
    """Local engine: where to compute."""
    layers: tuple[int, ...] | None = None
    """Layers whose input is kept; None takes the default."""
    trust_server: bool = False
    """Take a server that does not tell from which layers its streams are."""
    threads: int | None = None
    """Local engine: of computations on the CPU; None takes half of the cores."""

    @property
    def computed(self) -> DTypeChoice:
        """The type to compute in."""
        return "auto" if self.dtype == "fp8" else self.dtype

    def stored(self, facts: ModelFacts) -> Stored:
        """How the states of a model lie on disk."""
        return "fp8" if self.dtype == "fp8" else facts.dtype


def open_backend(order: Order, report: Report, longest: int | None = None) -> Backend:
    """Load the model, or ask the server how it runs.

    Args:
        order: what computes.
        report: takes what people should know.
        longest: tokens of the longest sample, which a server has to take; None where none is known yet.

    Raises:
        InputError: an engine needs a server's address.
        ModelError: the model does not load, or the server cannot give a record's streams.
    """
    if order.engine == "local":
        from eagletui.extract.backends.local import LocalBackend
        from eagletui.extract.capture import Capture
        from eagletui.models.load import load_target

        target = load_target(order.model, dtype=order.computed, device=order.device, threads=order.threads)
        return LocalBackend(Capture(target, feature_layers(target.num_layers, order.layers)), report)
    facts = read_facts(order.model, None if order.computed == "auto" else order.computed)
    layers = feature_layers(facts.num_layers, order.layers)
    return _open_server(order, facts, layers, report, longest)


def _open_server(
    order: Order, facts: ModelFacts, layers: FeatureLayers, report: Report, longest: int | None
) -> Backend:
    from eagletui.extract.backends import sglang, vllm
    from eagletui.extract.backends.served import ServedBackend

    if order.server is None:
        is_vllm = order.engine == "vllm"
        command = vllm.start_command(facts, layers, longest) if is_vllm else sglang.start_command(facts, layers)
        raise InputError(
            f"--engine {order.engine} needs --server URL, a server of this very model. Start one with\n{command}"
        )
    if not order.server.startswith(("http://", "https://")):
        raise InputError(f"--server: found {clean_line(order.server, 80)}, expected http://HOST:PORT.")
    if order.engine == "vllm":
        server = vllm.VllmServer(order.server, facts, layers, longest=longest, trust=order.trust_server)
        return ServedBackend(server, facts, layers, report)
    return ServedBackend(
        sglang.SglangServer(order.server, facts, layers), facts, layers, report, in_flight=sglang.IN_FLIGHT
    )
