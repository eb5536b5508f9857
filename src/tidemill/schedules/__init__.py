"""Schedules: jobs that come of time going by.

A schedule is a course (`core.courses`): a record that a store keeps without looking into it. `ticks` says
when it ticks, `deciding` what becomes of the ticks that are over, `making` makes their jobs, `changes` is
what people and code do to one, `keeping` brings it to the store. Whoever leads the duty takes what is due and
hands the schedule as it becomes and its jobs to the store in one step, on the revision it has seen. A tick's
job is named after the tick. So there is one job per tick, whoever leads and however often (I12).
"""
