"""One step of generation by hand: what the output layer does, in the order in which it happens."""

import torch

import gpt2cli

loaded = gpt2cli.load("tinystories")
model, tokenizer = loaded.model, loaded.tokenizer
token_ids = tokenizer.encode("Once upon a time")

with torch.inference_mode():
    hidden_states = model.hidden_states(token_ids)  # [T, n_embd], after the final layer norm
W_E = model.token_embedding  # [V, n_embd]: the matrix that turned ids into vectors turns vectors into logits
logits = hidden_states @ W_E.T  # [T, V]: one dot product per position and vocabulary token; no bias
print(f"hidden states {list(hidden_states.shape)} @ W_E.T {list(W_E.T.shape)} = logits {list(logits.shape)}")

# Training looks at every row that has a target: row t predicts token t + 1.
targets = torch.tensor(token_ids[1:])
log_probabilities = logits[:-1].log_softmax(-1)
loss = -log_probabilities[torch.arange(len(targets)), targets].mean()
print(f"loss {loss:.4f} nats per token over {len(targets)} targets")

# Generation looks at the last row alone. Greedy needs no softmax: the largest logit has the largest probability.
last = logits[-1]
print(f"greedy chooses {tokenizer.decode([int(last.argmax())])!r}")

# Direction ranks, length makes confident: doubling h doubles every logit and keeps their order.
for scale in (0.5, 1.0, 2.0):
    probabilities = (scale * hidden_states[-1] @ W_E.T).softmax(-1)
    top = probabilities.topk(2)
    choices = [f"{tokenizer.decode([int(n)])!r} {p:.4f}" for p, n in zip(top.values, top.indices, strict=True)]
    print(f"hidden state × {scale}: {', '.join(choices)}")
