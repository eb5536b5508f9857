"""The metrics reference page and the Grafana dashboard match the catalogue."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.docs.pages import ROOT, page, rows
from tidemill.metrics.catalogue import CATALOGUE
from tidemill.metrics.families import MetricFamily
from tidemill.metrics.instruments import MAX_SERIES_PER_METRIC, OTHER_LABELS
from tidemill.metrics.snapshots import WRITE_INTERVAL_SECONDS

DASHBOARD = ROOT / "deploy" / "grafana.json"


def _row(family: MetricFamily) -> list[str]:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return [f"`{family.name}`", family.kind, labels, family.help_text]


def test_every_metric_is_on_the_page_as_it_is() -> None:
    """The page and the catalogue have the same metrics in the same order."""
    assert rows(page("reference/metrics.md")) == [_row(family) for family in CATALOGUE]


def test_the_page_says_the_numbers_that_hold() -> None:
    text = page("reference/metrics.md")
    assert f"every {WRITE_INTERVAL_SECONDS:.0f} seconds" in text
    assert f"{MAX_SERIES_PER_METRIC} series" in text
    assert f"`{OTHER_LABELS}`" in text


def _panels(found: Any) -> list[dict[str, Any]]:
    return [panel for one in found["panels"] for panel in (one, *one.get("panels", ()))]


def _queries(dashboard: Any) -> list[str]:
    """Returns every PromQL expression of the panels and of the variables."""
    panels = [target["expr"] for panel in _panels(dashboard) for target in panel.get("targets", ())]
    return panels + [variable["query"] for variable in dashboard["templating"]["list"] if "query" in variable]


def test_the_dashboard_asks_for_metrics_that_there_are_with_labels_they_have() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    known = {family.name: family for family in CATALOGUE}
    for query in _queries(dashboard):
        names = re.findall(r"\btidemill_\w+", query)
        assert names or query == "prometheus", query
        for name in names:
            family = known.get(name) or known[re.sub(r"_(bucket|sum|count)$", "", name)]
            given = re.search(rf"{name}\{{([^}}]*)\}}", query)
            used = re.findall(r"(\w+)=", given[1]) if given else []
            assert set(used) <= {*family.labels, "le"}, query
        for by in re.findall(r"by \(([^)]*)\)", query):
            labels = {label for name in names for label in known[_base(name, known)].labels}
            assert {label.strip() for label in by.split(",")} <= {*labels, "le"}, query


def _base(name: str, known: dict[str, MetricFamily]) -> str:
    return name if name in known else re.sub(r"_(bucket|sum|count)$", "", name)


def test_the_dashboard_shows_every_metric_in_panels_that_do_not_overlap() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    shown = {name for query in _queries(dashboard) for name in re.findall(r"\btidemill_\w+", query)}
    known = {family.name: family for family in CATALOGUE}
    assert {_base(name, known) for name in shown} == set(known)
    panels = _panels(dashboard)
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"]
