"""Alerts and metrics of the feeds application."""

from __future__ import annotations

from tidemill_apps.feeds.due_times import DAY_SECONDS
from tidemill_apps.feeds.service import Feeds
from tidemill_apps.feeds.sites import mask_url

FAILING_HOURS = 24.0
HOUR_SECONDS = 3600.0


def declare_alerts(feeds: Feeds) -> None:
    """Declares the alert rules. They replace Tidemill's default rules, so the useful default rules are
    repeated here. The environment variables TIDEMILL_ALERTS_… set the channels."""

    async def failing_hours() -> dict[str, float]:
        await feeds.store.prepare()
        now = feeds.now()
        found = await feeds.store.find_failing(now - DAY_SECONDS)
        return {
            feed.title or mask_url(feed.url): (now - (feed.state.failing_since or now)) / HOUR_SECONDS
            for feed in found
        }

    async def network_down() -> float:
        await feeds.store.prepare()
        return float((await feeds.history.connections(feeds.now())).network_down)

    async def feed_count() -> float:
        await feeds.store.prepare()
        return float(sum((await feeds.store.counts()).values()))

    app = feeds.app
    app.alert("feed fails for a day", on=failing_hours, above=FAILING_HOURS)
    app.alert("network down", on=network_down, above=0.5)
    app.alert("feeds wait", on="oldest_job", queue=feeds.queue, above=3600, clear=600)
    app.alert("worker gone", on="worker_gone")
    app.alert("store lost", on="store_lost")
    app.metrics.gauge("feeds_count", "Feeds that are refreshed.", read=feed_count)
