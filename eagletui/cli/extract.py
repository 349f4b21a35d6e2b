"""`eagletui extract`: hidden states of the target model over exact ids."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from eagletui.cli.output import bytes_text, counted, print_json, print_pairs, say
from eagletui.core.errors import InputError, RunError
from eagletui.core.text import clean_line
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer_extract import ExtractorWriter
from eagletui.runs.find import find
from eagletui.runs.folder import RunFolder

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from eagletui.extract.choices import Choices
    from eagletui.extract.engines import Order
    from eagletui.extract.file_run import Extracted
    from eagletui.extract.gather import Progress

LINE_EVERY_S: Final = 5.0
REFUSED: Final = 1


def extract(
    source: Annotated[str, typer.Argument(help="A run, or a JSONL file of ids.", metavar="RUN|IDS.jsonl")],
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="PATH", help="Target model: a folder of safetensors or a .gguf file."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Features folder; left out: beside the ids file.")
    ] = None,
    engine: Annotated[
        Literal["local", "vllm", "sglang", "ray"] | None,
        typer.Option("--engine", help="What computes; left out: the run's choice, else local."),
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="Of a vLLM or SGLang server that runs the model.")
    ] = None,
    trust_server: Annotated[
        bool,
        typer.Option("--trust-server", help="Take a vLLM server that does not tell its layers: you have looked."),
    ] = False,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16", "fp8", "auto"] | None,
        typer.Option(
            "--dtype", help="Of computation and states, fp8 for half the disk; else the run's choice or auto."
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="auto|ADDR", help="Ray cluster to join; left out: one is started on this machine."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="Of the local engine: auto, cpu, cuda, cuda:N, or spread: a model too large for one GPU over all of "
            "them. Left out: the run's choice, else auto, which spreads what does not fit.",
        ),
    ] = None,
    gpus_per_worker: Annotated[
        float, typer.Option("--gpus-per-worker", metavar="N", min=0.01, help="With --engine ray: GPUs for each worker.")
    ] = 1.0,
    storage: Annotated[
        str | None,
        typer.Option("--storage", metavar="URL", help="Where a run's shards go: s3://BUCKET/PREFIX, gs://, file://."),
    ] = None,
    token_budget: Annotated[
        int | None,
        typer.Option(
            "--token-budget",
            metavar="N",
            min=1,
            help="At most N tokens in all, those there included; every data set and length in its share.",
        ),
    ] = None,
    stream_ahead: Annotated[
        int | None,
        typer.Option(
            "--stream-ahead",
            metavar="N",
            min=1,
            help="Keep N sealed shards ahead of a trainer; one that gets an empty SHARD.ack beside it is deleted.",
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Compute hidden states over ids that are fixed already: of a run, into its features folder, or of a file.

    Lines of a file are {"id", "input_ids", "loss_mask"}, as export writes them, or {"id", "prompt_ids", "output_ids"}.
    A second call goes on where the first one ended. Exit 1 if a sample got no features. With --engine vllm or sglang a
    running server computes; without --server, the command that starts one is printed. With --engine ray workers on a
    cluster make the shards, one a GPU; a run's workers need --storage or a disk that all nodes share.
    """
    file = Path(source).expanduser()
    if file.suffix == ".jsonl" or (file.is_file() and file.suffix not in (".sqlite", ".db")):
        if not file.is_file():
            raise InputError(f"{source}: no such file; expected a JSONL file of ids, or a run.")
        if model is None:
            raise InputError("--model is missing: name the target model, a folder of safetensors or a .gguf file.")
        from eagletui.extract.engines import Order

        if engine == "ray" or storage is not None or address is not None:
            raise InputError(
                "--engine ray, --address and --storage go with a run, whose ledger says which shards count; "
                "found a file of ids. Make a run of it with: eagletui import RUN IDS.jsonl"
            )
        order = Order(model, engine or "local", server, dtype or "auto", device or "auto", trust_server=trust_server)
        return _of_file(file, order, out or file.with_name(f"{file.stem}-features"), token_budget, stream_ahead, json_)
    folder = find(source)
    if out is not None:
        raise InputError(
            f"--out does not go with a run: its features lie in {folder.features_dir}. "
            "To put them on a larger disk, make that folder a link before the first extraction."
        )
    from eagletui.extract.choices import Choices

    choices = Choices(
        follow=False,
        model=model,
        dtype=dtype,
        engine=engine,
        server=server,
        trust_server=trust_server,
        address=address,
        storage=storage,
        gpus_per_worker=gpus_per_worker,
        token_budget=token_budget,
        stream_ahead=stream_ahead,
        device=device,
    )
    return _of_run(folder, choices, json_)


def _of_file(
    file: Path, order: "Order", out: Path, token_budget: int | None, stream_ahead: int | None, json_: bool
) -> int:
    from eagletui.extract.file_run import Watching, extract_file

    with _shown() as shown:
        watching = Watching(shown.report, shown.start, shown.step)
        done = extract_file(file, order, out, watching, token_budget=token_budget, stream_ahead=stream_ahead)
    if json_:
        print_json(asdict(done))
    else:
        print_pairs(_file_pairs(done))
    return REFUSED if done.refused else 0


def _of_run(folder: RunFolder, choices: "Choices", json_: bool) -> int:
    from eagletui.extract.run_features import RunExtractor
    from eagletui.extract.run_folder import count_there

    with (
        RoleLock(folder, "extractor"),
        LedgerReader(folder.ledger_path) as reader,
        ExtractorWriter(folder.ledger_path) as writer,
        _shown() as shown,
    ):
        choices = replace(choices, start=shown.start, step=shown.step, echo=shown.report)
        done = RunExtractor(folder, reader, writer, choices, threading.Event()).run()
        there = count_there(folder.features_dir, reader)
    if done.manifest is None:
        raise RunError(f"Nothing of run {folder.name} was extracted.")
    if json_:
        print_json(
            {
                "out": str(folder.features_dir),
                "samples": there.samples,
                "rows": there.rows,
                "bytes": there.bytes,
                "shards": there.shards,
                "acknowledged": there.acknowledged,
                "to_acknowledge": done.to_acknowledge,
                "computed": done.progress.samples,
                "refused": done.progress.refused,
                "without_prompt_ids": done.without_prompt,
                "left_out": done.left_out,
                "dtype": done.manifest.dtype,
                "stored": done.manifest.stored,
                "layers_entering": done.manifest.layers_entering,
                "capture": done.manifest.capture,
                "rows_per_s": round(done.progress.rows_per_s, 1),
            }
        )
    else:
        print_pairs(
            [
                (
                    "samples",
                    f"{there.samples:,} with features, {done.progress.samples:,} computed now, {done.left_out:,} "
                    "left out by the budget",
                ),
                ("without", f"{counted(done.progress.refused + done.without_prompt, 'sample')} got no features"),
                *_shard_pairs(there.shards, there.acknowledged, there.rows, there.bytes, done.to_acknowledge),
                ("capture", f"{done.manifest.dtype} stored as {done.manifest.stored}, {done.manifest.capture}"),
                ("features", str(folder.features_dir)),
            ]
        )
    return REFUSED if done.progress.refused else 0


def _file_pairs(done: "Extracted") -> list[tuple[str, str]]:
    return [
        (
            "samples",
            f"{done.samples:,} with features, {done.computed:,} computed now, {done.refused:,} refused, "
            f"{done.left_out:,} left out",
        ),
        *_shard_pairs(done.shards, done.acknowledged, done.rows, done.bytes, done.to_acknowledge),
        ("layers", f"entering {', '.join(map(str, done.layers_entering))}, then the last before the final norm"),
        ("capture", f"{done.dtype} stored as {done.stored}, {done.capture}"),
        ("pace", f"{done.rows_per_s:,.0f} tokens/s, {done.seconds:.1f} s with loading"),
        ("features", done.out),
    ]


def _shard_pairs(
    sealed: int, acknowledged: int, rows: int, size_bytes: int, to_acknowledge: int | None
) -> list[tuple[str, str]]:
    """Say what was sealed, what of it is there, and what a trainer still has to do."""
    kept = sealed - acknowledged
    here = f", {bytes_text(size_bytes)}" if not acknowledged else f"; {kept:,} here of {bytes_text(size_bytes)}"
    pairs = [("shards", f"{sealed:,}, {rows:,} tokens{here if kept else '; none is here'}")]
    if to_acknowledge is not None:
        said = f"{acknowledged:,} acknowledged and deleted, {to_acknowledge:,} left to acknowledge"
        after = ": the next call with --stream-ahead deletes what has its mark by then" if to_acknowledge else ""
        pairs.append(("trainer", said + after))
    return pairs


class Shown:
    """Progress on stderr: a bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self, bar: "Bar | None") -> None:
        """Take the bar; None prints lines."""
        self._bar = bar
        self._task: Any = None
        self._rows = 0
        self._next_line = 0.0

    def report(self, level: Literal["info", "warn", "error"], _kind: str, message: str) -> None:
        """Show a message."""
        text = clean_line(message if level == "info" else f"{level}: {message}")
        if self._bar is None:
            say(text)
        else:
            self._bar.console.print(text, markup=False, highlight=False)

    def start(self, samples: int, rows: int) -> None:
        """Show how much there is to do."""
        self._rows = rows
        if self._bar is None:
            say(f"{counted(samples, 'sample')}, {counted(rows, 'token')} to compute.")
        else:
            self._task = self._bar.add_task(f"{counted(samples, 'sample')}", total=rows)

    def step(self, progress: "Progress") -> None:
        """Show how far it is."""
        if self._bar is not None:
            if self._task is not None:
                self._bar.update(self._task, completed=progress.rows)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY_S
            say(f"{progress.rows:,} of {self._rows:,} tokens, {progress.rows_per_s:,.0f} tokens/s")


@contextmanager
def _shown() -> Iterator[Shown]:
    if not sys.stderr.isatty():
        yield Shown(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tokens"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        yield Shown(bar)
