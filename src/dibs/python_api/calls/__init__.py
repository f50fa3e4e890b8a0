"""What `executor` needs to send calls: their labels, their points in a sweep, and the queue of their submissions.

Used by `executor` and `futures` only. It may import what `python_api` may.
"""
