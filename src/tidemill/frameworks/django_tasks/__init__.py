"""A backend for Django's tasks. It works with `django.tasks` of Django 6, and with the package django-tasks
for earlier versions.

    TASKS = {
        "default": {
            "BACKEND": "tidemill.frameworks.django_tasks.TidemillBackend",
            "OPTIONS": {"URL": "sqlite:///jobs.db"},
        }
    }

`manage.py tidemill_worker --backend default` runs the enqueued tasks."""

from __future__ import annotations

from tidemill.frameworks.django_tasks.backend import TidemillBackend
from tidemill.frameworks.django_tasks.compat import task_backends

__all__ = ["TidemillBackend", "task_backends"]
