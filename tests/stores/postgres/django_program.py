"""A Django program. It runs in its own process, because Django's settings exist once per process."""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connection, connections, transaction

from tidemill.errors import ConfigurationError
from tidemill.stores.postgres import user_transactions
from tidemill.stores.postgres.address import PostgresAddress


class RolledBackError(Exception):
    """Raised to roll back on purpose."""


def main(url: str) -> None:
    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    settings.configure(DATABASES={"default": database, "lite": {"ENGINE": "django.db.backends.sqlite3"}})
    django.setup()
    address = PostgresAddress.parse(url)
    for name, given in (("proxy", connection), ("wrapper", connections["default"]), ("alias", "default")):
        try:
            with transaction.atomic():
                user_transactions.insert_arrival_sync(
                    given, address, (f"{name} rolled back", "t", "{}", "{}")
                )
                raise RolledBackError  # noqa: TRY301 - what a caller would do
        except RolledBackError:
            pass
        with transaction.atomic():
            user_transactions.insert_arrival_sync(given, address, (name, "t", "{}", "{}"))
    for refused in ("lite", connections["lite"]):
        try:
            user_transactions.insert_arrival_sync(refused, address, ("lite", "t", "{}", "{}"))
        except ConfigurationError as error:
            print(error)
    try:
        asyncio.run(user_transactions.insert_arrival("default", address, ("async", "t", "{}", "{}")))
    except ConfigurationError as error:
        print(error)
    connections.close_all()


if __name__ == "__main__":
    main(sys.argv[1])
