"""Trains T5 from random weights, by the guide to translation; tokenizer and weights are made here, not downloaded."""

from pathlib import Path

from tokenizers import ByteLevelBPETokenizer
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
)

bpe = ByteLevelBPETokenizer()
bpe.train(["a.en", "a.de"], vocab_size=8000, special_tokens=["<pad>", "</s>", "<unk>"])
bpe.save("tokenizer.json")
special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
tokenizer = PreTrainedTokenizerFast(tokenizer_file="tokenizer.json", **special)
model = T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), decoder_start_token_id=0))
sides = [Path(name).read_text(encoding="utf-8").split("\n")[:-1] for name in ("a.en", "a.de")]
examples = [
    tokenizer(f"{source}</s>", text_target=f"{target}</s>", max_length=128, truncation=True)
    for source, target in zip(*sides, strict=True)
]
settings = {"max_steps": 20, "logging_steps": 1}  # measurement
trainer = Seq2SeqTrainer(
    model=model,
    args=Seq2SeqTrainingArguments(output_dir="checkpoints", **settings),
    train_dataset=examples,
    processing_class=tokenizer,
    data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
)
trainer.train()
trainer.save_model("model")
