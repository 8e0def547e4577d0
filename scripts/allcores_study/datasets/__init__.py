"""One file per dataset. Each has

* load(folder, *, options...) -> storage.Samples, where folder holds the downloads;
* metadata(options...) -> metadata.Metadata, or None if only load() can find out. It is used to
  refuse a config with too many folds at once and to start the longest runs first.

With a constant TASK = "regression", or an option `task` of that value, the targets are numbers.
An option `path` is a file or folder of the user's; when it changes, the dataset is prepared again.
No file here imports torch or torchvision before load() is called.
"""
