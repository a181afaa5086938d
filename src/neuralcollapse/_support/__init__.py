"""What every layer stands on: argument checks, registries, atomic files, thread control."""
