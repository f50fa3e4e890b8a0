"""Decide which job starts where, why a job waits, and when it will start: pure functions over values.

Imports `model`. The queue, `pipe` and the forecasts call the same functions.
"""
