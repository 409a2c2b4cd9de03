"""Options, the plan that is made of them, and the fit."""
