"""From the results of runs to tables, figures and sentences. No torch."""
