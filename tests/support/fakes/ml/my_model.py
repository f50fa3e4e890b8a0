"""What the recipes train; the stand-ins ignore it."""

data = dataset = model = object()
