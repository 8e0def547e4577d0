"""From YAML to Runs: schema, checks, grid, components, candidates. No torch."""
