"""One file per dataset. Each has

* load(folder, *, options...) -> storage.Images, where folder holds the downloads;
* metadata(options...) -> storage.Metadata, or None where only load() can tell: by it a config that
  asks for too many folds is refused at once, and long runs are told from short ones.

An option `path` is a file or folder of the user's: the dataset is made anew when that changes. None
imports torch or torchvision before load() is called.
"""
