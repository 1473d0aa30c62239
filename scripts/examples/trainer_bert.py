"""transformers.Trainer on a small BERT from a configuration: python scripts/examples/trainer_bert.py

The task: does the first word of a sentence occur again? Needs transformers and accelerate.
"""

import copy
import tempfile

import torch
from timing import report
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    get_linear_schedule_with_warmup,
)

from msbp.integrations import SparseSchedule
from msbp.integrations.transformers import SparseCallback
from msbp.optim import AdamW
from msbp.sparse import convert

STEPS = 8
torch.set_num_threads(1)
torch.manual_seed(0)


class Sentences(Dataset):
    """Random words, padded to 32."""

    def __init__(self, count=256):
        self.ids = torch.randint(1, 200, (count, 32))
        self.lengths = torch.randint(16, 33, (count,))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        mask = (torch.arange(32) < self.lengths[index]).long()
        ids = self.ids[index] * mask
        return {"input_ids": ids, "attention_mask": mask, "labels": int((ids[1:] == ids[0]).any())}


def train(name, model, optimizer, folder, callbacks=()):
    """Return the seconds per step of a short training, whose loss the trainer prints."""
    print(f"{name}, trained twice, since the first time compiles:")
    arguments = TrainingArguments(
        output_dir=folder, max_steps=STEPS, per_device_train_batch_size=16, use_cpu=True, report_to=[],
        save_strategy="no", logging_steps=4, disable_tqdm=True,
    )  # fmt: skip
    schedule = get_linear_schedule_with_warmup(optimizer, 2, STEPS)
    trainer = Trainer(
        model,
        arguments,
        train_dataset=Sentences(),
        optimizers=(optimizer, schedule),
        callbacks=list(callbacks),
    )
    trainer.train()
    return trainer.train().metrics["train_runtime"] / STEPS


config = BertConfig(
    vocab_size=200, hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=1024
)
plain = BertForSequenceClassification(config)
model = copy.deepcopy(plain)
print("converted:", convert(model, r=0.04))
with tempfile.TemporaryDirectory() as folder:
    before = train("plain", plain, torch.optim.AdamW(plain.parameters(), 1e-4, fused=True), folder)
    schedule = SparseSchedule(dense_steps=2)
    after = train("converted", model, AdamW(model.parameters(), 1e-4), folder, [SparseCallback(schedule)])
report("BERT of width 256", before, after)
