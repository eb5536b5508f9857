"""Schedules: rules that create jobs by cron expression or interval.

`ticks` computes when a schedule ticks. `due_ticks` decides which due ticks create a job, and builds the job.
`changes` has the operations of code and operators. `advance_pass` handles the schedules that are due.

The leader writes the new version of a schedule and its jobs in one transaction. The id of a job is made of
its tick. So each tick creates at most one job, even if two workers lead for a moment (I12).
"""
