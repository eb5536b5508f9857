"""What an application tells, and whom."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from tidemill.clock import Clock
from tidemill.contract.store import Store
from tidemill.tasks.definition import TaskDefinition
from tidemill.telling.addresses import Allowed
from tidemill.telling.alerts.channels import Channel
from tidemill.telling.alerts.rule import USUAL, Measure, Rule
from tidemill.telling.webhook import Declared


@dataclass(kw_only=True)
class Telling:
    """`webhooks`, `own_rules` and `measures` are those of the code, and may still grow. `set_rules` and what
    follows is set. `where` names the store as it may be shown."""

    store: Callable[[], Awaitable[Store]]
    clock: Callable[[], Clock]
    where: Callable[[], str]
    webhooks: dict[str, Declared] = field(default_factory=dict)
    own_rules: dict[str, Rule] = field(default_factory=dict)
    measures: dict[str, Measure] = field(default_factory=dict)
    set_rules: Mapping[str, Rule] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    allowed: Allowed = field(default_factory=Allowed)
    timeout: float = 15.0
    every: float = 15.0
    digest: float = 30.0
    repeat: float = 3600.0
    public_url: str | None = None

    @property
    def rules(self) -> Mapping[str, Rule]:
        """What is set wins over what code says; the usual ones hold where nobody says anything."""
        said = {**self.own_rules, **self.set_rules}
        return said or (USUAL if self.channels else {})

    def tasks(self) -> dict[str, TaskDefinition]:
        """Of the jobs by which we tell: every worker knows them."""
        from tidemill.telling import delivering
        from tidemill.telling.alerts import sending

        found = (
            delivering.task(self.store, self.clock, self.allowed, self.timeout),
            sending.task(lambda: self.channels, self.clock),
        )
        return {task.name: task for task in found}
