"""Imports Django's task API from Django or django-tasks, for the project and its tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_tasks import TaskContext, TaskResultStatus, exceptions, signals, task
    from django_tasks.exceptions import InvalidTaskError
else:
    try:
        from django.tasks import TaskContext, TaskResultStatus, exceptions, signals, task
        from django.tasks.exceptions import InvalidTask as InvalidTaskError
    except ImportError:
        from django_tasks import TaskContext, TaskResultStatus, exceptions, signals, task
        from django_tasks.exceptions import InvalidTaskError

__all__ = ["InvalidTaskError", "TaskContext", "TaskResultStatus", "exceptions", "signals", "task"]
