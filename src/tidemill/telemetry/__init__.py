"""Emits events to listeners; logs, traces and metrics are built on them.

    events            the catalogue: every event, one class each
    event_base        the base classes of events
    job_events        events of jobs, flows and schedules
    worker_events     events of workers, the store, alerts and pools
    listeners         subscribes listeners and calls them; writes the log
    current_attempt   the attempt that the running code belongs to
    otel              OpenTelemetry spans

An event without listeners costs nothing."""
