"""Tasks that write down what they were called with, and fail on demand."""

from __future__ import annotations

from typing import Any

from tidemill import Context, Failure, FlowHandle, GiveUp, Retry, Tidemill
from tidemill.core.claims import ClaimRequest, Share
from tidemill.core.graph_state import FlowState

ONCE = Retry(attempts=1)


class Studio:
    """`ran` is what happened, in order; a line, or a step, in `broken` fails until it is mended."""

    def __init__(self, app: Tidemill) -> None:
        self.ran: list[str] = []
        self.broken: set[str] = set()
        self.told: list[Any] = []
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
            self.told.append(ctx.flow)
            return f"{voice} says {line}"

        @task
        async def mux(video: str, speech: list[str | None]) -> dict[str, Any]:
            begin("mux")
            return {"video": video, "speech": speech}

        @task
        async def notify(text: str | None = None) -> None:
            begin("notify")
            self.told.append(text)

        @task
        async def silence(failure: Failure) -> str:
            begin(f"silence {failure.step} {failure.index}")
            self.told.append(failure)
            return "…"

        self.extract, self.transcribe, self.speak = extract, transcribe, speak
        self.mux, self.notify, self.silence = mux, notify, silence


async def dub(app: Tidemill, studio: Studio, **options: object) -> FlowHandle:
    """extract, transcribe, a job for each of three lines, mux."""
    flow = app.flow("dub", key="v", **options)  # type: ignore[arg-type]
    lines = flow.add(studio.transcribe, audio=flow.add(studio.extract, video="v"))
    flow.add(studio.mux, video="v", speech=flow.map(studio.speak, line=lines))
    return await flow.enqueue()


async def state(handle: FlowHandle) -> FlowState:
    return (await handle.status()).state


def claim_of(queue: str) -> ClaimRequest:
    return ClaimRequest(worker="w", number=1, shares=(Share(queue, 1),), limit=1, lease=30)
