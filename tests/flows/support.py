"""Tasks that record their arguments and fail on demand."""

from __future__ import annotations

from typing import Any

from tidemill import Context, FlowHandle, GiveUp, Retry, StepFailure, Tidemill
from tidemill.core.claims import ClaimRequest, QueueShare
from tidemill.core.flow_progress import FlowState

ONCE = Retry(attempts=1)


class Studio:
    """`ran` lists the calls in order. A line or step in `broken` fails until it is removed."""

    def __init__(self, app: Tidemill) -> None:
        self.ran: list[str] = []
        self.broken: set[str] = set()
        self.received: list[Any] = []
        task = app.task(queue="studio", retry=ONCE)

        def begin(name: str) -> None:
            self.ran.append(name)
            if name in self.broken:
                raise GiveUp(f"{name} does not work")

        @task
        async def extract(video: str) -> str:
            begin("extract")
            return f"{video}.wav"

        @task
        async def transcribe(audio: str, lines: int = 3) -> list[str]:
            begin("transcribe")
            return [f"{audio}:{number}" for number in range(lines)]

        @task
        async def speak(ctx: Context, line: str, voice: str = "anna") -> str:
            begin(f"speak {line}")
            self.received.append(ctx.flow)
            return f"{voice} says {line}"

        @task
        async def mux(video: str, speech: list[str | None]) -> dict[str, Any]:
            begin("mux")
            return {"video": video, "speech": speech}

        @task
        async def notify(text: str | None = None) -> None:
            begin("notify")
            self.received.append(text)

        @task
        async def silence(failure: StepFailure) -> str:
            begin(f"silence {failure.step} {failure.index}")
            self.received.append(failure)
            return "…"

        self.extract, self.transcribe, self.speak = extract, transcribe, speak
        self.mux, self.notify, self.silence = mux, notify, silence


async def dub(app: Tidemill, studio: Studio, **options: object) -> FlowHandle:
    """Starts a flow: extract, transcribe, one job for each of three lines, mux."""
    flow = app.flow("dub", key="v", **options)  # type: ignore[arg-type]
    lines = flow.add(studio.transcribe, audio=flow.add(studio.extract, video="v"))
    flow.add(studio.mux, video="v", speech=flow.map(studio.speak, line=lines))
    return await flow.enqueue()


async def state(handle: FlowHandle) -> FlowState:
    return (await handle.status()).state


def claim_of(queue: str) -> ClaimRequest:
    return ClaimRequest(worker="w", number=1, shares=(QueueShare(queue, 1),), limit=1, lease=30)
