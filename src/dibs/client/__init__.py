"""The client of the daemon for the command line and Python; standard library only. Starts the daemon if none runs.

May import `submission` and the packages before it.
"""
