"""Extraction through a server of vLLM's wire format."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import torch

from eagletui.core.errors import InputError, ModelError
from eagletui.core.features import feature_layers
from eagletui.extract.backends.refusals import Unusable
from eagletui.extract.backends.served import ServedBackend
from eagletui.extract.backends.vllm import VllmServer
from eagletui.extract.choices import Choices
from eagletui.extract.computing import Computed
from eagletui.extract.engines import Order, open_backend
from eagletui.extract.manifest import read_manifest
from eagletui.extract.shards import IdsSample, ShardReader
from eagletui.extract.verify import verify
from eagletui.models.facts import read_facts
from tests.extract.model_servers import VllmServing, running, served_model
from tests.extract.small_run import answer_samples, create_run
from tests.extract.test_file_run import _extract_ids, _write_ids
from tests.extract.test_run_features import _events, _ids, _run_here, _stored
from tests.tiny_models import Kind, random_samples, streams_of_transformers

LENGTHS = (40, 7, 150, 33, 64)

PROOF = 2 + 3
"""Requests before the first record: one sample twice, and cuts of samples, until four answers are unsure."""

Serve = Callable[[VllmServing], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda serving: stack.enter_context(running(serving.app()))


@pytest.fixture
def serving(tmp_path: Path, tiny_models: dict[Kind, Path]) -> VllmServing:
    (tmp_path / "states").mkdir()
    return VllmServing(served_model(tiny_models["llama"]), tmp_path / "states")


def _samples(*lengths: int) -> list[IdsSample]:
    ids = random_samples(lengths)
    return [IdsSample(f"s{number}", part, (0,) + (1,) * (len(part) - 1)) for number, part in enumerate(ids)]


def _backend(
    model: Path, url: str, *, file_timeout_s: float = 5.0, in_flight_tokens: int = 10_000, trust: bool = False
) -> ServedBackend:
    facts = read_facts(model)
    layers = feature_layers(facts.num_layers)
    server = VllmServer(url, facts, layers, file_timeout_s=file_timeout_s, trust=trust)
    waits = (0.0, 0.0)
    said: list[str] = []
    return ServedBackend(
        server,
        facts,
        layers,
        lambda *event: said.append(event[1]),
        in_flight=4,
        in_flight_tokens=in_flight_tokens,
        attempts_after_s=waits,
    )


def _compute(backend: ServedBackend, samples: list[IdsSample]) -> dict[str, Computed]:
    with closing(backend):
        return {computed.sample.key: computed for computed in backend.compute(samples, lambda: True)}


@pytest.mark.parametrize("kind", ["llama", pytest.param("deepseek_v3", marks=pytest.mark.slow)])
def test_states_through_a_server_equal_a_plain_forward_and_verify(
    tmp_path: Path, tiny_models: dict[Kind, Path], serve: Serve, kind: Kind
) -> None:
    (tmp_path / "states").mkdir()
    url = serve(VllmServing(served_model(tiny_models[kind]), tmp_path / "states"))
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples(LENGTHS))
    out = tmp_path / "out"
    done = _extract_ids(ids, tiny_models[kind], out, engine="vllm", server=f"{url}/v1", shard_mib=1)
    assert (done.samples, done.refused, done.dtype) == (5, 0, "float32")
    with ShardReader(out / "shards" / "000000.safetensors") as reader:
        for position, sample in enumerate(random_samples(LENGTHS)):
            aux, _ = streams_of_transformers(tiny_models[kind], sample)
            assert torch.equal(reader.record(position).hidden_states[:, :3], aux)
    assert verify(out, tiny_models[kind], device="cpu").ok
    manifest = read_manifest(out)
    assert manifest.versions["vllm"] == "0.33.0"
    assert manifest.capture.startswith(
        "vllm 0.33.0 running tiny, prefix caching off, chunked prefill off, layers as asked; asked twice, the states "
        "are the same; the last slot gives the server's own log-probabilities within 0.0"
    )
    assert list((tmp_path / "states").iterdir()) == []


def test_a_run_is_extracted_through_the_server_that_its_config_or_the_command_names(
    tmp_path: Path, tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(40, 7))
    done = _run_here(folder, Choices(follow=False, engine="vllm", server=serve(serving)))
    assert done.progress.samples == 2
    assert set(_stored(folder)) == {"s0", "s1"}
    (message,) = [message for kind, message in _events(folder) if kind == "model_loaded"]
    assert message.startswith("LlamaForCausalLM from llama in float32 on http://127.0.0.1:")


@pytest.mark.parametrize("fault", ["missing", "cut", "other ids", "500"])
def test_a_request_that_went_wrong_is_sent_again(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve, fault: str
) -> None:
    serving.faults = deque([""] * PROOF + [fault])
    computed = _compute(_backend(tiny_models["llama"], serve(serving)), _samples(40, 7))
    assert [one.refusal for one in computed.values()] == [None, None]
    assert serving.requests == PROOF + 2 + 1
    assert list(serving.folder.iterdir()) == [], "what a failed attempt left lies in memory"


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("missing", "is missing. The server's log may say why"),
        ("cut", "is not whole"),
        ("other ids", "holds other ids than were asked for"),
        ("500", "The server answered 500: {"),
        ("nan", "1 of 7 rows are not finite"),
        ("zeros", "1 of 7 rows have a stream of zeros"),
    ],
)
def test_a_sample_that_keeps_failing_is_refused_with_the_reason_and_the_others_are_kept(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve, fault: str, sentence: str
) -> None:
    samples = _samples(7)
    with closing(_backend(tiny_models["llama"], serve(serving))) as backend:
        list(backend.compute(_samples(40, 9), lambda: True))
        serving.faults = deque([fault] * 3)
        (refused,) = backend.compute(samples, lambda: True)
        assert refused.hidden_states is None
        assert refused.refusal is not None
        assert sentence in refused.refusal
        serving.faults = deque()
        (kept,) = backend.compute(samples, lambda: True)
        assert kept.refusal is None


def test_states_that_are_still_being_written_are_waited_for(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    with closing(_backend(tiny_models["llama"], serve(serving))) as backend:
        list(backend.compute(_samples(40), lambda: True))
        serving.write_after = threading.Event()
        timer = threading.Timer(0.3, serving.write_after.set)
        timer.start()
        (computed,) = backend.compute(_samples(7), lambda: True)
        timer.join()
    assert computed.refusal is None


def test_a_server_without_locks_is_waited_for_until_its_file_is_whole(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    serving.uses_lock = False
    computed = _compute(_backend(tiny_models["llama"], serve(serving)), _samples(40, 7))
    assert [one.refusal for one in computed.values()] == [None, None]


def test_requests_and_tokens_in_flight_are_bounded(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    url = serve(serving)
    _compute(_backend(tiny_models["llama"], url), _samples(*(20,) * 12))
    assert 1 < serving.most_at_once <= 4
    serving.most_at_once = 0
    _compute(_backend(tiny_models["llama"], url, in_flight_tokens=30), _samples(*(20,) * 6))
    assert serving.most_at_once == 1


def test_a_sample_longer_than_the_server_takes_is_refused_without_asking(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    serving.max_model_len = 41
    with closing(_backend(tiny_models["llama"], serve(serving))) as backend:
        list(backend.compute(_samples(40), lambda: True))
        before = serving.requests
        (refused,) = backend.compute(_samples(41), lambda: True)
    assert (refused.refusal, serving.requests) == ("41 tokens do not fit: the server takes 40.", before)


@pytest.mark.parametrize(
    ("ways", "sentence"),
    [
        ({"prefix_caching": True}, "runs with prefix caching"),
        ({"prefix_caching": True, "tells": False}, "runs with prefix caching"),
        ({"chunked_prefill": True}, "runs with chunked prefill"),
        ({"layer_ids": (1, 3, 4, 7)}, r"extracts layers \[1, 3, 4, 7\], a record needs \[2, 4, 5, 8\]"),
    ],
)
def test_a_server_started_with_other_flags_is_refused_with_the_command_that_starts_a_right_one(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve, ways: dict[str, object], sentence: str
) -> None:
    for name, value in ways.items():
        setattr(serving, name, value)
    url = serve(serving)
    with pytest.raises(Unusable, match=sentence) as caught:
        _backend(tiny_models["llama"], url)
    command = str(caught.value).splitlines()[-1]
    assert command.startswith(
        f"VLLM_SERVER_DEV_MODE=1 vllm serve {tiny_models['llama']} --dtype float32 --no-enable-prefix-caching"
    )
    assert '"eagle_aux_hidden_state_layer_ids": [2, 4, 5, 8]' in command
    assert serving.requests == 0


@pytest.mark.parametrize(
    ("ways", "sentence"),
    [
        ({"last_is_normed": True}, "last slot is the stream after the final norm"),
        ({"layer_ids": (2, 4, 5, 7)}, "last slot is no stream before the model's head"),
        ({"layer_ids": (2, 4, 8)}, "returns 3 streams a token instead of 4"),
    ],
)
def test_streams_that_are_not_a_record_s_are_found_by_the_model_s_own_head(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve, ways: dict[str, object], sentence: str
) -> None:
    serving.tells = False
    for name, value in ways.items():
        setattr(serving, name, value)
    with pytest.raises(Unusable, match=sentence):
        _compute(_backend(tiny_models["llama"], serve(serving), trust=True), _samples(*LENGTHS))


def test_a_sample_that_fails_when_it_is_asked_for_again_leaves_the_proof_to_the_next_one(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    serving.faults = deque(["", "500", "500", "500"])
    computed = _compute(_backend(tiny_models["llama"], serve(serving)), _samples(40, 9))
    assert [one.refusal for one in computed.values()] == [None, None]
    assert serving.lengths[:6] == [40, 40, 40, 40, 9, 9]


def test_answers_that_are_certain_prove_nothing_and_cuts_inside_the_samples_are_asked_for_instead(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    serving.certain_of = LENGTHS.__contains__
    with closing(_backend(tiny_models["llama"], serve(serving))) as backend:
        list(backend.compute(_samples(*LENGTHS), lambda: True))
        assert backend.choice.endswith("nats (4 answers)")
        assert serving.lengths[:6] == [150, 150, 75, 32, 20, 17], "half of each answer, the longest first"


def test_a_server_that_is_certain_of_every_token_is_not_called_proved(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    serving.certain_of = lambda _tokens: True
    with closing(_backend(tiny_models["llama"], serve(serving))) as backend:
        list(backend.compute(_samples(40, 7), lambda: True))
        assert "the last slot is not proved: the server was all but certain of every next token" in backend.choice


def test_a_server_that_does_not_tell_its_layers_is_refused_unless_it_is_trusted(
    tmp_path: Path, tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    serving.tells = False
    url = serve(serving)
    with pytest.raises(Unusable, match="does not tell its layers and chunked prefill") as caught:
        _backend(tiny_models["llama"], url)
    assert str(caught.value).splitlines()[-1].startswith("VLLM_SERVER_DEV_MODE=1 vllm serve ")
    assert "--trust-server" in str(caught.value)
    assert serving.requests == 0
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples((40, 7)))
    out = tmp_path / "out"
    _extract_ids(ids, tiny_models["llama"], out, engine="vllm", server=url, trust_server=True)
    capture = read_manifest(out).capture
    assert "chunked prefill NOT CHECKED (trusted as told by a person), layers NOT CHECKED (trusted" in capture


def test_a_prefix_cache_that_the_server_does_not_tell_of_shows_in_the_second_answer(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    url = serve(serving)
    backend = _backend(tiny_models["llama"], url)
    serving.prefix_caching = True
    with pytest.raises(Unusable, match="returned 6 rows for 150 tokens: it took others from its prefix cache"):
        _compute(backend, _samples(*LENGTHS))


def test_another_model_another_type_and_another_machine_are_named(
    tmp_path: Path, tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    url = serve(serving)
    facts = read_facts(tiny_models["llama"], "bfloat16")
    layers = feature_layers(8)
    with closing(ServedBackend(VllmServer(url, facts, layers), facts, layers, lambda *_: None)) as backend:
        with pytest.raises(Unusable, match="computes in float32, not bfloat16: give --dtype float32"):
            list(backend.compute(_samples(40), lambda: True))
    (tmp_path / "states").rename(tmp_path / "elsewhere")
    serving.faults = deque(["missing"])
    serving.uses_lock = False
    with pytest.raises(Unusable, match="states, which is no folder on this machine"):
        _compute(_backend(tiny_models["llama"], url), _samples(40))
    with pytest.raises(ModelError, match="vocabulary of 512"):
        _compute(_backend(tiny_models["llama"], url), [IdsSample("s0", (1, 512), (0, 1))])


def test_samples_that_get_no_states_prove_nothing_and_are_refused_alone(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    serving.max_model_len = 50
    serving.faults = deque(["nan"])
    computed = _compute(_backend(tiny_models["llama"], serve(serving)), _samples(60, 40, 20, 9))
    assert [one.refusal for one in computed.values()] == [
        "60 tokens do not fit: the server takes 49.",
        None,
        None,
        None,
    ]


def test_a_server_that_fails_the_proof_leaves_no_folder_behind(
    tmp_path: Path, tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    serving.last_is_normed = True
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples((40, 7)))
    with pytest.raises(Unusable, match="is the stream after the final norm"):
        _extract_ids(ids, tiny_models["llama"], tmp_path / "out", engine="vllm", server=serve(serving))
    assert not (tmp_path / "out").exists()
    serving.last_is_normed, serving.max_model_len = False, 7
    with pytest.raises(ModelError, match=r"None of 2 samples can .* for none of 2 samples. The last one, sample s1: 7"):
        _extract_ids(ids, tiny_models["llama"], tmp_path / "out", engine="vllm", server=serve(serving))


def test_a_server_that_fails_sample_after_sample_ends_the_extraction(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    with closing(_backend(tiny_models["llama"], serve(serving))) as backend:
        list(backend.compute(_samples(40), lambda: True))
        serving.faults = deque(["500"] * 100)
        said = r"10 samples in a row got no states: 10 without a usable answer; of 16 asked for in all 6 got some. "
        with pytest.raises(Unusable, match=said + r"The last one, sample s9: The server answered 500"):
            list(backend.compute(_samples(*(9,) * 20), lambda: True))


def test_a_window_without_any_states_is_refused_and_the_next_one_is_proved_and_computed(
    tmp_path: Path, tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    serving.max_model_len = 50
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(*(60,) * 70, 40, 20))
    done = _run_here(folder, Choices(follow=False, engine="vllm", server=serve(serving)))
    assert (done.progress.samples, done.progress.refused) == (2, 70)
    assert set(_stored(folder)) == {"s70", "s71"}
    assert serving.requests == PROOF + 2, "what does not fit is not asked for"


def test_failures_add_up_over_windows_and_end_the_extraction_with_counts_and_the_reason(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    serving.faults = deque(["zeros"] * 4 + ["500"] * 18)
    with closing(_backend(tiny_models["llama"], serve(serving))) as backend:
        first = list(backend.compute(_samples(9, 8, 7, 6), lambda: True))
        assert [one.refusal for one in first] == ["1 of 9 rows have a stream of zeros."] + [
            f"1 of {rows} rows have a stream of zeros." for rows in (8, 7, 6)
        ]
        said = (
            r"10 samples in a row got no states: 4 with broken states, 6 without a usable answer; of 10 .* 0 got some"
        )
        with pytest.raises(Unusable, match=said):
            list(backend.compute(_samples(*range(20, 12, -1)), lambda: True))


@pytest.mark.slow
def test_zeros_for_every_sample_after_the_proof_end_the_extraction_too(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    with closing(_backend(tiny_models["llama"], serve(serving))) as backend:
        list(backend.compute(_samples(40), lambda: True))
        serving.faults = deque(["zeros"] * 20)
        with pytest.raises(Unusable, match="10 samples in a row got no states: 10 with broken states"):
            list(backend.compute(_samples(*(9,) * 20), lambda: True))


def test_the_proof_goes_on_with_shorter_samples_where_the_long_ones_fail(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    serving.faults = deque(["500"] * 9)
    computed = _compute(_backend(tiny_models["llama"], serve(serving)), _samples(*range(60, 40, -1)))
    assert [one.refusal for one in computed.values()] == [None] * 20
    assert serving.lengths[9] == 60 - 3 - 17 // 2, "three of the longest were asked for three times"


def test_work_ends_without_waiting_for_answers_when_asked_to(
    tiny_models: dict[Kind, Path], serving: VllmServing, serve: Serve
) -> None:
    backend = _backend(tiny_models["llama"], serve(serving), file_timeout_s=60.0)
    list(backend.compute(_samples(40), lambda: True))
    serving.write_after = threading.Event()
    assert list(backend.compute(_samples(7, 8, 9), lambda: False)) == []
    serving.write_after.set()
    backend.close()


def test_the_command_starts_a_server_that_takes_the_longest_sample_and_no_more(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples(LENGTHS))
    with pytest.raises(InputError, match="--max-model-len 151 --max-num-batched-tokens 32768 --speculative-config"):
        _extract_ids(ids, tiny_models["llama"], tmp_path / "out", engine="vllm")
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(40, 7))
    with pytest.raises(InputError, match="--max-model-len 41 "):
        _run_here(folder, Choices(follow=False, engine="vllm"))
    with pytest.raises(InputError, match="--max-model-len 1024 "):  # more come: the model's own context
        _run_here(folder, Choices(follow=True, engine="vllm"))


def test_a_missing_or_absent_server_is_named_with_the_command_that_starts_one(tiny_models: dict[Kind, Path]) -> None:
    model = tiny_models["llama"]
    with pytest.raises(InputError, match=r"--engine vllm needs --server URL[^\n]*\nVLLM_SERVER_DEV_MODE=1 vllm serve "):
        open_backend(Order(model, "vllm"), lambda *_: None)
    with pytest.raises(Unusable, match=r"No server answers at http://127\.0\.0\.1:1: "):
        open_backend(Order(model, "vllm", "http://127.0.0.1:1"), lambda *_: None)
    with pytest.raises(InputError, match="expected http://HOST:PORT"):
        open_backend(Order(model, "vllm", "ftp://x"), lambda *_: None)
