"""A network's last layer as the page shows it: gauges, and plain numbers for pictures, from files, runs and models."""

from .sources import Network, digits_sample, network_of_files, network_of_model, network_of_run

__all__ = ["Network", "digits_sample", "network_of_files", "network_of_model", "network_of_run"]
