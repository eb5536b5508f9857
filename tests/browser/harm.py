"""A world that was written by somebody who means harm: every field is a script.

`tidemill web tests.browser.harm:app` serves it, in the folder that has it.
"""

from __future__ import annotations

from tests.web.world import World

SHORT = {"flow", "flow-key", "step"}
"""The id of a flow's job is made of these, and has 200 characters at most."""


def harmful(field: str) -> str:
    """Whatever a page does with it but show it sets `window.harmed`, or asks for `harm`."""
    image = f"""{field}"'><img src=harm onerror="harmed=1">"""
    return image if field in SHORT else f"{image}<script>harmed='{field}'</script>{{{{7*7}}}}&amp;?#%2F"


app = World("sqlite:///harm.db", harmful).app
