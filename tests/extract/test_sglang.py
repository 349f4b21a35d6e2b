"""Extraction through a server of SGLang's wire format."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch

from eagletui.core.errors import InputError
from eagletui.core.features import feature_layers
from eagletui.extract.backends.refusals import Unusable
from eagletui.extract.backends.served import ServedBackend
from eagletui.extract.backends.sglang import SglangServer
from eagletui.extract.engines import Order, open_backend
from eagletui.extract.manifest import read_manifest
from eagletui.extract.shards import IdsSample, ShardReader
from eagletui.extract.verify import verify
from eagletui.models.facts import read_facts
from tests.extract.model_servers import SglangServing, running, served_model
from tests.extract.test_file_run import _extract_ids, _write_ids
from tests.tiny_models import Kind, random_samples, streams_of_transformers

LENGTHS = (40, 7, 33)

Serve = Callable[[SglangServing], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda serving: stack.enter_context(running(serving.app()))


def _ask(
    model: Path, url: str, *, dtype: Any = None, entering: tuple[int, ...] | None = None, length: int = 20
) -> str | None:
    """Ask for one sample and return its refusal."""
    facts = read_facts(model, dtype)
    layers = feature_layers(facts.num_layers, entering)
    ids = random_samples((length,))[0]
    server = SglangServer(url, facts, layers)
    with closing(ServedBackend(server, facts, layers, lambda *_: None, attempts_after_s=())) as backend:
        (computed,) = backend.compute([IdsSample("s0", ids, (1,) * length)], lambda: True)
    return computed.refusal


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_four_streams_through_a_server_equal_a_plain_forward_and_verify(
    tmp_path: Path, tiny_models: dict[Kind, Path], serve: Serve, dtype: Any
) -> None:
    model = tiny_models["llama"]
    url = serve(SglangServing(served_model(model, dtype)))
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples(LENGTHS))
    out = tmp_path / "out"
    done = _extract_ids(ids, model, out, engine="sglang", server=url, dtype=dtype)
    assert (done.samples, done.refused, done.dtype) == (3, 0, dtype)
    with ShardReader(out / "shards" / "000000.safetensors") as reader:
        for position, sample in enumerate(random_samples(LENGTHS)):
            aux, _ = streams_of_transformers(model, sample, dtype=getattr(torch, dtype))
            assert torch.equal(reader.record(position).hidden_states[:, :3], aux)
    assert verify(out, model, device="cpu").ok
    manifest = read_manifest(out)
    assert manifest.versions["sglang"] == "0.5.23"
    assert "the last slot gives the server's own log-probabilities within 0.0" in manifest.capture


@pytest.mark.parametrize(
    ("ways", "sentence"),
    [
        ({"aux": False, "layer_ids": None}, r"without auxiliary streams, so slots 0 to 2 are missing too"),
        ({"layer_ids": None}, r"returns slots 0 to 2\. Slot 3 of a record, .* before the final norm, cannot be had"),
        (
            {"layer_ids": (1, 3, 4)},
            r"returns slots 0 to 2\. Slot 3 of a record, .* before the final norm, cannot be had",
        ),
        ({"layer_ids": (2, 4, 5, 7)}, r"returns layers \[2, 4, 5, 7\], a record needs \[1, 3, 4, 7\]"),
        ({"convention": "dspark"}, "captures by the convention of dspark, a record needs eagle3's"),
        ({"radix_cache": True}, "runs with its radix cache"),
        ({"chunked_prefill_size": 8192}, "runs with chunked prefill"),
    ],
)
def test_a_server_that_leaves_a_slot_out_or_spoils_states_is_refused_with_the_reason(
    tiny_models: dict[Kind, Path], serve: Serve, ways: dict[str, Any], sentence: str
) -> None:
    url = serve(SglangServing(served_model(tiny_models["llama"]), **ways))
    with pytest.raises(Unusable, match=sentence) as caught:
        _ask(tiny_models["llama"], url)
    assert "--return-aux-hidden-state-layer-ids 1 3 4 7 --disable-radix-cache --chunked-prefill-size -1" in str(
        caught.value
    )


def test_the_usual_layers_mean_the_same_to_every_model_class_and_others_are_refused_where_they_do_not(
    tiny_models: dict[Kind, Path], serve: Serve
) -> None:
    model = served_model(tiny_models["llama"])
    usual = SglangServing(model, model_type="deepseek_v3")
    assert usual.captured() == SglangServing(model).captured() == [2, 4, 5, 8]
    assert _ask(tiny_models["llama"], serve(usual)) is None
    assert _ask(tiny_models["llama"], serve(SglangServing(model, layer_ids=(2, 3, 4, 7))), entering=(3, 4, 5)) is None
    shifted = SglangServing(model, layer_ids=(2, 3, 4, 7), model_type="deepseek_v3")
    assert shifted.captured() == [2, 3, 4, 7]
    with pytest.raises(Unusable, match="SGLang takes ids of a deepseek_v3 that do not begin with 1 for other layers"):
        _ask(tiny_models["llama"], serve(shifted), entering=(3, 4, 5))


def test_no_command_is_printed_for_a_server_that_would_be_refused(tiny_models: dict[Kind, Path]) -> None:
    kimi = tiny_models["kimi_k25"]
    with pytest.raises(InputError, match="--return-aux-hidden-state-layer-ids 1 3 4 7"):
        open_backend(Order(kimi, "sglang"), lambda *_: None)
    with pytest.raises(Unusable, match=r"\[2, 3, 5, 7\] would be the streams that enter these layers.*--engine vllm"):
        open_backend(Order(kimi, "sglang", layers=(3, 4, 6)), lambda *_: None)
    with pytest.raises(InputError, match="--return-aux-hidden-state-layer-ids 2 3 5 7"):
        open_backend(Order(tiny_models["llama"], "sglang", layers=(3, 4, 6)), lambda *_: None)


def test_cached_tokens_another_type_another_model_and_too_many_tokens_are_named(
    tiny_models: dict[Kind, Path], serve: Serve
) -> None:
    model = served_model(tiny_models["llama"])
    with pytest.raises(Unusable, match="Of 20 tokens 16 tokens came from a cache"):
        _ask(tiny_models["llama"], serve(SglangServing(model, cached=16)))
    url = serve(SglangServing(model, context_length=36))
    with pytest.raises(Unusable, match="computes in another type than bfloat16"):
        _ask(tiny_models["llama"], url, dtype="bfloat16")
    assert _ask(tiny_models["llama"], url, length=30) == "30 tokens do not fit: the server takes 29."
    assert _ask(tiny_models["llama"], url, length=29) is None


def test_a_vllm_address_is_no_sglang(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    from tests.extract.model_servers import VllmServing

    with running(VllmServing(served_model(tiny_models["llama"]), tmp_path, tells=False).app()) as url:
        with pytest.raises(Unusable, match=r"has no /server_info: it is no SGLang\. Start one with\npython -m sglang"):
            _ask(tiny_models["llama"], url)
