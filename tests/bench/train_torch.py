"""The quickstart's model and batch in plain PyTorch, fp32, on the CPU: the peer of tests/bench/train.sh.

usage: train_torch.py TEXT THREADS STEPS     prints tokens/s over the steps' median

Nothing is made slower on purpose: whole batch at once (PyTorch has no budget to keep to), fused projections where Hugging Face
has three, scaled_dot_product_attention where this version has it, AdamW in its multi-tensor form where it has that."""

import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

HIDDEN, INTER, LAYERS, HEADS, KV, VOCAB, SEQ, ROWS = 128, 352, 6, 4, 2, 257, 128, 8
DIM = HIDDEN // HEADS


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(HIDDEN, (HEADS + 2 * KV) * DIM, bias=False)
        self.out = torch.nn.Linear(HEADS * DIM, HIDDEN, bias=False)
        self.gate_up = torch.nn.Linear(HIDDEN, 2 * INTER, bias=False)
        self.down = torch.nn.Linear(INTER, HIDDEN, bias=False)
        self.norm1, self.norm2 = Norm(), Norm()

    def forward(self, x, cos, sin, mask):
        rows = x.shape[0]
        q, k, v = self.qkv(self.norm1(x)).split([HEADS * DIM, KV * DIM, KV * DIM], dim=-1)
        q = rotate(q.view(rows, SEQ, HEADS, DIM).transpose(1, 2), cos, sin)
        k = rotate(k.view(rows, SEQ, KV, DIM).transpose(1, 2), cos, sin).repeat_interleave(HEADS // KV, 1)
        v = v.view(rows, SEQ, KV, DIM).transpose(1, 2).repeat_interleave(HEADS // KV, 1)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(DIM) + mask, -1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(rows, SEQ, HEADS * DIM))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Llama(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCAB, HIDDEN)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = Norm()
        self.head = torch.nn.Linear(HIDDEN, VOCAB, bias=False)
        for name, parameter in self.named_parameters():
            if "norm" not in name:
                torch.nn.init.normal_(parameter, std=0.02)
        angle = torch.outer(torch.arange(SEQ).float(), 10000.0 ** (-torch.arange(0, DIM, 2).float() / DIM)).repeat(1, 2)
        self.cos, self.sin = angle.cos(), angle.sin()
        self.mask = torch.full((SEQ, SEQ), -math.inf).triu(1)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin, self.mask)
        return self.head(self.norm(x))


def main():
    text, threads, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(1)
    torch.set_num_threads(threads)
    data = torch.frombuffer(bytearray(open(text, "rb").read()), dtype=torch.uint8).long()
    model = Llama()
    options = {"lr": 3e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    try:
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True, **options)
    except TypeError:
        optimizer = torch.optim.AdamW(model.parameters(), **options)
    times, losses = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        at = torch.randint(len(data) - SEQ - 1, (ROWS,))
        batch = torch.stack([data[i : i + SEQ + 1] for i in at])
        loss = F.cross_entropy(model(batch[:, :-1]).view(-1, VOCAB), batch[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - begin)
    parameters = sum(p.numel() for p in model.parameters())
    assert parameters == 1173376, parameters
    print(f"{ROWS * SEQ / statistics.median(times[steps // 5 :]):.0f} {losses[0]:.3f} {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
