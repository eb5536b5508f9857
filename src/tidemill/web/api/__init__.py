"""The HTTP API below `/api/v1`. Each module has the routes of one subject, such as jobs or queues, in its
`ROUTES`."""
