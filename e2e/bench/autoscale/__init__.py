"""Late requests and replica-hours of the product's scaling and of other projects' rules, simulated."""
