"""The names of older GPU schedulers, translated onto dibs.

`scheduler` is the tool with the commands `schedule` and `sch`.
"""
