"""Files of a report, each whole or not at all, in UTF-8 whatever the locale."""

from collections.abc import Mapping
from pathlib import Path

from ..atomic import written_whole


def save(contents: Mapping[Path, str | bytes]) -> None:
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as file:
            file.write(content.encode() if isinstance(content, str) else content)
