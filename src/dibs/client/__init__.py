"""The client of the daemon, with the standard library only; it starts the daemon if none runs.

Used by the command line and Python. May import `submission` and the packages before it.
"""
