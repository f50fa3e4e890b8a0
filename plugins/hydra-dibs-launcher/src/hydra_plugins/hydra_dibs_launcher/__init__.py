"""The Hydra launcher of dibs. Hydra loads every module here in each Hydra program, so none imports dibs at its top."""
