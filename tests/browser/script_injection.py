"""A store in which every field is a script.

`tidemill web tests.browser.script_injection:app` serves it from its folder."""

from __future__ import annotations

from tests.web.populated_store import PopulatedStore

SHORT = {"flow", "flow-key", "step"}
"""The id of a flow's job contains these names and has at most 200 characters."""


def script_value(field: str) -> str:
    """Returns a text that sets `window.harmed` or requests `harm` if a page does anything but show it."""
    image = f"""{field}"'><img src=harm onerror="harmed=1">"""
    return image if field in SHORT else f"{image}<script>harmed='{field}'</script>{{{{7*7}}}}&amp;?#%2F"


app = PopulatedStore("sqlite:///harm.db", script_value).app
