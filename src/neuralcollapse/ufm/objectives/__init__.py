"""Objectives: a model on one flat vector, which values, derivatives, solvers and certificates share."""
