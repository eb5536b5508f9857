"""Flows: graphs of jobs. The job of a step is created when the steps before it have succeeded.

The store keeps a flow as a document and records every state change of the flow's jobs. A worker that knows
the tasks reads both, decides what follows (`advance`) and builds the next jobs (`job_builder`). The store
commits the new document and the jobs together, or nothing if another worker was faster.

So any number of workers may advance the same flow. The id of a job consists of the flow, the step and an
index, so no job is created twice.

A job stores which results it reads (`core.jobs.FlowPosition`). It receives these results when it runs
(`results`).
"""
