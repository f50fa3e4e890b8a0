"""Parameter spaces, their points, the commands made from them, and the ranking of their results.

Imports `model` and `system`. It never talks to the daemon; `jobqueue.sweeps` decides which points are queued.
"""
