"""The contract of a store: small protocols with numbered obligations.

A store is one object that implements all protocols. The conformance tests cite the numbers (J1, Q1, R1 …).
Most methods take a list of requests, so that one call does the work of many. `tidemill.engine` implements the
rules once for all stores; a store only loads and saves rows."""
