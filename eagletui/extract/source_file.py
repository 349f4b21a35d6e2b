"""Find the file of ids that a features folder was made of, so that a check can hold the records to it."""

from pathlib import Path
from typing import Final

from eagletui.core.errors import InputError
from eagletui.core.text import clean_line
from eagletui.extract.ids_file import IdsFile, check_ids_file
from eagletui.extract.manifest import Manifest
from eagletui.extract.shards import IdsSample

_KIND: Final = "file "
_HASH: Final = " sha256 "


def describe_source(checked: IdsFile) -> str:
    """Name a file of ids in a manifest."""
    return f"{_KIND}{checked.path.name}{_HASH}{checked.sha256}"


class SourceFile:
    """A file of ids, by sample."""

    def __init__(self, checked: IdsFile) -> None:
        """Take a checked file; it is read once more for the keys."""
        self.path = checked.path
        self._checked = checked
        everything = range(len(checked.starts))
        self._places = {sample.key: place for place, sample in enumerate(checked.samples(everything))}

    def __len__(self) -> int:
        """Count the samples."""
        return len(self._places)

    def sample(self, key: str) -> IdsSample | None:
        """Read one sample; None where the file has none of this key."""
        place = self._places.get(key)
        return None if place is None else next(self._checked.samples([place]))


def find_source(folder: Path, manifest: Manifest) -> SourceFile | str | None:
    """Look for the file where it was and beside the features folder.

    Args:
        folder: the features folder.
        manifest: of the folder.

    Returns:
        the file; or why there is none to look into, a phrase; None where the features are a run's.
    """
    if not manifest.source.startswith(_KIND):
        return None
    name, _, sha256 = manifest.source.removeprefix(_KIND).rpartition(_HASH)
    places = [Path(manifest.source_path)] if manifest.source_path is not None else []
    places.append(folder.resolve().parent / Path(name).name)
    why = f"{clean_line(name, 80)} is neither where it was nor beside this folder"
    for path in dict.fromkeys(places):
        if not path.is_file():
            continue
        try:
            checked = check_ids_file(path)
        except InputError as error:
            why = str(error).partition("\n")[0]
            continue
        if checked.sha256 == sha256:
            return SourceFile(checked)
        why = f"{path} was changed since, or is another file"
    return why
