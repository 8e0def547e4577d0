"""Models for samples of any size and any number of classes; each public function is a model."""
