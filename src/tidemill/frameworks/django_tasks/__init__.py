"""A backend for Django's tasks: `django.tasks` of Django 6, or the package django-tasks before it.

    TASKS = {
        "default": {
            "BACKEND": "tidemill.frameworks.django_tasks.TidemillBackend",
            "OPTIONS": {"URL": "sqlite:///jobs.db"},
        }
    }

`manage.py tidemill_worker --backend default` runs what was enqueued.
"""

from __future__ import annotations

from tidemill.frameworks.django_tasks.api import task_backends
from tidemill.frameworks.django_tasks.backend import TidemillBackend

__all__ = ["TidemillBackend", "task_backends"]
