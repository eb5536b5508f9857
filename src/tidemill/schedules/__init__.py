"""Schedules: rules that create jobs by cron expression or interval.

A schedule is a document (`core.documents`) that the store keeps without reading it. `ticks` computes when a
schedule ticks. `due_ticks` decides which due ticks create a job, and builds the job. `changes` has the
operations of code and operators. `advance_pass` handles the schedules that are due.

One worker leads this service. It writes the new version of the schedule and the jobs in one transaction,
based on the revision that it has read. The id of a job is made of its tick. So each tick creates at most one
job, even if two workers lead for a moment (I12)."""
