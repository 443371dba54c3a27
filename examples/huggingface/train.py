"""A language model with Hugging Face's Trainer, elastic with Swell: the marked lines. By hand: `python train.py`.

One long run counted in steps (`max_steps`), a checkpoint now and then. A stop saves at the current step; the global
batch stays the same whatever the number of GPUs.
"""

import argparse

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import torch
from swell.sdk.integrations.huggingface import SwellCallback  # Swell

CONTEXT, VOCABULARY = 16, 64


class Text:
    """Stands in for tokens of a corpus: each sequence counts on from a random token."""

    def __init__(self, samples: int) -> None:
        first = torch.randint(0, VOCABULARY, (samples, 1), generator=torch.Generator().manual_seed(1))
        self.tokens = (first + torch.arange(CONTEXT)) % VOCABULARY

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-steps", type=int, default=300)
    options = parser.parse_args()
    set_seed(1)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": CONTEXT, "vocab_size": VOCABULARY}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **no_dropout, bos_token_id=0, eos_token_id=0))
    callback = SwellCallback()  # Swell
    arguments = TrainingArguments(
        output_dir=callback.output_dir,  # Swell: survives attempts
        max_steps=options.max_steps,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        lr_scheduler_type="cosine",
        save_steps=100,
        save_total_limit=2,
        logging_steps=10,
        disable_tqdm=True,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
    )
    data = Text(256)
    args = callback.fit(arguments)  # Swell: the same global batch on any number of GPUs
    trainer = Trainer(model=model, args=args, train_dataset=data, eval_dataset=data, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume_from())  # Swell
    loss = trainer.evaluate()["eval_loss"]
    if trainer.is_world_process_zero():
        epoch, rate = trainer.state.epoch, trainer.state.log_history[-2].get("learning_rate", 0.0)
        print(f"final loss {loss:.6f} steps {trainer.state.global_step} epoch {epoch:.2f} rate {rate}", flush=True)


if __name__ == "__main__":
    main()
