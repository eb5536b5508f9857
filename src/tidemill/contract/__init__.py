"""The contract of a store: small protocols with numbered obligations.

A store is one object that implements all protocols. The conformance tests cite the obligations by number (J1,
Q1, R1 …). `docs/reference/contracts.md` lists all of them. `tidemill.engine` implements the rules for all
stores."""
