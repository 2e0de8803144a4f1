#!/bin/sh
# Greedy decoding takes the largest logit at every step: no softmax, no randomness, the same text every time.
# Standard error shows each choice: rank 1 is always the one that is chosen.
set -e
prompt="Once upon a time, there was a"
gpt2cli generate --max-new-tokens 5 --show-logits 3 "$prompt"
first=$(gpt2cli generate --max-new-tokens 20 "$prompt")
second=$(gpt2cli generate --max-new-tokens 20 "$prompt")
[ "$first" = "$second" ] && echo "Twice the same:$first"
