"""One file per dataset. Each has

* load(folder, *, options...) -> storage.Samples, where folder holds the downloads;
* metadata(options...) -> metadata.Metadata, or None if only load() can find out. It is used to
  check folds before anything starts, and to start the longest runs first.

The targets are numbers if the file has the constant TASK = "regression", or its option `task` has
that value. A file whose load() gives the columns of a table has the constant HAS_COLUMNS = True. An
option `path` is a file or folder of the user's; if its content changes, the dataset is prepared
again. No file here imports torch or torchvision before load() is called.
"""
