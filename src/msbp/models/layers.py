"""Parts of several networks.

Letters: V words, E width of an embedding.
"""

from torch import Tensor, nn

from ..limits import check_choice, check_counts, check_shares

WIDTH = 100  # of embeddings, unless vectors have another
EMBEDDINGS = ("random", "static", "non_static")


def word_embedding(kind: str, words: int, width: int, vectors: Tensor | None) -> nn.Embedding:
    """An embedding of V words: random vectors of that width, or the given vectors (V, E).

    kind: random (trained from noise) | static (given vectors, fixed) | non_static (given and trained).
    ValueError for another kind, for static and non_static without vectors, and for a width that is neither
    the default nor that of the vectors.
    """
    check_choice("model.embedding", kind, EMBEDDINGS)
    check_counts("model", width=width)
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


def hidden_stack(
    inputs: int, hidden: int, layers: int, outputs: int, dropout: float, activation: type[nn.Module] = nn.ReLU
) -> tuple[nn.Sequential, list[list[str]]]:
    """Hidden layers of linear, activation and dropout, then a linear output layer.

    Also the names of the hidden ones in a model whose attribute `net` is all of it.
    """
    check_counts("model", hidden=hidden, layers=layers)
    check_shares("model", dropout=dropout)
    parts: list[nn.Module] = []
    for width in [inputs] + [hidden] * (layers - 1):
        parts += [nn.Linear(width, hidden), activation()]
        parts += [nn.Dropout(dropout)] if dropout else []
    names = [f"net.{i}" for i, part in enumerate(parts) if isinstance(part, nn.Linear)]
    return nn.Sequential(*parts, nn.Linear(hidden, outputs)), [names]
