"""This machine and this account: locks, processes, users, paths, settings, disks.

Imports `model`. Each module handles one external resource; none of them knows about jobs.
"""
