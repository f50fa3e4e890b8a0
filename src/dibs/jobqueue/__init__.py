"""Everything that changes a job, in the one thread that writes: submissions, actions, dispatch, recovery.

Imports `store`, `engines` and what lies above them. The daemon builds it; HTTP handlers send it work.
"""
