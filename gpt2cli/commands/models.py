"""gpt2cli models: what can be named."""

import click

from gpt2cli.options import Talk, talk_options


@click.command(short_help="List the models that can be named.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@talk_options
def models(as_json: bool, talk: Talk) -> None:
    """List the models that --model can name: parameters, size on disk, and whether they are here.

    Besides these, --model takes any folder in Hugging Face layout and any hub id (user/model).
    """
    import sys

    from gpt2cli.checkpoint import list_models
    from gpt2cli.output import is_terminal, render, write
    from gpt2cli.render import models_view
    from gpt2cli.serialize import json_line, separated

    known = list_models()
    records = [
        {
            "name": model.name,
            "repo_id": model.repo_id,
            "parameters": model.parameters,
            "bytes": model.size,
            "here": model.here,
        }
        for model in known
    ]
    if as_json:
        write("".join(json_line(record) for record in records))
    elif is_terminal(sys.stdout):
        write(render(models_view(known), talk, sys.stdout))
    else:
        write(separated(records, "tsv"))
