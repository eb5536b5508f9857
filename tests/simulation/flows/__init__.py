"""Random flows on a fleet with kills, pauses and lost connections: every flow ends, and no step runs twice
(I17)."""
