"""What a route, a page, a metric or an alert is: values that say nothing of how they are served.

`app.web` is where an application adds its own; `tidemill.web` serves them and Tidemill's own alike, under the
same sign-in, the same roles and the same checks.
"""
