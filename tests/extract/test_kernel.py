"""Attention over a whole row in one call, by a stand-in with the signature of `torch.nn.attention.varlen.varlen_attn`.

The kernel itself needs a CUDA device and was run on none here.
"""

import inspect
import itertools
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention.varlen import varlen_attn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from eagletui.core.features import feature_layers, sampled_mask
from eagletui.extract.attention import NAME, Kernel, choose_kernel, starts_of
from eagletui.extract.backends.local import LocalBackend
from eagletui.extract.capture import TOLERANCE, Capture
from eagletui.extract.shards import IdsSample
from eagletui.models.load import load_target
from tests.tiny_models import KINDS, Kind, random_samples

LLAMA = SimpleNamespace(hidden_size=4096, num_attention_heads=32, head_dim=128)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    num_splits: int | None = None,
) -> torch.Tensor:
    """Do what the kernel's documentation says, in float32, and refuse what it would refuse."""
    assert cu_seq_k is not None
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert query.shape[0] == key.shape[0] == value.shape[0] == int(cu_seq_q[-1])
    assert query.shape[2] == key.shape[2] == value.shape[2]
    assert enable_gqa or query.shape[1] == key.shape[1]
    assert window_size == (-1, 0)
    assert scale is not None
    bounds = cu_seq_q.tolist()
    assert max_q == max_k == max(high - low for low, high in itertools.pairwise(bounds))
    groups = query.shape[1] // key.shape[1]
    parts = []
    for low, high in itertools.pairwise(bounds):
        q = query[low:high].float().transpose(0, 1)
        k = key[low:high].float().transpose(0, 1).repeat_interleave(groups, dim=0)
        v = value[low:high].float().transpose(0, 1).repeat_interleave(groups, dim=0)
        scores = q @ k.transpose(1, 2) * scale
        hidden = torch.ones(high - low, high - low, dtype=torch.bool).triu(1)
        parts.append((scores.masked_fill(hidden, -torch.inf).softmax(dim=-1) @ v).transpose(0, 1))
    return torch.cat(parts).to(query.dtype)


def _capture(model: Path) -> Capture:
    capture = Capture(load_target(model, dtype="bfloat16", device="cpu"), feature_layers(8))
    capture.kernel = Kernel(attend, "attention in one call of a stand-in")
    return capture


def test_the_stand_in_has_the_kernel_s_signature() -> None:
    ours, theirs = inspect.signature(attend).parameters, inspect.signature(varlen_attn).parameters
    assert [(p.name, p.kind) for p in ours.values()] == [(p.name, p.kind) for p in theirs.values()]


@pytest.mark.parametrize("kind", KINDS)
def test_one_call_gives_what_lone_forwards_give(tiny_models: dict[Kind, Path], kind: Kind) -> None:
    capture = _capture(tiny_models[kind])
    samples = [torch.tensor(ids) for ids in random_samples((40, 7, 66, 1))]
    result = capture.self_test(samples)
    capture.close()
    assert result.failure is None
    assert result.median_error <= TOLERANCE["bfloat16"]


@pytest.mark.parametrize(("kind", "kernel"), [("llama", varlen_attn), ("deepseek_v3", varlen_attn), ("llama", None)])
def test_a_packed_forward_is_launched_without_looking_at_a_number_on_the_device(
    tiny_models: dict[Kind, Path], kind: Kind, kernel: Any
) -> None:
    """On torch's device without numbers, where looking at one is an error, and through torch's own kernel there."""
    target = load_target(tiny_models[kind], dtype="bfloat16", device="cpu")
    target.model.to("meta")
    capture = Capture(replace(target, device="meta"), feature_layers(8))
    capture.kernel = Kernel(kernel, "")
    capture._transfer.bring = lambda results: lambda: list(results)  # type: ignore[method-assign]
    rows, finite = capture.start([torch.tensor(ids) for ids in random_samples((40, 1))]).wait()
    assert (rows.shape, rows.dtype, rows.device.type) == ((41, 4, 64), torch.bfloat16, "meta")
    assert (finite.shape, finite.dtype) == ((2,), torch.bool)


@pytest.mark.parametrize("rule", ["softcap", "s_aux", "position_bias", "sliding_window"])
@pytest.mark.parametrize("kernel", [attend, None])
def test_a_model_that_asks_for_another_attention_is_refused(rule: str, kernel: Any) -> None:
    states = torch.zeros(1, 2, 5, 8)
    extra = {"segment_lengths": [2, 3], "segment_kernel": kernel, "segment_starts": starts_of([2, 3]), rule: 30.0}
    with pytest.raises(ValueError, match=rule):
        ALL_ATTENTION_FUNCTIONS[NAME](None, states, states, states, None, **extra)


def _run(model: Path, kernel: Any) -> tuple[LocalBackend, list[str]]:
    said: list[str] = []
    capture = _capture(model)
    capture.kernel = Kernel(kernel, "attention in one call of a stand-in")
    backend = LocalBackend(capture, lambda _level, kind, message: said.append(f"{kind}: {message}"))
    ids = random_samples((30, 40, 20))
    samples = [IdsSample(f"s{number}", part, sampled_mask(1, len(part) - 1)) for number, part in enumerate(ids)]
    for computed in backend.compute(samples, lambda: True):
        assert computed.hidden_states is not None
        alone = capture.one_by_one(torch.tensor(computed.sample.token_ids)).float()
        assert torch.linalg.vector_norm(computed.hidden_states.float() - alone) <= 0.05 * torch.linalg.vector_norm(
            alone
        )
    backend.close()
    return backend, said


def test_the_choice_stands_in_the_manifest_and_the_log(tiny_models: dict[Kind, Path]) -> None:
    backend, said = _run(tiny_models["llama"], attend)
    assert backend.mode == "packed"
    assert "attention in one call of a stand-in" in backend.choice
    assert "attention in one call of a stand-in" in said[0]


def _raise(*_args: Any, **_kwargs: Any) -> torch.Tensor:
    raise RuntimeError("no kernel image is available for execution on the device")


def _see_everything(query: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    whole = torch.tensor([0, len(query)], dtype=torch.int32)
    key, value, *_ = args
    return attend(query, key, value, whole, whole, len(query), len(query), **kwargs)


@pytest.mark.parametrize(("kernel", "why"), [(_raise, "no kernel image"), (_see_everything, "median relative error")])
def test_a_kernel_that_fails_the_self_test_is_left_for_the_segments(
    tiny_models: dict[Kind, Path], kernel: Any, why: str
) -> None:
    backend, said = _run(tiny_models["llama"], kernel)
    assert backend.mode == "packed"
    assert "attention by segment: the kernel failed the self-test" in backend.choice
    assert [line.split(":")[0] for line in said] == ["kernel_failed", "capture_mode"]
    assert why in said[0]


@pytest.mark.parametrize(
    ("device", "dtype", "capability", "change", "why"),
    [
        ("cpu", "bfloat16", None, {}, "no CUDA device"),
        ("cuda", "bfloat16", (7, 5), {}, "older than flash attention"),
        ("cuda", "float32", (9, 0), {}, "flash attention has no float32"),
        ("cuda", "bfloat16", (9, 0), {"head_dim": 20}, "heads of 20 do not fit"),
        ("cuda", "bfloat16", (9, 0), {"head_dim": 512}, "heads of 512 do not fit"),
        ("cuda", "bfloat16", (9, 0), {"v_head_dim": 192}, "values are longer than its keys"),
        ("cuda", "bfloat16", (9, 0), {"attn_logit_softcapping": 50.0}, "caps its attention logits"),
    ],
)
def test_the_kernel_is_taken_only_where_it_fits(
    device: str, dtype: str, capability: tuple[int, int] | None, change: dict[str, Any], why: str
) -> None:
    config = SimpleNamespace(**{**vars(LLAMA), **change})
    kernel = choose_kernel(device, dtype, capability, config)
    assert kernel.call is None
    assert why in kernel.said


def test_a_device_that_fits_gets_the_kernel_unless_torch_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    latent = SimpleNamespace(hidden_size=7168, num_attention_heads=64, qk_nope_head_dim=128, qk_rope_head_dim=64)
    for config in (LLAMA, latent):
        assert choose_kernel("cuda", "bfloat16", (9, 0), config).call is varlen_attn
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", None)
    kernel = choose_kernel("cuda", "bfloat16", (9, 0), LLAMA)
    assert (kernel.call, kernel.said) == (None, "attention by segment: this torch has no torch.nn.attention.varlen")
