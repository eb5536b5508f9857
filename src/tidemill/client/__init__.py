"""Creates jobs and waits for their results.

A `Task` turns a call into a `JobRequest`. The `Client` sends requests to the store and returns `JobHandle`s.
Each event loop has its own session with the store. Programs without a loop share the loop of a background
thread."""
