"""Files of a report, each whole or not at all, in UTF-8 whatever the locale."""

from collections.abc import Mapping
from pathlib import Path

from ..atomic import written_whole


def save(contents: Mapping[Path, str | bytes]) -> list[Path]:
    """Write the files that do not hold their content yet; these files."""
    encoded = {path: text.encode() if isinstance(text, str) else text for path, text in contents.items()}
    changed = [path for path, content in encoded.items() if not _holds(path, content)]
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as file:
            file.write(encoded[path])
    return changed


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content
