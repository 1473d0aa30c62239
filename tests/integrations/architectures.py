"""Tiny models of transformers, from configurations, each with a batch for its forward pass."""

import torch
import transformers as t

WIDTH, HEADS, WORDS = 32, 2, 50


def tokens(rows=4, length=7):
    ids = torch.randint(2, WORDS, (rows, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def bert():
    config = t.BertConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
    )  # fmt: skip
    return t.BertForSequenceClassification(config), {**tokens(), "labels": torch.arange(4) % 2}


def distilbert():
    config = t.DistilBertConfig(vocab_size=WORDS, dim=WIDTH, n_layers=1, n_heads=HEADS, hidden_dim=2 * WIDTH)
    words = tokens()
    return t.DistilBertForMaskedLM(config), {**words, "labels": words["input_ids"]}


def gpt2():
    config = t.GPT2Config(
        vocab_size=WORDS, n_embd=WIDTH, n_layer=2, n_head=HEADS, bos_token_id=0, eos_token_id=1
    )
    words = tokens()
    return t.GPT2LMHeadModel(config), {**words, "labels": words["input_ids"]}


def llama():
    config = t.LlamaConfig(
        vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=1,
        num_attention_heads=HEADS,
    )  # fmt: skip
    words = tokens()
    return t.LlamaForCausalLM(config), {**words, "labels": words["input_ids"]}


def t5():
    config = t.T5Config(
        vocab_size=WORDS, d_model=WIDTH, d_ff=2 * WIDTH, num_layers=1, num_heads=HEADS, d_kv=WIDTH // HEADS,
        decoder_start_token_id=0, dropout_rate=0.0,
    )  # fmt: skip
    words = tokens()
    return t.T5ForConditionalGeneration(config), {**words, "labels": words["input_ids"]}


def vit():
    config = t.ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=HEADS, intermediate_size=2 * WIDTH,
        image_size=16, patch_size=8,
    )  # fmt: skip
    return t.ViTForImageClassification(config), {
        "pixel_values": torch.randn(4, 3, 16, 16),
        "labels": torch.arange(4) % 2,
    }


def swin():
    config = t.SwinConfig(
        embed_dim=16, depths=[1, 1], num_heads=[2, 2], image_size=32, patch_size=4, window_size=4,
        drop_path_rate=0.0,
    )  # fmt: skip
    return t.SwinForImageClassification(config), {
        "pixel_values": torch.randn(4, 3, 32, 32),
        "labels": torch.arange(4) % 2,
    }


OUTPUTS = {  # what stays dense in each
    "bert": "classifier", "distilbert": "vocab_projector", "gpt2": "lm_head", "llama": "lm_head",
    "t5": "lm_head", "vit": "classifier", "swin": "classifier",
}  # fmt: skip
ARCHITECTURES = {name: globals()[name] for name in OUTPUTS}
