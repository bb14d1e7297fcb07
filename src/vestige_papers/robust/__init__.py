"""Tables and figures of Farquhar and Gal, "Towards robust evaluations of continual learning"."""
