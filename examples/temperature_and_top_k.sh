#!/bin/sh
# Sampling draws the next token by its probability. A low temperature stays near the greedy text, a high one
# wanders off; top-k keeps the draw among the k likeliest. The seed makes each of these texts repeatable.
set -e
prompt="The little dog was sad because"
for options in "--temperature 0.3" "--temperature 1" "--temperature 2" "--temperature 2 --top-k 10"; do
    echo "== $options"
    gpt2cli generate --max-new-tokens 20 --seed 1 $options "$prompt"
done
