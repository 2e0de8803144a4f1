#!/bin/sh
# Text in, text out: standard output holds the completion alone, so it can go on through any other program.
set -e
echo "Once upon a time" | gpt2cli generate --max-new-tokens 40 | wc -w

# A file first, then an instruction: sources join in the order file, standard input, argument.
printf 'Lily had a red ball. Tom had a blue ball.\n' | gpt2cli generate --max-new-tokens 12 "They played"

# A reader that has enough ends the writer.
gpt2cli generate --max-new-tokens 400 "One day" | head -n 1

# Three samples, one per line, as JSON.
gpt2cli generate --json --num-samples 3 --top-k 50 --seed 1 --max-new-tokens 8 "The cat" | cut -c 1-60
