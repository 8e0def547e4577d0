"""What there is of the results of a config, and what people see of a call."""
