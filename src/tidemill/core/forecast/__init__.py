"""Forecasts: when jobs will be done. A forecast calculates with an even flow of calls instead of single
calls.

A forecast goes from one change to the next, such as the end of a window or of a closure. Between two changes,
calls flow as fast as their slowest limit allows. Ten jobs and ten million jobs take about as long.

- `backlog`: the jobs to do.
- `pool_outlook`: the limits, closures and overrides of a pool over the time of the forecast.
- `meters`: a limit as an even flow of units.
- `simulation`: goes from change to change and shares capacity among backlogs.
- `completion`: when each backlog is done."""
