"""Random flows in a fleet that is killed, paused and cut off: every one ends, and no step twice (I17)."""
