"""One file per dataset. Each has

* load(folder, *, options...) -> storage.Samples, where folder holds the downloads;
* facts(options...) -> facts.Facts, or None if only load() can find out, where load() downloads or
  reads for long. Without this function, load(None, options...) is called once when a config is
  checked, unless its files are large.

The task is classification, unless the file's constant TASK or its option `task` names another. An
option `path` is a file or folder of the user's; if its content changes, the dataset is prepared
again. No file here imports torch or torchvision before load() is called.
"""
