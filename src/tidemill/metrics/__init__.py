"""What is shown to whoever watches over time: the numbers of queues, pools, workers and the store, and the
application's own, in the text format of Prometheus.

    catalogue    every metric there is
    exposition   all of them as one text
    queues, pools, fleet   where their values come from
    text         the format

    own          the application's, and what else its processes counted

No label is a job's id or a pool's key: how many series there are depends on the code, not on the work.
"""

from tidemill.metrics.text import CONTENT_TYPE

__all__ = ["CONTENT_TYPE"]
