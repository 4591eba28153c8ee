"""`kubectl tailbound`: rollouts seen and steered by people and pipelines."""
