#!/bin/sh
# The numbers as data. In a pipe, inspect-logits writes TSV with a header, in full precision:
#   pandas.read_csv(sys.stdin, sep="\t", quoting=3) reads it; so do cut, awk and sqlite3.
set -e
gpt2cli inspect-logits --rows 4 "Once upon a" | cut -f 1-5

# The share of probability that the ten likeliest tokens hold.
gpt2cli inspect-logits --rows 10 "The" | awk -F '\t' 'NR > 1 { sum += $5 } END { printf "%.3f\n", sum }'

# JSON names every number; raw ones (logit, probability) and those of the draw (adjusted_logit,
# sampling_probability) never share a name.
gpt2cli generate --json --show-logits 2 --max-new-tokens 3 --top-k 2 --seed 0 "Once upon a" |
    jq -r '.steps[] | .candidates[] | [.rank, .text, .probability, .sampling_probability, .chosen] | @tsv'
