"""Models that others wrote, each with a synthetic task that it can learn. Needs transformers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as t
from torch import Tensor, nn

WORDS, CLASSES, FEATURES = 500, 10, 16
Batches = Callable[[int, int], dict[str, Tensor]]


def words(rows: int, length: int) -> Tensor:
    """Return sentences in which each word determines the next."""
    ids = torch.randint(2, WORDS, (rows, 1))
    for _ in range(length - 1):
        ids = torch.cat([ids, (7 * ids[:, -1:] + 3) % (WORDS - 2) + 2], 1)
    return ids


def labelled(rows: int, length: int) -> dict[str, Tensor]:
    """Return sentences whose class is given by their first word."""
    ids = torch.randint(2, WORDS, (rows, length))
    return {"input_ids": ids, "labels": ids[:, 0] % CLASSES}


def continued(rows: int, length: int) -> dict[str, Tensor]:
    """Return sentences that are to be continued."""
    ids = words(rows, length)
    return {"input_ids": ids, "labels": ids}


def images(rows: int, length: int) -> dict[str, Tensor]:
    """Return noisy images of as many 4 x 4 patches as `length`, one pattern a class."""
    pixels = side(length)
    patterns = torch.randn(CLASSES, 3, pixels, pixels, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(CLASSES, (rows,))
    return {"pixel_values": patterns[labels] + torch.randn(rows, 3, pixels, pixels), "labels": labels}


def side(length: int) -> int:
    """Return the side of a square image of `length` patches, 16 at least."""
    return 4 * max(4, int(length**0.5))


def table(rows: int, length: int) -> dict[str, Tensor]:
    """Return `rows` times `length` rows of a table, and a target that a network of two layers computes."""
    generator = torch.Generator().manual_seed(1)
    first, second = torch.randn(128, 32, generator=generator), torch.randn(32, 1, generator=generator)
    x = torch.randn(rows * length, 128)
    return {"x": x, "target": (x @ first / 128**0.5).tanh() @ second}


def features(rows: int, length: int) -> dict[str, Tensor]:
    """Return rows of a table with as many features as are `length` tokens in all, and their class."""
    x = torch.randn(max(1, rows * length // FEATURES), FEATURES)
    return {"x": x, "labels": (x[:, 0] * x[:, 1] > 0).long() + 2 * (x[:, 2] > x[:, 3]).long()}


def bert(d: int, length: int) -> nn.Module:
    return t.BertForSequenceClassification(
        t.BertConfig(vocab_size=WORDS, hidden_size=d, num_hidden_layers=2, num_attention_heads=d // 64,
                     intermediate_size=4 * d, num_labels=CLASSES)
    )  # fmt: skip


def distilbert(d: int, length: int) -> nn.Module:
    return t.DistilBertForSequenceClassification(
        t.DistilBertConfig(vocab_size=WORDS, dim=d, n_layers=2, n_heads=d // 64, hidden_dim=4 * d,
                           num_labels=CLASSES)
    )  # fmt: skip


def llama(d: int, length: int) -> nn.Module:
    return t.LlamaForCausalLM(
        t.LlamaConfig(vocab_size=WORDS, hidden_size=d, intermediate_size=4 * d, num_hidden_layers=2,
                      num_attention_heads=d // 64)
    )  # fmt: skip


def gpt2(d: int, length: int) -> nn.Module:
    return t.GPT2LMHeadModel(
        t.GPT2Config(vocab_size=WORDS, n_embd=d, n_layer=2, n_head=d // 64, bos_token_id=0, eos_token_id=1)
    )


def t5(d: int, length: int) -> nn.Module:
    return t.T5ForConditionalGeneration(
        t.T5Config(vocab_size=WORDS, d_model=d, d_ff=4 * d, num_layers=2, num_heads=d // 64, d_kv=64,
                   decoder_start_token_id=0)
    )  # fmt: skip


def vit(d: int, length: int) -> nn.Module:
    return t.ViTForImageClassification(
        t.ViTConfig(hidden_size=d, num_hidden_layers=2, num_attention_heads=d // 64, intermediate_size=4 * d,
                    image_size=side(length), patch_size=4, num_labels=CLASSES)
    )  # fmt: skip


def swin(d: int, length: int) -> nn.Module:
    return t.SwinForImageClassification(
        t.SwinConfig(embed_dim=d // 2, depths=[2, 2], num_heads=[d // 128, d // 64],
                     window_size=side(length) // 8, image_size=side(length), patch_size=4,
                     num_labels=CLASSES)
    )  # fmt: skip


class Mixer(nn.Module):
    """An MLP-Mixer of two blocks, with its loss."""

    def __init__(self, d: int, length: int):
        super().__init__()
        patches = (side(length) // 4) ** 2
        self.patch = nn.Conv2d(3, d, 4, 4)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm1": nn.LayerNorm(d), "tokens": nn.Sequential(
                    nn.Linear(patches, d), nn.GELU(), nn.Linear(d, patches)),
                "norm2": nn.LayerNorm(d), "channels": nn.Sequential(
                    nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)),
            })
            for _ in range(2)
        )  # fmt: skip
        self.head = nn.Linear(d, CLASSES)

    def forward(self, pixel_values: Tensor, labels: Tensor) -> Any:
        x = self.patch(pixel_values).flatten(2).transpose(1, 2)
        for block in self.blocks:
            parts: Any = block
            x = x + parts["tokens"](parts["norm1"](x).transpose(1, 2)).transpose(1, 2)
            x = x + parts["channels"](parts["norm2"](x))
        return {"loss": nn.functional.cross_entropy(self.head(x.mean(1)), labels)}


class Tabular(nn.Module):
    """An MLP with three hidden layers, with its loss."""

    def __init__(self, d: int, length: int):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(128, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(),
            nn.Linear(d, 1),
        )  # fmt: skip

    def forward(self, x: Tensor, target: Tensor) -> Any:
        return {"loss": nn.functional.mse_loss(self.net(x), target)}


class WordModel(nn.Module):
    """A language model: embedding, two LSTM layers and an output layer, with its loss."""

    def __init__(self, d: int, length: int):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, d)
        self.rnn = nn.LSTM(d, d, 2, batch_first=True)
        self.decoder = nn.Linear(d, WORDS)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Any:
        scores = self.decoder(self.rnn(self.embedding(input_ids[:, :-1]))[0])
        return {"loss": nn.functional.cross_entropy(scores.flatten(0, 1), labels[:, 1:].flatten())}


class FeatureTransformer(nn.Module):
    """An FT-Transformer: one token a feature and one to classify by, with its loss."""

    def __init__(self, d: int, length: int):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(FEATURES + 1, d) * d**-0.5)
        self.shift = nn.Parameter(torch.randn(FEATURES + 1, d) * d**-0.5)
        layer = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, 4)

    def forward(self, x: Tensor, labels: Tensor) -> Any:
        tokens = nn.functional.pad(x, (1, 0), value=1.0).unsqueeze(-1) * self.scale + self.shift
        return {"loss": nn.functional.cross_entropy(self.head(self.blocks(tokens)[:, 0]), labels)}


@dataclass(frozen=True)
class Measured:
    """A model of one width with its task; learns: whether its learning is measured beside its speed."""

    name: str
    kind: Callable[[int, int], nn.Module]
    width: int
    batches: Batches
    learns: bool = True

    @property
    def key(self) -> str:
        """Return name and width, as on the command line."""
        return f"{self.name} {self.width}"


MODELS = {
    model.key: model
    for model in (
        Measured("BERT", bert, 256, labelled),
        Measured("DistilBERT", distilbert, 256, labelled),
        Measured("Llama", llama, 256, continued),
        Measured("T5", t5, 256, continued),
        Measured("ViT", vit, 256, images),
        Measured("Swin", swin, 256, images),
        Measured("MLP-Mixer", Mixer, 256, images),
        Measured("word LM (LSTM)", WordModel, 256, continued),
        Measured("tabular MLP", Tabular, 512, table),
        Measured("FT-Transformer", FeatureTransformer, 64, features, learns=False),
        Measured("GPT-2", gpt2, 768, continued, learns=False),
        Measured("T5", t5, 768, continued, learns=False),
    )
}
