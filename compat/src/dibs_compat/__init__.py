"""The names of older GPU schedulers, translated onto dibs.

`scheduler` is the tool with the commands `schedule` and `sch`; `gpu_tasks` is what is behind the package
`gpu_task_scheduler`, `gpupeasy` what is behind the package of that name; `simple_hypersearch` is in the package
`simple_gpu_scheduler`.
"""
