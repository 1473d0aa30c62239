"""Parts of several networks.

Letters: V words, E width of an embedding.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, validate_call
from torch import Tensor, nn

WIDTH = 100  # of embeddings, unless vectors have another
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]  # products of two fit what torch counts with
Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Scale = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Embedding = Literal["random", "static", "non_static"]
checked = validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def word_embedding(kind: Embedding, words: int, width: int, vectors: Tensor | None) -> nn.Embedding:
    """Return an embedding of V words: random vectors of that width, or the given vectors (V, E).

    kind: random (trained from noise) | static (given vectors, fixed) | non_static (given and trained).
    ValueError for static and non_static without vectors, and for a width that is neither the default nor that
    of the vectors.
    """
    if kind == "random":
        return nn.Embedding(words, width)
    if vectors is None:
        raise ValueError(f"model.embedding={kind} needs word vectors: name them in task.vectors")
    if width not in (WIDTH, vectors.shape[1]):
        raise ValueError(
            f"model.width={width} does not fit the word vectors, of width {vectors.shape[1]}: leave it out, "
            "or use model.embedding=random"
        )
    return nn.Embedding.from_pretrained(vectors.clone(), freeze=kind == "static")
