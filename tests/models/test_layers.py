"""Word embeddings of random and of given vectors."""

import pytest
import torch

from msbp.models.layers import word_embedding


@pytest.mark.parametrize("kind", ["static", "non_static"])
def test_the_width_of_given_vectors_is_used_and_another_is_refused(kind):
    vectors = torch.ones(3, 5)
    for width in (5, 100):  # 100 is the default
        assert word_embedding(kind, 3, width, vectors).embedding_dim == 5
    with pytest.raises(ValueError, match=r"model\.width=4 does not fit the word vectors, of width 5"):
        word_embedding(kind, 3, 4, vectors)
    assert word_embedding("random", 3, 4, vectors).embedding_dim == 4
