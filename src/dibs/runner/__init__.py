"""The parent process of one command: claims the start, takes leases, supervises, writes the exit record.

Imports `leases` and lean modules of `system`. It runs under `python -I -S` and never talks to the database.
"""
