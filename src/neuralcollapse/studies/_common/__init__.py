"""What several studies share: plans, limits, margins, and the way from runs to evidence over seeds."""
