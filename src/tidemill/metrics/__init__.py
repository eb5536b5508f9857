"""Metrics of queues, pools, workers, the store and the application, in the Prometheus text format.

    catalogue     every metric that Tidemill exports
    families      metric families, their samples, and the text format
    instruments   counters, gauges and histograms of an application: `app.metrics`
    snapshots     writes the metrics of one process to the store
    dependencies  services that handlers could not use
    rollup        adds up the snapshots of ended processes, and old history

No label is a job's id or a pool's key, so the number of series stays small."""

from tidemill.metrics.families import CONTENT_TYPE

__all__ = ["CONTENT_TYPE"]
