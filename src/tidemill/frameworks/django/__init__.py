"""Django: enqueue jobs after a commit, run handlers with fresh database connections, and run a worker with
manage.py.

    INSTALLED_APPS = [..., "tidemill.frameworks.django"]    # for `manage.py tidemill_worker`
    TIDEMILL_APP = "mysite.jobs.app"

TIDEMILL_APP is the import path of your Tidemill application."""

from __future__ import annotations

from tidemill.frameworks.django.database import enqueue_on_commit, send_on_commit, use_fresh_connections

__all__ = ["enqueue_on_commit", "send_on_commit", "use_fresh_connections"]
