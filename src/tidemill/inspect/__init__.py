"""Queries and operator actions, used by the command line, the HTTP API and the dashboard.

Workers do not need this package. Only `count`, `each` and a change by filter read every matching job.

- `inspector`: the API, `app.inspect`; `views` defines the values that it returns
- `queues`, `pools`, `flows`, `jobs`: one module for each kind of object that the inspector reads
- `overrides`: pauses, overrides and closures set by an operator
- `explanation`: why a job waits; `causes`, `wait_causes` and `pool_waits` find the reasons
- `explanation_inputs`, `forecast_inputs`: load the data of explanations and forecasts from the store
- `forecast`, `plan`: when jobs will be done
- `formatting`: durations, times and quantities as text
- `metrics_exposition`: the text of /metrics
- `store_copy`: copies one store into another"""
