"""`manage.py tidemill_worker`: runs a worker with Django's settings, models and connections."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.module_loading import autodiscover_modules

from tidemill.app import Tidemill
from tidemill.errors import TidemillError
from tidemill.frameworks.django.apps import get_application
from tidemill.frameworks.django.database import use_fresh_connections

_OWN = ("queues", "concurrency", "until_idle")


class Command(BaseCommand):
    help = "Run jobs until SIGTERM or SIGINT: the first lets running jobs finish."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--app", help="path of the application; the setting TIDEMILL_APP by default")
        parser.add_argument("--backend", help="alias of a TidemillBackend in TASKS: its application")
        parser.add_argument("--queues", nargs="+", metavar="QUEUE", help="every queue by default")
        parser.add_argument("--concurrency", type=int, help="how many jobs run at once")
        parser.add_argument(
            "--until-idle", action="store_true", default=None, help="stop when nothing is ready or running"
        )

    def handle(self, *_: Any, app: str | None, backend: str | None, **options: Any) -> None:
        try:
            # Imports jobs.py of every installed app, as Django does with admin.py; this registers the tasks.
            autodiscover_modules("jobs")
            served = _backend_application(backend) if backend else get_application(app)
            _open_backends()
            use_fresh_connections(served)
            served.run_worker(**{name: options[name] for name in _OWN if options[name] is not None})
        except (TidemillError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error


def _backend_application(alias: str) -> Tidemill:
    if alias not in getattr(settings, "TASKS", {}):
        raise ImproperlyConfigured(f"--backend: TASKS has no {alias!r}")
    from tidemill.frameworks.django_tasks import TidemillBackend, task_backends

    backend = task_backends[alias]
    if not isinstance(backend, TidemillBackend):
        raise ImproperlyConfigured(f"--backend: {alias!r} is {type(backend).__name__}, no TidemillBackend")
    return backend.app


def _open_backends() -> None:
    """Creates all backends of the setting TASKS. Each Tidemill backend then registers its handlers with its
    application."""
    if aliases := list(getattr(settings, "TASKS", {})):
        from tidemill.frameworks.django_tasks import task_backends

        for alias in aliases:
            task_backends[alias]
