"""A run's ids again from its kept replies: what changes, what stays, and what a kill leaves behind."""

import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from eagletui.config.run_config import load_config
from eagletui.core.drift import STOP_NOT_BILLED
from eagletui.core.errors import InputError, LockedError, RunError
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.orders import Feature, TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_extract import ExtractorWriter
from eagletui.rebuild import changes, remake
from eagletui.rebuild.job import rebuild_run
from eagletui.rebuild.remake import Spool
from eagletui.runs.folder import RunFolder
from eagletui.tokens.load import load_tokenizer
from tests.cli.conftest import Command, eagletui, runs
from tests.engine.run_folder import until
from tests.kept_run import Answer, answered_run, kept, run_of, spoil, stored

__all__ = ["eagletui", "runs"]

SAMPLES = 40


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that a real engine has finished. Copy it before changing it."""
    return answered_run(tmp_path_factory.mktemp("answered") / "run", SAMPLES, sampling={"max_tokens": 512})


@pytest.fixture
def run(answered: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of the finished run."""
    return RunFolder(Path(shutil.copytree(answered.path, tmp_path / "run")))


def revisions(folder: RunFolder) -> dict[str, int]:
    return {key: tokens.revision for key, tokens in stored(folder).items()}


def ids(folder: RunFolder) -> dict[str, tuple[list[int], list[int]]]:
    return {key: (list(one.prompt_ids or ()), list(one.output_ids or ())) for key, one in stored(folder).items()}


def labels(folder: RunFolder) -> dict[str, tuple[object, ...]]:
    return {
        item.row.sample_key: (item.row.evidence, item.row.usability, item.row.drift_tokens, item.row.offset_tokens)
        for item in kept(folder)
    }


def contents(folder: RunFolder) -> dict[str, str]:
    """What lies on disk; SQLite's side files, which a reader makes, are empty or scratch."""
    return {
        str(path.relative_to(folder.path)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.path.rglob("*"))
        if path.is_file() and path.stat().st_size and not path.name.endswith("-shm")
    }


def test_a_rebuild_finds_the_very_ids_that_the_engine_found(run: RunFolder) -> None:
    before, labelled = ids(run), labels(run)
    report = rebuild_run(run)
    assert (report.samples, report.ids_changed, report.troubles) == (SAMPLES, 0, ())
    assert ids(run) == before
    assert labels(run) == labelled
    assert set(revisions(run).values()) == {1}
    assert rebuild_run(run).labels_changed == 0


def test_wrong_ids_are_replaced_and_only_their_revision_grows(run: RunFolder) -> None:
    truth = ids(run)
    damaged = sorted(truth)[3:9]
    spoil(run, damaged)
    report = rebuild_run(run)
    assert report.ids_changed == len(damaged)
    assert ids(run) == truth
    assert {key for key, revision in revisions(run).items() if revision > 1} == set(damaged)


@pytest.mark.slow
def test_shards_over_ids_that_changed_are_named_and_their_samples_wait_for_features(run: RunFolder) -> None:
    items = kept(run)
    spoil(run, [items[1].row.sample_key, items[2].row.sample_key, items[20].row.sample_key])
    with ExtractorWriter(run.ledger_path) as extractor:
        for path, part in (("shards/000000.safetensors", items[:10]), ("shards/000001.safetensors", items[10:20])):
            features = [
                Feature(item.row.id, at, 5, revisions(run)[item.row.sample_key]) for at, item in enumerate(part)
            ]
            extractor.commit_shard(path, features, size_bytes=1, xxh3="0")
    with LedgerReader(run.ledger_path) as reader:
        pending = reader.snapshot().extract.pending
    foreseen = rebuild_run(run, dry_run=True)
    report = rebuild_run(run)
    assert foreseen.stale == report.stale
    assert [(share.path, share.samples, share.of) for share in report.stale] == [("shards/000000.safetensors", 2, 10)]
    with LedgerReader(run.ledger_path) as reader:
        assert reader.snapshot().extract.pending == pending + 2
    assert rebuild_run(run).stale == ()


@pytest.mark.slow
def test_a_dry_run_foresees_everything_and_writes_nothing(run: RunFolder) -> None:
    spoil(run, ["p0003", "p0007"])
    before = contents(run)
    report = rebuild_run(run, dry_run=True, output_format="chatml", profile="vllm")
    assert (report.dry_run, report.ids_changed, report.format) == (True, 2, "chatml")
    assert contents(run) == before


@pytest.mark.slow
def test_an_engine_that_works_is_named_and_only_a_dry_run_goes_on(run: RunFolder) -> None:
    with RoleLock(run.path, "engine"):
        with pytest.raises(LockedError, match=f"pid {os.getpid()}"):
            rebuild_run(run)
        assert rebuild_run(run, dry_run=True).samples == SAMPLES


@pytest.mark.slow
def test_a_format_of_ones_own_stays_the_runs_and_a_wrong_one_is_found_out(run: RunFolder, tmp_path: Path) -> None:
    truth, labelled = ids(run), labels(run)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(
        'name = "wrong"\ntitle = "Wrong"\nstate = "from documentation"\nsource = "a test"\n'
        'specials = ["<|im_end|>", "<|im_start|>"]\n\n[end]\nstop = "<|im_start|>"\n'
    )
    report = rebuild_run(run, output_format=str(wrong))
    assert "end_token" in {finding.kind for finding in report.findings}
    assert "counted" not in report.figures(report.evidence, 1)
    assert load_config(run.config_path).model.format == str(wrong)
    with LedgerReader(run.ledger_path) as reader:
        assert reader.run().format == str(wrong)
        assert "end_token" in {finding.kind for finding in reader.snapshot().findings}
    again = rebuild_run(run, output_format="smollm2")
    assert again.findings == ()
    assert (ids(run), labels(run)) == (truth, labelled)
    with LedgerReader(run.ledger_path) as reader:
        assert reader.run().format == "smollm2"
        assert reader.snapshot().findings == ()


def test_a_format_that_the_tokenizer_cannot_write_is_refused_and_nothing_is_written(run: RunFolder) -> None:
    before = contents(run)
    with pytest.raises(InputError, match=r"kimi-k2\.5 needs <"):
        rebuild_run(run, output_format="kimi-k2.5")
    assert contents(run).keys() - before.keys() <= {"locks/engine.lock"}
    assert load_config(run.config_path).model.format == "smollm2"


def unbilled_stop(answer: Answer) -> Answer:
    """The same answer of an endpoint that does not bill the stop token."""
    if answer.finish_reason != "stop" or answer.billed_output is None:
        return answer
    billed = answer.billed_output - 1
    body = re.sub(rb'"completion_tokens":\s*\d+', b'"completion_tokens":%d' % billed, answer.body)
    assert body != answer.body
    return replace(answer, body=body, billed_output=billed)


def test_an_endpoint_that_does_not_bill_the_stop_token_gets_its_named_offset_and_no_finding(
    answered: RunFolder, tmp_path: Path
) -> None:
    truth = [list(item.tokens.output_ids or ()) for item in kept(answered) if item.tokens is not None] * 2
    folder = run_of(tmp_path / "unbilled", kept(answered), times=2, change=unbilled_stop)
    report = rebuild_run(folder)
    stops = Counter(item.row.endpoint or "" for item in kept(folder) if item.row.finish_reason == "stop")
    enough = {endpoint for endpoint, number in stops.items() if number >= 10}
    assert enough
    assert {endpoint for endpoint, cause in report.causes.items() if cause == STOP_NOT_BILLED} >= enough
    assert [finding for finding in report.findings if finding.endpoint in enough] == []
    with LedgerReader(folder.ledger_path) as reader:
        rows = {row.tag: (row.offset_tokens, row.offset_cause) for row in reader.endpoints()}
    assert all(rows[endpoint] == (-1, "stop token not billed") for endpoint in enough)
    for item, expected in zip(kept(folder), truth, strict=True):
        if item.row.endpoint in enough and item.tokens is not None and item.row.evidence != "conflict":
            assert list(item.tokens.output_ids or ()) == expected
            assert item.row.drift_tokens == 0
    again = rebuild_run(folder)
    assert (again.ids_changed, again.labels_changed) == (0, 0)


def test_answers_that_never_had_ids_get_them(answered: RunFolder, tmp_path: Path) -> None:
    folder = run_of(tmp_path / "untokenized", kept(answered))
    assert stored(folder) == {}
    report = rebuild_run(folder)
    assert report.figures(report.evidence, 0) == {"-": SAMPLES}
    assert list(ids(folder).values()) == list(ids(answered).values())
    with LedgerReader(folder.ledger_path) as reader:
        assert reader.snapshot().states["tokenized"] == SAMPLES


@pytest.mark.slow
def test_several_processes_make_what_one_makes(
    answered: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_of(tmp_path / "untokenized", kept(answered), times=4)
    monkeypatch.setattr(remake, "ALONE", 0)
    report = rebuild_run(folder, processes=2)
    assert (report.processes, report.samples) == (2, 4 * SAMPLES)
    assert list(ids(folder).values()) == list(ids(answered).values()) * 4


def test_a_reply_that_cannot_be_read_stays_as_it_was_and_is_named(answered: RunFolder, tmp_path: Path) -> None:
    few = kept(answered)[:6]
    broken = run_of(
        tmp_path / "broken",
        few,
        change=lambda answer: replace(answer, body=b"data: <html>\n\n") if answer.body == few[2].reply.body else answer,
    )
    report = rebuild_run(broken)
    assert [trouble.sample_key for trouble in report.troubles] == ["k000002"]
    assert "expected JSON" in report.troubles[0].why
    assert report.samples == 5
    assert stored(broken).keys() == {"k000000", "k000001", "k000003", "k000004", "k000005"}


def test_a_quarantined_sample_stays_so_and_its_usability_shows_after_the_release(run: RunFolder) -> None:
    endpoint = kept(run)[0].row.endpoint or ""
    truth, labelled = ids(run), labels(run)
    with LedgerWriter(run.ledger_path) as writer:
        writer.quarantine(endpoint)
    spoil(run, sorted(truth))
    report = rebuild_run(run)
    assert report.ids_changed == SAMPLES
    quarantined = [item for item in kept(run) if item.row.endpoint == endpoint]
    assert {(item.row.state, item.row.usability) for item in quarantined} == {("quarantined", "model_suspect")}
    with LedgerWriter(run.ledger_path) as writer:
        writer.release(endpoint)
    assert (ids(run), labels(run)) == (truth, labelled)


COMMAND = (sys.executable, "-c", "from eagletui.cli.app import main; main()", "rebuild")


@pytest.mark.slow
def test_a_kill_in_the_middle_leaves_whole_samples_and_a_second_rebuild_does_the_rest(
    answered: RunFolder, tmp_path: Path
) -> None:
    times = 12
    folder = run_of(tmp_path / "killed", kept(answered), times=times)
    truth = list(ids(answered).values())
    process = subprocess.Popen([*COMMAND, str(folder.path)], start_new_session=True, stderr=subprocess.DEVNULL)
    with LedgerReader(folder.ledger_path) as reader:
        until(lambda: reader.snapshot().states["tokenized"] >= changes.BATCH, "a batch is written")
        process.send_signal(signal.SIGKILL)
        process.wait()
        snapshot = reader.snapshot()
    until(lambda: not _group_lives(process.pid), "the processes of the rebuild end with it")
    if snapshot.states["tokenized"] < times * SAMPLES:
        assert [finding.kind for finding in snapshot.findings] == [changes.UNFINISHED]
    for key, made in ids(folder).items():
        assert made == truth[int(key[1:]) % SAMPLES]
    second = subprocess.run([*COMMAND, str(folder.path), "--json"], capture_output=True, check=True)
    told = json.loads(second.stdout)
    assert told["changed_ids"] == times * SAMPLES - snapshot.states["tokenized"]
    assert list(ids(folder).values()) == truth * times
    assert set(revisions(folder).values()) == {1}
    with LedgerReader(folder.ledger_path) as reader:
        assert reader.snapshot().findings == ()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_command_shows_evidence_before_and_now_and_what_changed(eagletui: Command, run: RunFolder) -> None:
    spoil(run, ["p0002", "p0005"])
    ended = eagletui("rebuild", str(run.path), "--dry-run")
    assert ended.code == 0, ended.err
    assert "would be" in ended.out
    assert re.search(r"other ids +2 samples: p0002, p0005\n", ended.out)
    assert "Nothing was written." in ended.out
    told = eagletui("rebuild", str(run.path), "--json").json
    assert (told["samples"], told["changed_ids"], told["changed_examples"]) == (SAMPLES, 2, ["p0002", "p0005"])
    assert sum(told["evidence"]["before"].values()) == sum(told["evidence"]["after"].values()) == SAMPLES
    assert told["stale_shards"] == told["findings"] == told["not_rebuilt"] == []
    assert told["seconds"] > 0


def test_the_command_exits_1_and_names_a_reply_that_cannot_be_read(
    eagletui: Command, answered: RunFolder, tmp_path: Path
) -> None:
    broken = run_of(
        tmp_path / "broken", kept(answered)[:2], change=lambda answer: replace(answer, encoding="json", body=b"<html>")
    )
    ended = eagletui("rebuild", str(broken.path))
    assert ended.code == 1
    assert "not rebuilt: k000000: found <html>, expected JSON" in ended.err


def test_an_unknown_format_is_refused_with_near_names(eagletui: Command, run: RunFolder) -> None:
    ended = eagletui("rebuild", str(run.path), "--format", "smolm2")
    assert ended.code == 2
    assert "Did you mean smollm2" in ended.err


def test_ids_that_a_target_model_chose_are_kept_while_the_text_is_the_same(run: RunFolder) -> None:
    chosen = next(item for item in kept(run) if item.row.evidence == "counted" and item.tokens is not None)
    assert chosen.tokens is not None
    assert chosen.tokens.output_ids is not None
    other = [*chosen.tokens.output_ids, chosen.tokens.output_ids[-1]]
    with LedgerWriter(run.ledger_path) as writer:
        writer.store_tokens(
            chosen.row.id,
            TokensResult(
                other, chosen.tokens.raw, "inferred", "usable", prompt_ids=chosen.tokens.prompt_ids, reason="margin 3"
            ),
        )
    rebuild_run(run)
    after = next(item for item in kept(run) if item.row.id == chosen.row.id)
    assert after.tokens is not None
    assert (after.row.evidence, list(after.tokens.output_ids or ())) == ("inferred", other)


def test_a_full_disk_is_said_in_words(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Spool(tmp_path) as spool:
        spool.put(1, b"one")
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
        try:
            with pytest.raises(RunError, match="free space there and rebuild again"):
                spool.put(2, bytes(5_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (spool.get(1), spool.get(2)) == (b"one", None)
    assert list(tmp_path.iterdir()) == []


def test_a_fast_encoder_that_gives_other_ids_than_the_tokenizers_own_is_not_used(
    answered: RunFolder, tmp_path: Path
) -> None:
    """The table has a merge that no listed pair leads to: tiktoken makes it, Hugging Face does not."""
    run = run_of(tmp_path / "odd", kept(answered)[:2], change=lambda answer: spelled(answer, "ZQX"))
    path = run.tokenizer_dir / "tokenizer.json"
    table = json.loads(path.read_text())
    for pair in (["Z", "Q"], ["Q", "X"], ["Z", "QX"]):
        table["model"]["vocab"]["".join(pair)] = len(table["model"]["vocab"])
        table["model"]["merges"].append(pair)
    path.write_text(json.dumps(table))
    tokenizer = load_tokenizer(run.tokenizer_dir)
    assert len(tokenizer.encode("ZQX")) == 1 != len(tokenizer.reference("ZQX"))
    rebuild_run(run)
    assert rebuild_run(run).encoders_differ
    for one in stored(run).values():
        assert list(one.output_ids or ())[:-1] == tokenizer.reference("ZQX")
    with LedgerReader(run.ledger_path) as reader:
        assert "encoder" in {event.kind for event in reader.last_events(20)}


def spelled(answer: Answer, text: str) -> Answer:
    """The same answer with another text, in one piece."""
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
    return replace(answer, body=json.dumps({"choices": [choice]}).encode(), encoding="json", finish_reason="stop")
