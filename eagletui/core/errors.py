"""The exception tree. Foreign errors are mapped to it once, at the edge where they enter.

EagleError                       any error this program raises on purpose; `exit_code` says how a command ends
├── InputError                   a file, field or flag given by the person is wrong (exit 2)
│   ├── ConfigError              the TOML config
│   ├── PromptFileError          prompt files; carries the first 20 problems
│   ├── TokenizerError           a tokenizer folder that cannot be loaded or fails its audit
│   ├── FormatError              an output format or loss profile that does not fit the tokenizer
│   └── ReplyError               a recorded API reply that cannot be read
├── RunError                     a run folder: absent, of another version, a differing config (exit 2)
│   ├── LedgerError              the ledger file cannot be opened or written
│   │   ├── DiskFullError         its disk is full: nothing was written, what was committed stands
│   │   └── LedgerBusyError       another process holds its write lock: nothing was written, try again
│   └── LockedError              another live worker holds the role; names it (exit 1)
├── ProviderError                an API call failed; `kind` says how (exit 1)
└── ModelError                   the target model cannot be loaded or disagrees with the run (exit 2)
"""

from dataclasses import dataclass


class EagleError(Exception):
    """Base of every error raised on purpose. `str()` is one message a person can act on."""

    exit_code = 1


class InputError(EagleError):
    """Something the person gave is wrong."""

    exit_code = 2


class ConfigError(InputError):
    """The config file names a key or value that cannot be used."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in an input file."""

    file: str
    """Path as the person gave it."""
    line: int | None
    """1-based line, or None when the fault is the whole file's."""
    field: str | None
    """Dotted path of the field, or None."""
    found: str
    """What is there, shortened and cleaned for display."""
    expected: str
    """What would be accepted."""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        field = f" field {self.field}:" if self.field else ""
        return f"{where}:{field} found {self.found}, expected {self.expected}"


class PromptFileError(InputError):
    """Prompt files hold faults. Nothing was ingested."""

    def __init__(self, problems: list[Problem], total: int) -> None:
        """Keep the first problems.

        Args:
            problems: at most 20, in file order.
            total: how many were found in all.
        """
        self.problems = tuple(problems[:20])
        self.total = total
        lines = [str(problem) for problem in self.problems]
        if total > len(self.problems):
            lines.append(f"... and {total - len(self.problems)} more")
        lines.append("Nothing was ingested.")
        super().__init__("\n".join(lines))


class TokenizerError(InputError):
    """A tokenizer folder cannot be loaded, or a structural string is not what the format says."""


class FormatError(InputError):
    """An output format or loss profile is unknown, malformed or does not fit the tokenizer."""


class ReplyError(InputError):
    """A recorded reply is not what the reconstruct contract asks for."""


class RunError(EagleError):
    """A run folder is absent, of another version or does not fit the request."""

    exit_code = 2


class LedgerError(RunError):
    """The ledger cannot be opened, read or written."""


class DiskFullError(LedgerError):
    """The ledger's disk is full. The transaction was rolled back; earlier ones stand."""


class LedgerBusyError(LedgerError):
    """Another process writes for longer than a writer waits. The transaction was rolled back; earlier ones stand."""


class LockedError(RunError):
    """Another live process holds this role of the run."""

    exit_code = 1


class ProviderError(EagleError):
    """An API call failed."""


class ModelError(EagleError):
    """The target model cannot be loaded or does not fit the run."""

    exit_code = 2
