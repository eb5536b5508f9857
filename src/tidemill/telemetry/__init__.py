"""What happens, told to whoever listens.

    events    the catalogue: everything that is ever told, one class each
    signals   who listens to what
    current   which attempt the running code belongs to
    lines     an event as a log line

Whoever causes an event builds it only when somebody wants it, so what nobody listens to costs
nothing. Log lines are one listener; metrics, traces and `app.on` are others.
"""
