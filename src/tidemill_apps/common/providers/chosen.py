"""Which provider, by settings."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec.structs import replace

from tidemill_apps.common.environment import read
from tidemill_apps.common.providers.account import Account, Provider
from tidemill_apps.common.providers.chat import Chat
from tidemill_apps.common.providers.embeddings import Embeddings
from tidemill_apps.common.providers.gemini import GeminiChat, GeminiEmbeddings
from tidemill_apps.common.providers.openai import OpenAIChat, OpenAIEmbeddings
from tidemill_apps.common.toml import NOTHING, Table

CHAT_MODELS: dict[Provider, str] = {"gemini": "gemini-2.5-flash", "openai": "gpt-4o-mini"}
EMBEDDING_MODELS: dict[Provider, str] = {"gemini": "gemini-embedding-001", "openai": "text-embedding-3-small"}
USUAL_KEYS: dict[Provider, str] = {"gemini": "GEMINI_API_KEY", "openai": "OPENAI_API_KEY"}


def account(prefix: str, environ: Mapping[str, str] | None = None, toml: Table = NOTHING) -> Account:
    """From the variables that begin with `prefix`, else from the table; the key also from where the
    providers' own clients look. A key for somebody else's server must be given on purpose: the usual one
    would be sent to a stranger."""
    environment = os.environ if environ is None else environ
    found = read(Account, prefix, environment, toml)
    if found.key or found.base_url:
        return found
    return replace(found, key=environment.get(USUAL_KEYS[found.provider], "").strip())


def chat(account: Account) -> Chat:
    using = account if account.model else replace(account, model=CHAT_MODELS[account.provider])
    return GeminiChat(using) if using.provider == "gemini" else OpenAIChat(using)


def embeddings(account: Account) -> Embeddings:
    using = account if account.model else replace(account, model=EMBEDDING_MODELS[account.provider])
    return GeminiEmbeddings(using) if using.provider == "gemini" else OpenAIEmbeddings(using)
