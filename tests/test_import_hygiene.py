"""What a command may load: `--help` stays instant, viewers stay light, and only the screens know textual."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eagletui.cli.app import COMMANDS, GROUPS, help_text

HEAVY = ("torch", "transformers", "textual", "httpx", "aiohttp", "aiosqlite", "pydantic", "tokenizers", "rich", "numpy")
REPOSITORY = Path(__file__).parent.parent


def _loaded_after(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after running some code."""
    tail = "\nimport json, sys\nprint(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", code + tail], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


HELP = "from eagletui.cli.app import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"


def test_help_loads_nothing_heavy_and_not_even_the_argument_parser() -> None:
    assert _loaded_after(HELP).isdisjoint({*HEAVY, "typer", "asyncio", "sqlite3"})


def test_help_takes_less_than_a_third_of_a_second_over_bare_python() -> None:
    def seconds(code: str) -> float:
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=REPOSITORY)
            best = min(best, time.perf_counter() - start)
        return best

    assert seconds(HELP) - seconds("pass") < 0.3


def test_the_small_commands_load_no_tensors_no_screens_and_no_http() -> None:
    code = "; ".join(f"import eagletui.cli.{COMMANDS[name].module}" for name in ("status", "ls", "ctl", "inspect"))
    assert _loaded_after(code).isdisjoint(
        {"torch", "transformers", "textual", "httpx", "aiohttp", "xllamacpp", "numpy"}
    )


def test_the_engine_never_loads_tensors_or_screens() -> None:
    assert _loaded_after("import eagletui.engine.__main__").isdisjoint(
        {"torch", "transformers", "textual", "xllamacpp"}
    )


def test_the_screens_never_load_tensors_http_or_tokenizers() -> None:
    loaded = _loaded_after("import eagletui.tui.app")
    assert "textual" in loaded
    assert loaded.isdisjoint({"torch", "transformers", "httpx", "aiohttp", "tokenizers", "tiktoken", "xllamacpp"})


def test_exports_of_ids_alone_load_no_tensors() -> None:
    code = "import eagletui.cli.export, eagletui.export.jsonl, eagletui.export.parquet"
    assert _loaded_after(code).isdisjoint({"torch", "transformers", "textual", "pyarrow", "datasets", "numpy"})


@pytest.mark.parametrize("package", ["core", "ledger", "tokens", "prompts", "providers", "embedded", "engine"])
@pytest.mark.slow
def test_a_package_without_screens_does_not_load_textual(package: str) -> None:
    folder = REPOSITORY / "eagletui" / package
    modules = [
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        for path in sorted(folder.rglob("*.py"))
        if path.stem not in ("__init__", "__main__")
    ]
    assert modules
    assert _loaded_after("\n".join(f"import {module}" for module in modules)).isdisjoint({"textual", "torch"})


def test_every_package_file_is_empty_so_that_importing_one_module_loads_one_module() -> None:
    top = REPOSITORY / "eagletui" / "__init__.py"
    files = [path for path in (REPOSITORY / "eagletui").rglob("__init__.py") if path != top]
    assert [str(path) for path in files if path.read_text().strip()] == []
    assert _loaded_after("import eagletui") <= {*_loaded_after("pass"), "eagletui"}


ASK_EVERY_COMMAND = """
from eagletui.cli.app import COMMANDS, main
for name in COMMANDS:
    try:
        main([name, "--help"])
    except SystemExit as end:
        assert not end.code, name
"""


def test_every_command_of_the_help_exists_and_explains_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK_EVERY_COMMAND], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    usages = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("Usage: eagletui ")]
    assert usages == list(COMMANDS)


def test_the_help_lists_every_command_on_one_line_of_a_narrow_terminal() -> None:
    lines = help_text().splitlines()
    for group in GROUPS.values():
        for command in group:
            assert any(line.strip().startswith(f"{command.name} ") for line in lines)
    assert max(map(len, lines)) <= 100
