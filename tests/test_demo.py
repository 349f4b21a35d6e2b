"""The demo as the README's first command runs it, checked against the provider's own books, with `-m slow`.

The books are the witness: they hold the ids that the model sampled and the money that was charged. The default suite
has its parts: the model's server in `embedded/test_llama`, runs against books in `engine`, live features in `extract`.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eagletui.core.fidelity import PROVED
from eagletui.core.vocabulary import Vocabulary, unpack_vocabulary
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_samples import SampleDetail
from eagletui.runs.folder import RunFolder
from eagletui.runs.workers import workers

pytestmark = [pytest.mark.demo, pytest.mark.slow, pytest.mark.timeout(300)]

REPOSITORY = Path(__file__).parent.parent

WHOLE_SIZE = 24
WHOLE = "from eagletui.cli.app import main; main(['demo', '--headless'])"
SMALL = """
from eagletui.cli.create import read_config
from eagletui.cli.demo import configs_dir, require_extra, run_demo
from eagletui.cli.run import with_options

require_extra()
config = with_options(read_config(str(configs_dir() / "demo.toml")), limit=9)
sampling = config.sampling.model_copy(update={"max_tokens": 48})
raise SystemExit(run_demo(config.model_copy(update={"sampling": sampling}), screens=False))
"""
"""The first nine of its prompts, one of every kind and at every endpoint, with half the tokens."""


@dataclass(frozen=True)
class Demo:
    """A finished demo."""

    size: int
    """Samples."""
    folder: RunFolder
    out: str
    samples: tuple[SampleDetail, ...]
    true_ids: dict[str, list[int]]
    """By generation id."""
    charged_pico: int
    vocabulary: Vocabulary

    def truth(self, sample: SampleDetail) -> list[int]:
        """The ids that the model sampled for a sample, up to the last whole character."""
        generation_id = next(attempt.generation_id for attempt in sample.attempts if attempt.has_answer)
        assert generation_id is not None
        return self.whole(self.true_ids[generation_id])

    def whole(self, ids: list[int]) -> list[int]:
        """Cut ids after the last whole character."""
        for end in range(len(ids), -1, -1):
            try:
                self.vocabulary.decode(ids[:end]).decode("utf-8")
            except UnicodeDecodeError:
                continue
            return ids[:end]
        raise AssertionError("the empty list decodes")


@pytest.fixture(scope="module", params=["small", "whole"])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Run the demo once, for all tests of this file."""
    runs = tmp_path_factory.mktemp("demo") / "runs"
    size, code = (9, SMALL) if request.param == "small" else (WHOLE_SIZE, WHOLE)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={"PATH": "/usr/bin:/bin", "HOME": str(runs.parent), "EAGLETUI_RUNS": str(runs)},
    )
    assert done.returncode == 0, done.stderr
    folder = RunFolder(runs / "demo")
    rows = [json.loads(line) for line in (folder.provider_dir / "books.jsonl").read_text().splitlines()]
    bills: list[dict[str, Any]] = [row for row in rows if "cost_pico" in row]
    with LedgerReader(folder.ledger_path) as reader:
        keys = [row.sample_key for row in reader.page(SampleFilter(), None, 1_000)]
        found = [reader.sample(key) for key in keys]
    return Demo(
        size=size,
        folder=folder,
        out=done.stdout,
        samples=tuple(sample for sample in found if sample is not None),
        true_ids={bill["id"]: bill["output_ids"] for bill in bills},
        charged_pico=sum(bill["cost_pico"] for bill in bills),
        vocabulary=unpack_vocabulary(folder.vocabulary_path.read_bytes()),
    )


def test_every_sample_is_answered_once_over_three_endpoints(demo: Demo) -> None:
    assert len(demo.samples) == demo.size
    assert {sample.row.state for sample in demo.samples} == {"tokenized"}
    assert len(demo.true_ids) == sum(len(sample.attempts) for sample in demo.samples)
    assert {sample.row.endpoint for sample in demo.samples} == {
        "embedded/stream",
        "embedded/logprobs",
        "embedded/text",
    }


def test_what_is_called_proved_has_exactly_the_ids_that_the_model_sampled(demo: Demo) -> None:
    proved = [sample for sample in demo.samples if sample.row.evidence in PROVED]
    assert proved
    for sample in proved:
        assert sample.tokens is not None
        assert sample.tokens.output_ids is not None
        assert demo.whole(list(sample.tokens.output_ids)) == demo.truth(sample), sample.row.sample_key


def test_at_least_four_of_five_samples_are_exact(demo: Demo) -> None:
    exact = [
        sample
        for sample in demo.samples
        if sample.tokens is not None
        and sample.tokens.output_ids is not None
        and demo.whole(list(sample.tokens.output_ids)) == demo.truth(sample)
    ]
    assert len(exact) >= 0.8 * demo.size


def test_at_least_one_proved_sample_is_not_what_re_encoding_its_text_gives(demo: Demo) -> None:
    if demo.size < WHOLE_SIZE:
        pytest.skip("nine short answers may all be canonical")
    shown = [
        sample
        for sample in demo.samples
        if sample.row.evidence in PROVED and sample.tokens and any(span.kind == "~" for span in sample.tokens.spans)
    ]
    assert shown


def test_the_ledger_and_the_providers_books_agree_to_the_last_picodollar(demo: Demo) -> None:
    with LedgerReader(demo.folder.ledger_path) as reader:
        books = reader.books()
    assert books.settled_pico == demo.charged_pico > 0
    assert (books.open_pico, books.unattributed_pico) == (0, 0)
    assert books.settled_pico < books.stop_at_pico


def test_every_trainable_sample_has_features_and_a_line_of_training_data(demo: Demo) -> None:
    trainable = [sample for sample in demo.samples if sample.row.usability in ("usable", "resegmented")]
    assert all(sample.row.extracted for sample in trainable)
    lines = (demo.folder.exports_dir / "jsonl" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    by_id = {line["id"]: line for line in map(json.loads, lines)}
    assert by_id.keys() == {sample.row.sample_key for sample in trainable}
    for sample in trainable:
        assert sample.tokens is not None
        prompt_ids, output_ids = sample.tokens.prompt_ids, sample.tokens.output_ids
        assert prompt_ids is not None
        assert output_ids is not None
        line = by_id[sample.row.sample_key]
        assert line["input_ids"] == [*prompt_ids, *output_ids]
        assert line["loss_mask"] == [0] * len(prompt_ids) + [1] * len(output_ids)


def test_the_last_lines_say_what_came_out_and_where_it_lies(demo: Demo) -> None:
    names = [line.split("  ")[0] for line in demo.out.splitlines()]
    assert names[:2] == ["samples", "exact"]
    for name in ("other ids", "drift", "dollars", "features", "training data", "run folder"):
        assert name in names
    assert f"{demo.size} answered of {demo.size}" in demo.out
    assert "stop-at $0.02, cap $0.05" in demo.out
    assert f"the provider's own books say the same: {demo.charged_pico:,} picodollars" in demo.out
    assert "demo/features" in demo.out


def test_no_process_stays_behind(demo: Demo) -> None:
    assert [worker for worker in workers(demo.folder) if worker.alive] == []
