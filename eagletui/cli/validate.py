"""`eagletui validate`: recorded ids against what text alone would give."""

from pathlib import Path
from typing import Annotated

import typer

from eagletui.cli.output import counted, print_json, print_pairs, print_table
from eagletui.cli.reconstruct import print_findings
from eagletui.cli.steps import steps

_SHOWN = 20


def validate(
    ids: Annotated[Path, typer.Argument(help="Recorded ids, one JSON object a line.", metavar="IDS.jsonl")],
    tokenizer: Annotated[Path, typer.Option("--tokenizer", help="Tokenizer folder.", metavar="DIR")],
    fmt: Annotated[str, typer.Option("--format", help="Output format of the model, or a .toml file.", metavar="F")],
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Decode recorded ids, rebuild them as if only the text had come, and show where they differ.

    A line is {"id", "dataset"?, "output_ids", "finish_reason"?}, ids as a local server recorded them or as
    `reconstruct` writes them, or {"id", "input_ids", "loss_mask"}, as `export --to jsonl` does. Ids that stand for the
    same bytes cut otherwise can be accepted; a finding, or a text that does not come back, ends with exit code 1.
    """
    from eagletui.recorded.ids import read_recorded_ids
    from eagletui.recorded.validate import context, validate_file
    from eagletui.tokens.formats import load_format
    from eagletui.tokens.load import load_tokenizer

    output_format = load_format(fmt)
    loaded = load_tokenizer(tokenizer)
    records = read_recorded_ids(ids, loaded)
    with steps("comparing", len(records)) as progress:
        compared, summary = validate_file(records, loaded, output_format, progress)
    if json_:
        print_json(summary)
        return 0 if summary["accepted"] else 1
    rows = [
        (name, f"{row['samples']:,}", f"{row['mismatched']:,}", f"{row['mismatched'] / row['samples']:.1%}")
        for name, row in summary["by_dataset"].items()
    ]
    print_table(("data set", "samples", "mismatched", "share"), rows, right=(1, 2, 3))
    print()
    mismatched = [found for found in compared if found.mismatched]
    for found in mismatched[:_SHOWN]:
        for span in found.spans:
            print(f"{found.recorded.id}  {span.kind} at byte {span.offset}, {counted(span.length, 'byte')}")
            print(f"  recorded {list(span.a_ids)}  rebuilt {list(span.b_ids)}  in {context(found, span, loaded)}")
    if len(mismatched) > _SHOWN:
        print(f"... and {counted(len(mismatched) - _SHOWN, 'sample')} more; --json has them all")
    print_findings(summary["findings"])
    print()
    differing, tokens = summary["tokens_differing"], summary["tokens"]
    print_pairs([("tokens", f"{differing:,} of {tokens:,} differ"), ("verdict", summary["verdict"])])
    return 0 if summary["accepted"] else 1
