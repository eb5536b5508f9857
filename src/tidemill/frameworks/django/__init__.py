"""Django: enqueue after the commit, run handlers with fresh database connections, a worker in manage.py.

INSTALLED_APPS = [..., "tidemill.frameworks.django"]    # for `manage.py tidemill_worker`
TIDEMILL_APP = "mysite.jobs.app"
"""

from __future__ import annotations

from tidemill.frameworks.django.connections import use_fresh_connections
from tidemill.frameworks.django.transactions import enqueue_on_commit, send_on_commit

__all__ = ["enqueue_on_commit", "send_on_commit", "use_fresh_connections"]
