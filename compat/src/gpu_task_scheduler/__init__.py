"""The names of GPUTaskScheduler, as translations onto dibs."""
