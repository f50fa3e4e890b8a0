"""GPUPeasy's own module paths, which people's start scripts import; all of it is in `dibs_compat.gpupeasy`."""
