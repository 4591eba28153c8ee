"""The canary verdict against the rules of other projects, on simulated traffic."""
