"""Try a scheduling policy on a trace of jobs in simulated time: `dibs simulate`.

Pure: lines of text in, numbers and pictures out. `boxes` drives the planner of the queue; other policies are there for
comparison.
"""
