"""What `import dibs` gives: jobs, executor, futures, leases, sweeps, and what a job reports about itself.

Imports `client`, `foreground` and what lies above them. Nothing outside the standard library is needed.
"""
