"""Ray, thin: it places, deploys and calls node; it holds no formula."""
