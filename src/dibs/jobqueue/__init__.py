"""Everything that changes a job, in the one writer thread: submissions, actions, dispatch, recovery.

Imports `store`, `engines` and the packages they import. The daemon builds it; HTTP handlers send it work.
"""
