"""Types that an editor shows for the inspector."""

from __future__ import annotations

from typing import reveal_type

from tidemill import CancelJobs, Filter, State, Tidemill

app = Tidemill("memory://")


async def what_an_editor_shows() -> None:
    reveal_type(await app.inspect.queues())  # reveals: list[QueueView]
    reveal_type(await app.inspect.queue("feeds"))  # reveals: QueueView
    reveal_type(await app.inspect.find(Filter(states=(State.FAILED,)), limit=10))  # reveals: JobPage
    reveal_type(await app.inspect.count(Filter(queue="feeds")))  # reveals: JobCount
    reveal_type(await app.inspect.job("id"))  # reveals: JobView
    reveal_type(await app.inspect.change(Filter(queue="feeds"), CancelJobs("enough")))  # reveals: BulkResult
    reveal_type(await app.inspect.retry(Filter(queue="feeds")))  # reveals: BulkResult
    reveal_type(await app.inspect.overview())  # reveals: Overview
    reveal_type(await app.explain("id"))  # reveals: Explanation
    reveal_type(app.run_sync(app.inspect.queue("feeds")))  # reveals: QueueView
    async for job in app.inspect.each(Filter(queue="feeds")):
        reveal_type(job)  # reveals: Job


async def wrong() -> None:
    await app.inspect.queue(3)  # expect: arg-type, reportArgumentType
    await app.inspect.queue("feeds", deep=True)  # expect: call-arg, reportCallIssue
    await app.inspect.find(Filter(states=("failed",)))  # expect: arg-type, reportArgumentType
    await app.inspect.find(Filter(colour="red"))  # expect: call-arg, reportCallIssue
    await app.inspect.override("feeds", by="ann", wieght=3)  # expect: call-arg, reportCallIssue
    await app.inspect.change(Filter(), "cancel")  # expect: arg-type, reportArgumentType
    await app.inspect.jobs()  # expect: attr-defined, reportAttributeAccessIssue
    app.run_sync(app.inspect.each(Filter()))  # expect: arg-type, reportArgumentType
