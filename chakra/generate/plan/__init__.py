"""From a model, degrees and a schedule to the plan of a step."""
