"""Before training: how long runs will take, how large they will be, and in which order."""
