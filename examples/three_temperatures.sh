#!/bin/sh
# One step, three temperatures. The logits never change; dividing them by the temperature changes how far apart
# they are, and so the probability that a draw would use. The order of the tokens stays.
set -e
for temperature in 0.5 1 2; do
    echo "== temperature $temperature: token, raw probability, probability of the draw"
    gpt2cli inspect-logits --rows 5 --temperature "$temperature" --format tsv "Tom wanted to play with his" |
        cut -f 3,5,8
done
