"""Forecasts: when jobs will be done. A forecast uses the limits of the pools, but calculates with an even
flow of calls instead of single calls.

A forecast goes from one change to the next. A change is, for example, that a window returns units, a period
ends, a closure ends or a backlog is done. Between two changes, calls flow evenly, as fast as their slowest
limit allows. The cost depends on the number of changes and not on the number of jobs. Ten jobs and ten
million jobs take about as long.

- `backlog`: the jobs to do.
- `pool_outlook`: the limits, closures and overrides of a pool over the time of the forecast.
- `meters`: a limit as an even flow of units.
- `simulation`: goes from change to change and shares capacity among backlogs.
- `completion`: when each backlog is done."""
