"""Opens a directory that zerod saved in transformers and computes its loss on the last part of a text, as zeroctl eval does.

usage: check_export.py MODEL TEXT HOLDOUT_PERCENT     needs torch and transformers"""

import math
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    directory, path, percent = sys.argv[1], sys.argv[2], float(sys.argv[3])
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    data = open(path, "rb").read()
    text = data[:4000].decode("utf-8", errors="ignore")
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids == list(text.encode()), "an id is not its byte"
    assert tokenizer.decode(ids) == text, "the text does not come back"

    held_out = torch.tensor(list(data[math.floor(len(data) * (1 - percent / 100)) :]))
    width, total, count = model.config.max_position_embeddings, 0.0, 0
    with torch.no_grad():
        for first in range(0, len(held_out) - 1, width):
            row = held_out[first : first + width + 1]
            logits = model(row[None, : len(row) - 1]).logits[0].double()
            total += torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum").item()
            count += len(row) - 1
    print(f"{sum(p.numel() for p in model.parameters())} parameters, loss {total / count:.6f} over {count} tokens")


if __name__ == "__main__":
    main()
