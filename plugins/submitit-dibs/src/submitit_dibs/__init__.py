"""The submitit plugin of dibs, `AutoExecutor(cluster="dibs")`. It uses public names of dibs only."""
