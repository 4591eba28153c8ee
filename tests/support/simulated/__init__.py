"""A simulated cluster around one service, in which the operator's decisions are carried out."""
