"""The pure core: functions that take values and return values.

This package reads no clock, draws no random numbers, logs nothing and never waits. A store keeps every
obligation of the contract if it applies these functions inside one transaction. `tidemill.engine` does this
and is the reference implementation."""
