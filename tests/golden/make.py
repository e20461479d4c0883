#!/usr/bin/env python3
"""Makes the golden files: tiny random models of every family, computed by PyTorch and transformers in fp32.

    python3 tests/golden/make.py OUT     needs torch and transformers; a minute on a CPU

Each case becomes OUT/<case>/: config.json and model.safetensors as transformers saves them, case.json (tokens, labels,
documents, loss, twenty losses of AdamW training) and expected.safetensors (logits of every token, gradient of every
parameter). A document is computed by a call of its own, so that packing has an independent reference. The loss is the sum
over all labels that count divided by their number."""

import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, GPT2Config

torch.set_num_threads(2)
ROWS, ROW_TOKENS, STEPS = 3, 17, 20
LR, BETAS, EPS, DECAY, CLIP = 5e-3, (0.9, 0.95), 1e-8, 0.1, 1.0

LLAMA = dict(vocab_size=61, hidden_size=24, intermediate_size=37, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, initializer_range=0.2,
             bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)


def llama(**changes):
    return {**LLAMA, **changes}


CASES = {
    "llama": LlamaConfig(**llama()),
    "llama-long-hidden": LlamaConfig(**llama(hidden_size=40, num_attention_heads=5, num_key_value_heads=5)),
    "llama3-tied": LlamaConfig(**llama(tie_word_embeddings=True, rope_theta=10000.0, rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16})),
    "llama-linear-bias": LlamaConfig(**llama(attention_bias=True, mlp_bias=True,
                                             rope_scaling={"rope_type": "linear", "factor": 2.5})),
    "llama-yarn": LlamaConfig(**llama(rope_scaling={"rope_type": "yarn", "factor": 4.0,
                                                    "original_max_position_embeddings": 16})),
    "mistral-window": MistralConfig(**llama(sliding_window=5)),
    "qwen2-tied": Qwen2Config(**llama(tie_word_embeddings=True)),
    "qwen3": Qwen3Config(**llama(head_dim=8, rms_norm_eps=1e-6)),
    "gpt2": GPT2Config(vocab_size=61, n_positions=33, n_embd=24, n_layer=2, n_head=3, resid_pdrop=0.0, embd_pdrop=0.0,
                       attn_pdrop=0.0, initializer_range=0.2, bos_token_id=1, eos_token_id=2),
}

# Documents as (first, end) of the flat batch; a row's end always ends one.
DOCUMENTS = {
    "whole": [(row * ROW_TOKENS, (row + 1) * ROW_TOKENS) for row in range(ROWS)],
    "packed": [(0, 5), (5, 6), (6, 17), (17, 34), (34, 43), (43, 51)],
}


def batch(seed, masked):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 61, (ROWS * ROW_TOKENS,), generator=generator)
    labels = tokens.clone()
    if masked:
        labels[torch.rand(labels.shape, generator=generator) < 0.4] = -100
    return tokens, labels


def forward(model, tokens, labels, documents):
    """Logits of every token in the order of the batch, the sum of losses, and how many labels count."""
    logits, total, count = [], torch.zeros(()), 0
    for first, end in documents:
        out = model(input_ids=tokens[first:end][None]).logits[0]
        logits.append(out)
        targets = labels[first + 1:end]
        kept = int((targets >= 0).sum())
        if kept:
            total = total + torch.nn.functional.cross_entropy(out[:-1], targets, reduction="sum", ignore_index=-100)
        count += kept
    return torch.cat(logits), total, count


def perturb(model):
    """Norms and biases away from 1 and 0, so that a missing one shows."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def make(name, config, kind, out):
    torch.manual_seed(1234)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().train()
    perturb(model)
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    model.save_pretrained(folder)
    for left in ("generation_config.json",):
        if os.path.exists(os.path.join(folder, left)):
            os.remove(os.path.join(folder, left))

    documents = DOCUMENTS[kind]
    tokens, labels = batch(42, masked=kind == "packed")
    logits, total, count = forward(model, tokens, labels, documents)
    loss = total / count
    loss.backward()
    expected = {"logits": logits.detach().contiguous()}
    for parameter_name, parameter in model.named_parameters():
        expected["grad." + parameter_name] = parameter.grad.detach().clone().contiguous()
    norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters()))

    groups = [{"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        _, total, count = forward(model, tokens, labels, documents)
        step_loss = total / count
        step_loss.backward()
        losses.append(float(step_loss))
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()

    save_file(expected, os.path.join(folder, "expected.safetensors"))
    with open(os.path.join(folder, "case.json"), "w") as file:
        json.dump({"rows": ROWS, "row_tokens": ROW_TOKENS, "tokens": tokens.tolist(), "labels": labels.tolist(),
                   "document_starts": [first for first, _ in documents], "loss": float(loss), "grad_norm": float(norm),
                   "lr": LR, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS, "weight_decay": DECAY, "clip": CLIP,
                   "losses": losses}, file)
    print(f"{name}: loss {float(loss):.7f}, {sum(p.numel() for p in model.parameters())} parameters")


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "tests/golden"
    kinds = ["packed", "whole"]
    for index, (name, config) in enumerate(CASES.items()):
        make(name, config, kinds[index % 2] if name != "mistral-window" else "whole", out)


if __name__ == "__main__":
    main()
