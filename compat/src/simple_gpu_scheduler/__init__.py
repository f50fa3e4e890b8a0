"""The names of simple_gpu_scheduler, as translations onto dibs."""
