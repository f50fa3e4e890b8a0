"""Jobs on engines that others operate: which are sent, what the news about them mean, and why they wait."""
