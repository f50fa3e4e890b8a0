"""GPUTaskScheduler on dibs: one process that waits for GPUs, and one for each task.

`start()` (`runs`) decides which instance is next and what is logged. A fresh interpreter (`foreman`), which has loaded
nothing of the user's, holds the leases and forks for each task a process that answers for it and in it
the task (`workers`): there the user's modules are imported, when its GPUs are already the only visible ones.
"""
