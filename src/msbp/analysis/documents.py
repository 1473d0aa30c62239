"""What tables, figures and claims are made from, and what each of them hands to the formats."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.utils import get_method

from .figure import Figure
from .runs import Record
from .sheet import Sheet
from .sources import Angle, Sources
from .verdicts import Claim
from .wanted import Config

ROWS = "msbp.analysis.rows.document"


@dataclass
class Document:
    """A table or a figure: its text, its plain numbers, the runs it shows, the commands for what it lacks.

    blank: titles of blocks that show nothing yet; filled: the sheet of the others.
    """

    name: str
    caption: str
    sheets: list[Sheet] = field(default_factory=list)
    numbers: Sequence[Mapping[str, Any]] = field(default_factory=list)
    used: list[Record] = field(default_factory=list)
    angles: list[Angle] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)
    blank: list[str] = field(default_factory=list)
    filled: Sheet | None = None
    figure: Figure | None = None
    measured: bool = False  # by benchmarks
    claims: list[Claim] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Nothing of it is on record."""
        return not (self.used or self.angles or self.measured)

    @property
    def on_record(self) -> bool:
        """It has something to show: a point, a claim's setting, a block with runs."""
        if self.claims:
            return any(claim.measured for claim in self.claims)
        if self.figure:
            return not self.figure.empty
        return bool(self.filled) if self.blank else not self.empty


def document(config: Config, sources: Sources) -> Document:
    """What the config's _target_ makes of it; a table of rows where it names none."""
    make: Callable[[Config, Sources], Document] = get_method(config.get("_target_", ROWS))
    return make(config, sources)
