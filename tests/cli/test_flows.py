"""`tidemill flows`: listing, showing, cancelling and retrying flows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Cli
from tidemill.cli.flows import format_flow_tree
from tidemill.core.flow_graph import OnFailure
from tidemill.core.flow_progress import FlowState, StepState
from tidemill.flows.views import FlowView, StepView

STUDIO = """
from tidemill import Retry, Tidemill

app = Tidemill("sqlite:///shop.db")

@app.task(name="studio:download", retry=Retry(attempts=1))
async def download(url: str) -> str:
    if "broken" in url:
        raise ConnectionError("nobody home")
    return url + ".mp4"

@app.task(name="studio:cut")
async def cut(video: str) -> list[str]:
    return [video + ":1", video + ":2"]

@app.task(name="studio:upload")
async def upload(part: str) -> str:
    return "sent " + part

@app.task(name="studio:tell")
async def tell(parts: list[str]) -> int:
    return len(parts)

def send(key, url="a"):
    flow = app.flow("clip", key=key)
    parts = flow.map(upload, part=flow.add(cut, video=flow.add(download, url=url)))
    flow.add(tell, parts=parts)
    flow.enqueue_sync()
    app.close_sync()
"""


@pytest.fixture(autouse=True)
def studio(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "studio.py").write_text(STUDIO)


def send(key: str, url: str = "a") -> None:
    from importlib import import_module

    import_module("studio").send(key, url)


def test_a_flow_is_shown_as_a_tree(cli: Cli) -> None:
    send("7")
    before = cli("flows", "show", "clip/7", "--app", "studio:app").out
    assert before.split("\n\n")[1] == (
        "└─ download  ready\n"
        "   └─ cut  waiting (after download)\n"
        "      └─ upload  waiting (after cut)\n"
        "         └─ tell  waiting (after upload)\n"
    )
    assert cli("worker", "studio:app", "--until-idle").code == 0
    after = cli("flows", "show", "clip/7", "--app", "studio:app").out
    assert "state:      done" in after
    assert "progress:   100%" in after
    assert "upload  done (2 jobs, 2 done)" in after
    view = cli("flows", "show", "clip/7", "--app", "studio:app", "--json").json
    assert [step["name"] for step in view["steps"]] == ["download", "cut", "upload", "tell"]


def test_flows_are_listed_newest_first(cli: Cli) -> None:
    send("1")
    send("2")
    heading, *lines = cli("flows", "--url", "sqlite:///shop.db").out.splitlines()
    assert heading.split() == ["id", "state", "progress", "steps", "created", "note"]
    assert [line.split()[0] for line in lines] == ["clip/2", "clip/1"]
    page = cli("flows", "--name", "clip", "--limit", "1", "--url", "sqlite:///shop.db", "--json").json
    assert [flow["id"] for flow in page["flows"]] == ["clip/2"]
    rest = cli("flows", "--limit", "1", "--cursor", page["cursor"], "--url", "sqlite:///shop.db", "--json")
    assert [flow["id"] for flow in rest.json["flows"]] == ["clip/1"]
    assert "no flow matches" in cli("flows", "--state", "failed", "--url", "sqlite:///shop.db").err


def test_a_flow_is_cancelled_and_retried(cli: Cli) -> None:
    send("7")
    store = ("--url", "sqlite:///shop.db")
    assert cli("flows", "cancel", "clip/7", "--reason", "enough", *store).out == "clip/7 cancelled\n"
    again = cli("flows", "cancel", "clip/7", *store)
    assert (again.code, again.err) == (1, "tidemill: nothing was changed: clip/7 had already ended\n")
    assert "enough" in cli("flows", *store).out
    assert cli("flows", "retry", "clip/7", *store).out == "clip/7 runs again\n"
    assert cli("worker", "studio:app", "--until-idle").code == 0
    assert cli("flows", "retry", "clip/7", "--json", *store).json == {"flow": "clip/7", "changed": False}
    assert cli("flows", "--json", *store).json["flows"][0]["state"] == "done"


def test_jobs_are_found_by_their_flow(cli: Cli) -> None:
    send("7")
    send("8")
    found = cli("jobs", "--flow", "clip/7", "--url", "sqlite:///shop.db", "--json").json["jobs"]
    assert [job["id"] for job in found] == ["clip/7/download/0"]
    job_output = cli("jobs", "show", "clip/7/download/0", "--url", "sqlite:///shop.db").out
    assert "flow:             step 'download' of clip/7, job 0" in job_output


def test_explain_says_why_a_step_waits(cli: Cli) -> None:
    send("7")
    output = cli("explain", "clip/7/cut/0", "--app", "studio:app").out
    assert "Waits for download, which is ready." in output


def test_explain_refuses_a_flow_id(cli: Cli) -> None:
    send("seventh")
    result = cli("explain", "clip/seventh", "--app", "studio:app")
    assert (result.code, result.out) == (1, "")
    command = "tidemill flows show clip/seventh --app studio:app"
    assert result.err == f"tidemill: 'clip/seventh' is a flow and no job; look at it: {command}\n"


def test_an_unknown_flow_is_reported(cli: Cli) -> None:
    send("7")
    result = cli("flows", "show", "clip/8", "--app", "studio:app")
    assert (result.code, result.out) == (1, "")
    assert "there is no flow 'clip/8'" in result.err
    assert cli("flows", "--name", "x", "show", "clip/7", "--app", "studio:app").code == 2


def test_a_long_chain_is_shown_as_a_tree() -> None:
    names = [f"s{number}" for number in range(1_500)]
    steps = [
        StepView(
            name=name,
            task="t",
            queue="q",
            state=StepState.WAITING,
            mapped=False,
            on_failure=OnFailure.FAIL,
            parents=(parent,) if parent else (),
        )
        for parent, name in zip(["", *names], names, strict=False)
    ]
    view = FlowView(
        id="f", name="f", key=None, state=FlowState.RUNNING, progress=0.0, created=0.0, steps=tuple(steps)
    )
    lines = list(format_flow_tree(view, {}))
    assert [line.strip("└─ ").split()[0] for line in lines] == names
