"""What people see and use of articles: the API, the pages, the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill_apps.articles import metrics
from tidemill_apps.articles.limits import Limits
from tidemill_apps.articles.pages import Pages
from tidemill_apps.articles.routes import Routes
from tidemill_apps.articles.triggers import Triggers

if TYPE_CHECKING:
    from tidemill_apps.articles.articles import Articles


def offer(articles: Articles) -> None:
    limits = Limits(articles)
    triggers = Triggers(articles, limits)
    Routes(articles, limits, triggers).declare()
    Pages(articles, limits, triggers).declare()
    metrics.declare(articles)
