"""What processes show to Prometheus: one table of all metrics, alerts and a dashboard beside it."""
