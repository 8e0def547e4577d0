"""Make tables, figures and sentences from the results of runs. No torch."""
