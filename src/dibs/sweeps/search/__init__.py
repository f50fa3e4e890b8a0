"""Searches: sweeps whose points are chosen while they run, and the rules that stop runs early.

Imports `sweeps` and what lies above it. Only `study_child`, a program, loads Optuna; `daemon.search_driver` drives it.
"""
