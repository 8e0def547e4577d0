"""Before runs are trained: how long they will take, how large they will be, in which order."""
