"""`tidemill pools`: lists, shows, sets, unsets, closes and opens pools."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import completion
from tidemill.cli.formatting import (
    format_amount,
    format_end,
    format_free_in,
    format_gauge,
    format_learned,
    format_minute,
    format_override,
    format_pool_name,
    format_pool_state,
    format_used,
    format_waiting_jobs,
)
from tidemill.cli.output import echo, print_fields, print_json
from tidemill.cli.overrides import (
    EndOption,
    OverrideOptions,
    current_operator,
    report_set,
    report_unset,
    with_end,
    with_override_options,
)
from tidemill.cli.root import CommandGroup
from tidemill.cli.store_options import CommandTarget, with_target
from tidemill.cli.terminal import Column, print_table
from tidemill.contract.pools import LimitView
from tidemill.inspect.pools import PoolStatus

POOL_COLUMNS = (
    Column("pool", truncate="end", min_width=8),
    Column("limit"),
    Column("used", drop_order=2),
    Column("", right=True),
    Column("all free in", drop_order=4, right=True),
    Column("waiting", drop_order=3, right=True),
    Column("state", drop_order=1, truncate="end", min_width=38),
)


@click.group(cls=CommandGroup, invoke_without_command=True)
@with_target
def pools(target: CommandTarget) -> None:
    """Show the pools and their usage; or set, close or open one."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    found = target.run(lambda app: app.inspect.pools())
    if target.json:
        print_json(found)
        return
    print_table(POOL_COLUMNS, [_pool_row(pool, limit) for pool in found for limit in pool.limits])


def _pool_row(pool: PoolStatus, limit: LimitView) -> tuple[object, ...]:
    """Returns the table row of one limit. A keyed pool shows no usage in its own row, because only its keys
    have usage."""
    use: tuple[str, str, str] = (format_gauge(limit), format_used(limit), format_free_in(limit))
    if pool.keyed and pool.key is None:
        use = ("each key", format_amount(limit.amount), "")
    return (format_pool_name(pool), limit.name, *use, pool.waiting, format_pool_state(pool, format_minute))


LIMIT_COLUMNS = (
    Column("limit"),
    Column("used", drop_order=2),
    Column("", right=True),
    Column("all free in", right=True),
    Column("code says", drop_order=3, right=True),
    Column("others used", drop_order=1, right=True),
)


@click.command()
@click.argument("name", shell_complete=completion.complete_pools)
@click.option("--key", help="One key of a keyed pool.")
@with_target
def info(target: CommandTarget, name: str, *, key: str | None) -> None:
    """Show a pool's usage, waiting jobs, closures and override."""
    pool = target.run(lambda app: app.inspect.pool(name, key=key))
    if target.json:
        print_json(pool)
        return
    print_fields(_pool_fields(pool))
    echo()
    print_table(
        LIMIT_COLUMNS,
        [
            (
                limit.name,
                format_gauge(limit),
                format_used(limit),
                format_free_in(limit),
                format_amount(limit.declared),
                format_amount(pool.external_usage.get(limit.name, 0.0)),
            )
            for limit in pool.limits
        ],
    )


def _pool_fields(pool: PoolStatus) -> dict[str, object]:
    declared = pool.declared
    provider_text = next((closure.text for closure in pool.closures if closure.text), None)
    return {
        "pool": format_pool_name(pool)
        + (", each key has its own limits" if pool.keyed and pool.key is None else ""),
        "state": format_pool_state(pool),
        "it said": provider_text,
        "under way": pool.reservations,
        "waiting": format_waiting_jobs(pool),
        "override": format_override(pool.override) if pool.override else None,
        "this key": format_override(pool.key_override) if pool.key_override else None,
        "learned": format_learned(pool),
        "reserved": f"{declared.reserved_share:.0%} for priorities up to {declared.urgent}"
        if declared.reserved_share
        else None,
    }


@click.command("set")
@click.argument("name", shell_complete=completion.complete_pools)
@click.argument("words", metavar="LIMIT=AMOUNT...", nargs=-1, required=True)
@click.option("--key", help="Set the limits of one key of a keyed pool. They win over those of the pool.")
@with_override_options
@with_target
def set_(
    target: CommandTarget,
    name: str,
    *,
    words: tuple[str, ...],
    key: str | None,
    override_options: OverrideOptions,
) -> None:
    """Override amounts of a pool's limits until they are unset.

    Example: "requests per minute=5". The override applies to the next call on every worker and survives
    deploys."""
    amounts = _parse_amounts(words)

    async def apply(app: Tidemill) -> PoolStatus:
        return await app.inspect.override_pool(
            name, amounts, key=key, **await override_options.arguments(app)
        )

    pool = target.run(apply)
    report_set(target, format_pool_name(pool), pool, pool.own_override)


def _parse_amounts(words: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        if not equals:
            raise click.UsageError(f'{word!r} is not LIMIT=AMOUNT, such as "requests per minute=5"')
        if name in found:
            raise click.UsageError(f"{name} is given twice")
        try:
            found[name] = float(text)
        except ValueError:
            raise click.UsageError(f"{name}: must be a number above 0, is {text!r}") from None
    return found


@click.command()
@click.argument("name", shell_complete=completion.complete_pools)
@click.argument("limits", nargs=-1, metavar="[LIMIT]...")
@click.option("--key", help="Remove the override of one key of a keyed pool.")
@with_target
def unset(target: CommandTarget, name: str, limits: tuple[str, ...], *, key: str | None) -> int:
    """Remove the override of the named limits, or of all limits."""

    async def clear(app: Tidemill) -> tuple[PoolStatus, PoolStatus]:
        before = await app.inspect.pool(name, key=key)
        return before, await app.inspect.clear_pool_override(name, *limits, key=key)

    before, after = target.run(clear)
    return report_unset(
        target,
        "pool",
        format_pool_name(after),
        settings=limits,
        view=after,
        before=before.own_override,
        after=after.own_override,
        declared_text=" and the pool's override" if key is not None and after.override else "",
    )


@click.command()
@click.argument("name", shell_complete=completion.complete_pools)
@click.option(
    "--key",
    help="The key to close, for a keyed pool. Each key is closed separately.",
)
@with_end
@click.option("--reason", help="Why; shown wherever the closure is shown.")
@with_target
def close(
    target: CommandTarget, name: str, *, key: str | None, end_option: EndOption, reason: str | None
) -> None:
    """Close a pool: no new job that needs it starts. Running calls continue.

    It opens at the given end, or when you open it."""

    async def apply(app: Tidemill) -> float | None:
        end = await end_option.resolve(app)
        await app.inspect.close_pool(name, key=key, until=end, reason=reason, by=current_operator())
        return end

    end = target.run(apply)
    if target.json:
        print_json({"pool": name, "key": key, "closed": True, "until": end, "reason": reason})
    else:
        full_name = name if key is None else f"{name}/{key}"
        echo(f"{full_name} is closed{format_end(end, ' until it is opened')}")


@click.command("open")
@click.argument("name", shell_complete=completion.complete_pools)
@click.option("--key", help="One key of a keyed pool.")
@with_target
def open_(target: CommandTarget, name: str, *, key: str | None) -> None:
    """Open a pool that an operator or its breaker closed."""
    target.run(lambda app: app.inspect.open_pool(name, key=key))
    if target.json:
        print_json({"pool": name, "key": key, "closed": False})
    else:
        echo(f"{name if key is None else f'{name}/{key}'} is open")


for _command in (info, set_, unset, close, open_):
    pools.add_command(_command)
