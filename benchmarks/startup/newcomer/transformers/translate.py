"""Translates test.en to test.out."""

from pathlib import Path

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForSeq2SeqLM.from_pretrained("model").eval()
lines = [f"{line}</s>" for line in Path("test.en").read_text(encoding="utf-8").split("\n")[:-1]]
with Path("test.out").open("w", encoding="utf-8") as output:
    for start in range(0, len(lines), 64):
        batch = tokenizer(lines[start : start + 64], return_tensors="pt", padding=True)
        generated = model.generate(**batch, max_new_tokens=128)
        for text in tokenizer.batch_decode(generated, skip_special_tokens=True):
            output.write(text.replace("\n", " ") + "\n")
