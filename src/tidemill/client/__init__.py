"""Creates jobs and waits for their results.

A `Task` turns a call into a `JobRequest`. The `Client` sends requests to the store and returns
`JobHandle`s. Every event loop has its own session with the store, because futures and wake-ups belong to
a loop. Programs without a loop share the loop of a background thread (`background_loop`)."""
