"""One module per group of model families; each builds `ExportCase`s. Importing a module here imports torch."""
