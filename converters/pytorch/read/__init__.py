"""Reading host traces and Kineto traces into columns."""
