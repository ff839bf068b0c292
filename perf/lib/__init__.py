"""What perf/compare and perf/compare-floor share: servers in turns, ratios of one run, and their report."""
