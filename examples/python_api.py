"""gpt2cli from Python: the same model, loop and records as its commands.

python examples/python_api.py "Once upon a time"
"""

import sys

import gpt2cli


def main(prompt: str) -> None:
    model = gpt2cli.load("tinystories")

    # A step for each new token, as it is chosen; the completion at the end.
    sampling = gpt2cli.SamplingOptions.of(temperature=0.8, top_k=40)
    options = gpt2cli.GenerationOptions(max_new_tokens=20)
    print(prompt, end="")
    for event in model.generate(prompt, sampling, options, seed=7):
        print(event.delta, end="", flush=True)
        if isinstance(event, gpt2cli.Completion):
            print(f"\n[{len(event.token_ids)} tokens, ended by {event.finish_reason}]\n")

    # The row of logits that says what comes next.
    row = model.inspect(prompt, count=3)
    print(f"row {row.position} of logits {list(row.shape)}, entropy {row.entropy:.3f} nats")
    for candidate in row.candidates:
        print(f"{candidate.rank}  {candidate.token.text!r:8}  {candidate.logit:.3f}  {candidate.probability:.4f}")


if __name__ == "__main__":
    main(sys.argv[1])
