"""Models for any number of channels, image size and classes; each public function is one."""
