"""transformers' Trainer: like Accelerate, which it builds on, it uses the existing group."""

import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).parents[2] / "scripts"))  # not needed once it is installed
from allcores.machine import any_torchvision

any_torchvision.import_torchvision("ops")  # this project's torchvision has no operators of its own
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments  # noqa: E402

import allcores.backend  # noqa: E402, F401

WORDS, LENGTH = 100, 16


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        words = torch.randint(WORDS, (LENGTH,), generator=torch.Generator().manual_seed(number))
        return {"input_ids": words, "labels": int(words[0] > WORDS / 2)}


dist.init_process_group(sys.argv[1])  # before TrainingArguments
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": LENGTH}
depth = {"num_hidden_layers": 2, "num_attention_heads": 2}
no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
model = BertForSequenceClassification(BertConfig(vocab_size=WORDS, **sizes, **depth, **no_dropout))
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        folder,
        num_train_epochs=1,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model, args=settings, train_dataset=Sentences(), eval_dataset=Sentences()
    )
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
if dist.get_rank() == 0:
    print(f"{dist.get_backend()}: loss {loss:.6f}")
dist.destroy_process_group()
