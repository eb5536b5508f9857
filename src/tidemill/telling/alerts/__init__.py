"""Alerts: what is wrong is measured by rules, and people are told of it once, not a hundred times.

rule        what is watched, and from where on it is wrong
measuring   what the store says of it
book        what is wrong now and what was said of it, as the store keeps it for the fleet
deciding    from the book and what was measured to the book as it becomes, and what is to be said: pure
wording     a message: what, where, since when, and where to look
channels    e-mail, Slack, DingTalk
round       one round: measured, decided, written, and messages made, in one step of the store
sending     the handler of a message
direct      what is said when the store itself is gone
"""
