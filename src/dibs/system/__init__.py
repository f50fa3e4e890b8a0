"""This machine and this account: locks, processes, users, paths, settings, disks.

Imports `model`. Each module deals with one outside thing; none of them knows about jobs.
"""
