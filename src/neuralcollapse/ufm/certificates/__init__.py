"""Certificates: rigorous lower bounds, escape directions and verdicts, one file a model."""
