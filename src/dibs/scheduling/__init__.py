"""Which job starts where, why it does not, and when it will: pure functions over values.

Imports `model`. The queue, `pipe` and the forecasts ask the same functions.
"""
