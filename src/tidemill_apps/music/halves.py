"""The two halves of what is called: a model that describes songs, and one that makes their vectors. Each may
be simulated while the other is real, and whoever sees what they say is told which."""

from __future__ import annotations

from typing import Literal, get_args

from tidemill_apps.common.providers.account import Account
from tidemill_apps.music.limits import EMBEDDING, FULL, METADATA
from tidemill_apps.music.settings import MusicSettings

Half = Literal["chat", "embeddings"]
HALVES: tuple[Half, ...] = get_args(Half)
MAKES: dict[Half, str] = {"chat": "the descriptions", "embeddings": "the vectors"}
CALLED_BY: dict[str, tuple[Half, ...]] = {FULL: HALVES, METADATA: ("chat",), EMBEDDING: ("embeddings",)}
"""What a job of each queue calls, once each."""


def account_of(settings: MusicSettings, half: Half) -> Account:
    return settings.chat if half == "chat" else settings.embeddings


def is_simulated(account: Account) -> bool:
    """Nobody could be called: there is no key, and no address of a server that wants none."""
    return not account.key and not account.base_url


def simulated_halves(settings: MusicSettings) -> tuple[Half, ...]:
    """Also those whose account says that a simulator is at its address."""
    return tuple(
        half for half in HALVES if is_simulated(account := account_of(settings, half)) or account.simulator
    )


def told_halves(settings: MusicSettings) -> str:
    """What the simulator stands in for, and who is called for the rest."""
    simulated = simulated_halves(settings)
    made_up = " and ".join(f"{half} ({MAKES[half]})" for half in simulated)
    real = [
        f"; {half} ({MAKES[half]}) is not simulated: {account_of(settings, half).told} is called, and paid"
        for half in HALVES
        if half not in simulated
    ]
    return f"the simulator stands in for {made_up}{''.join(real)}"
