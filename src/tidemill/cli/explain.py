"""`tidemill explain`: why a job waits, or what became of it."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.naming import full_ids, no_such
from tidemill.cli.output import echo, print_json
from tidemill.cli.secrets import Redaction, with_secrets
from tidemill.cli.target import Target, with_target
from tidemill.core.courses import Kind
from tidemill.core.terminal_text import one_line
from tidemill.errors import JobNotFound
from tidemill.inspect.explanation import Explanation


@click.command()
@click.argument("id", shell_complete=complete.jobs)
@with_target
@with_secrets
def explain(target: Target, id: str, *, redaction: Redaction) -> None:  # noqa: A002 - the word for it
    """Say why a job waits, or what became of it."""

    async def ask(app: Tidemill) -> Explanation:
        if await _is_flow(app, id):
            look = target.command("flows", "show", id)
            raise JobNotFound(f"{id!r} is a flow and no job; look at it: {look}")
        [named] = await full_ids(app, [id])
        try:
            explanation = await app.inspect.explain(named)
        except JobNotFound:
            raise JobNotFound(no_such([id])) from None
        [job] = await app.store.get([named])
        return redaction.explanation(app, explanation, job)

    explanation = target.run(ask)
    if target.json:
        print_json(explanation)
        return
    echo(one_line(f"{explanation.job} is {explanation.state} ({explanation.task}, {explanation.queue})"))
    told = [cause.sentence for cause in explanation.causes]
    rest = explanation.sentence.removeprefix(" ".join(told)).strip()
    for sentence in filter(None, [*told, rest]):
        echo(one_line(sentence))


async def _is_flow(app: Tidemill, typed: str) -> bool:
    [job] = await app.store.get([typed])
    return job is None and (await app.store.courses(Kind.FLOW, [typed])) != [None]
