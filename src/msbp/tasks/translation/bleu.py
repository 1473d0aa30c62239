"""BLEU by sacreBLEU, of the corpus's own words and of plain text."""

from collections.abc import Callable, Sequence
from typing import Literal

import pydantic.dataclasses
from sacrebleu.metrics import BLEU

from ...config import STRICT
from ..base import Score
from .vocabulary import Tokens

VIEWS = ("tokenised", "detokenised")
Tokenizer = Literal["13a", "zh", "intl", "char", "none"]  # sacreBLEU's others need packages or a download
Lines = Sequence[str]


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Bleu:
    """BLEU of two views of the same translations, of which one is the score.

    score: tokenised (words separated by spaces, tok:none, as multi-bleu counts) | detokenised (plain text,
    cut by sacreBLEU's tokenizer).  ignore_case: of the tokenised view.  tokenizer: of the detokenised one.
    """

    score: Literal["tokenised", "detokenised"] = "detokenised"
    ignore_case: bool = False
    tokenizer: Tokenizer = "13a"

    def __call__(
        self, translations: Sequence[Sequence[str]], references: Sequence[Lines], tokens: Tokens
    ) -> Score:
        """Return BLEU in percent of translations as words; each reference has as many lines as there are."""
        lines = {view: list(map(write, translations)) for view, write in writers(tokens).items()}
        expected = {view: self.written(references, tokens, view) for view in VIEWS}
        counted = {view: self.count(view, lines[view], expected[view]) for view in VIEWS}
        (other,) = set(VIEWS) - {self.score}
        return Score(
            counted[self.score][0],
            f"bleu {self.score}|{counted[self.score][1]}; {other}|{counted[other][1]}",
            {f"bleu_{view}": value for view, (value, _) in counted.items()},
            lines[self.score],
        )

    def written(
        self, references: Sequence[Lines], tokens: Tokens, view: str | None = None
    ) -> list[list[str]]:
        """Return the lines of each reference in a view, by default in that of the score."""
        write = writers(tokens)[view or self.score]
        return [[write(tokens.split(line)) for line in lines] for lines in references]

    def count(self, view: str, translations: Lines, references: Sequence[Lines]) -> tuple[float, str]:
        """Return BLEU in percent and its signature."""
        # force: no warning for each corpus whose full stops are words
        if view == "tokenised":
            metric = BLEU(lowercase=self.ignore_case, tokenize="none", force=True)
        else:
            metric = BLEU(tokenize=self.tokenizer, force=True)
        value = metric.corpus_score(translations, references).score
        return value, str(metric.get_signature())


def writers(tokens: Tokens) -> dict[str, Callable[[Sequence[str]], str]]:
    """Return for each view the function from the words of a sentence to a line."""
    return {"tokenised": " ".join, "detokenised": tokens.join}
