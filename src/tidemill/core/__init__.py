"""The pure core: values in, values out.

Nothing here reads a clock, draws a random number, logs or waits. A store that
applies these functions inside one transaction keeps every promise of the
contracts; `engine` does exactly that and is the specification.
"""
