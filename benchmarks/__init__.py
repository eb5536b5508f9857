"""Compares the speed of Tidemill and its peers on Redis, PostgreSQL and SQLite, on one machine in one run.

Every number comes from new processes on an empty store. The queues take turns inside each round, so that
a slow minute of the machine affects all of them. The report shows the median of the rounds with its
spread. `python -m benchmarks.run --help` lists the options.

`plan` lists the measurements per queue, and `targets` the goals of Tidemill. `run` starts one
`measurement_process` per measurement. It runs a function of `measurements` on an `adapters` class.
`worker_processes` starts the workers, which count the jobs they start in a `start_log`. `report`,
`chart` and `report_page` show the results."""
